"""Small Lightning programs that the tests share: each module is a whole program, healthy or with one bug in it."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as lightning
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def classes(count: int, seed: int = 0, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Points of five classes that overlap a little."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 20, generator=draw)
    scores = x[:, :5] + noise * torch.randn(count, 5, generator=draw)
    return x, scores.argmax(dim=1)


def loader(*tensors: Tensor, size: int = 32, shuffle: bool = True, seed: int = 1) -> DataLoader[Any]:
    """With a generator of its own: a loader without one draws from the generator that dropout draws from."""
    draw = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(*tensors), size, shuffle=shuffle, generator=draw)


def class_loaders(count: int = 640, size: int = 32, shuffle: bool = True) -> tuple[DataLoader[Any], DataLoader[Any]]:
    return loader(*classes(count), size=size, shuffle=shuffle), loader(*classes(160, seed=7), size=size, shuffle=False)


def trainer(**options: Any) -> lightning.Trainer:
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(**{**quiet, "enable_checkpointing": False, **options})


class Classifier(lightning.LightningModule):
    """An MLP with dropout and a cosine schedule that is stepped every step."""

    def __init__(self, lr: float = 1e-2, steps: int = 200) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 5))

    def training_step(self, batch: Any, number: int) -> Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("val_loss", cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.hparams.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Pictures(Classifier):
    """A CNN with batch normalisation, called as a whole, and a rate that falls once an epoch."""

    def __init__(self) -> None:
        super().__init__(lr=0.05)
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, number: int) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self(batch[0]), batch[1])}

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("val/loss", cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, weight_decay=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


def picture_loaders(count: int = 480) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """A bright bar at one of four places, in noise."""
    draw = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 4, (count,), generator=draw)
    x = 0.7 * torch.randn(count, 1, 8, 8, generator=draw)
    for place in range(4):
        x[labels == place, 0, 2 * place : 2 * place + 2] += 1.0
    held = count - 96
    return loader(x[:held], labels[:held], size=24), loader(x[held:], labels[held:], size=24, shuffle=False)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, 2, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(lightning.LightningModule):
    """A small GPT with warmup, weight decay on matrices alone, and clipping by the Trainer."""

    def __init__(self, vocab: int = 24, width: int = 32, warmup: int = 20, steps: int = 150) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        for table in (self.tokens, self.places, self.head):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def _loss(self, batch: Any) -> Tensor:
        (ids,) = batch
        return cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def training_step(self, batch: Any, number: int) -> Tensor:
        return self._loss(batch)

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("valid_loss", self._loss(batch))

    def configure_optimizers(self) -> Any:
        matrices = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
        warmup, steps = self.hparams.warmup, self.hparams.steps

        def share(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / (steps - warmup))))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def text_loaders(count: int = 480, vocab: int = 24) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Counting upwards by one or two, with slips."""
    draw = torch.Generator().manual_seed(5)
    ids = [torch.randint(0, vocab, (count,), generator=draw)]
    for _ in range(12):
        slip = torch.rand(count, generator=draw) < 0.05
        step = torch.where(slip, torch.randint(0, vocab, (count,), generator=draw), 1 + ids[0] % 2)
        ids.append((ids[-1] + step) % vocab)
    text = torch.stack(ids, dim=1)
    return loader(text[:-64], size=16), loader(text[-64:], size=16, shuffle=False)


class Gan(lightning.LightningModule):
    """Two optimizers that take turns, by hand; nothing is returned."""

    def __init__(self, forgets: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.forgets = forgets
        self.artist = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 2))
        self.critic = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))

    def training_step(self, batch: Any, number: int) -> None:
        (real,) = batch
        artist, critic = self.optimizers()
        made = self.artist(torch.randn(len(real), 8))
        good, bad = self.critic(real), self.critic(made.detach())
        loss = binary_cross_entropy_with_logits(good, torch.ones_like(good)) / 2
        loss = loss + binary_cross_entropy_with_logits(bad, torch.zeros_like(bad)) / 2
        self._learn(critic, loss)
        judged = self.critic(made)
        self._learn(artist, binary_cross_entropy_with_logits(judged, torch.ones_like(judged)))

    def _learn(self, optimizer: Any, loss: Tensor) -> None:
        if not self.forgets:
            optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self) -> Any:
        parts = (self.artist, self.critic)
        return [torch.optim.Adam(part.parameters(), lr=1e-3, betas=(0.5, 0.99)) for part in parts], []


def ring_loader(count: int = 640) -> DataLoader[Any]:
    draw = torch.Generator().manual_seed(9)
    angle = 2 * math.pi * torch.rand(count, generator=draw)
    ring = torch.stack([angle.cos(), angle.sin()], dim=1)
    return loader(ring + 0.05 * torch.randn(count, 2, generator=draw))


class ByHand(Classifier):
    """The classifier with its optimizer stepped by hand; `forgets` leaves out zero_grad."""

    def __init__(self, forgets: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.forgets = forgets

    def training_step(self, batch: Any, number: int) -> Tensor:
        optimizer = self.optimizers()
        if not self.forgets:
            optimizer.zero_grad()
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.manual_backward(loss)
        optimizer.step()
        self.lr_schedulers().step()
        return loss
