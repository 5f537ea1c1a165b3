"""Small training programs of many kinds, all healthy; tests spoil them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadyrun import Task

VOCAB, WIDTH, LENGTH, ROWS = 23, 16, 12, 4


@dataclass
class Program:
    """A task, its batches, and what it declares."""

    task: Task
    batches: list[Any]
    config: dict[str, Any] = field(default_factory=dict)


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    scores = model(batch[0])
    return functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), batch[1].reshape(-1))


def plain(task: Task, batch: Any) -> Tensor:
    """A step as most programs write it."""
    task.optimizer.zero_grad()
    loss = task.loss_fn(task.model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
    task.optimizer.step()
    if task.scheduler is not None:
        task.scheduler.step()
    return loss.detach()


class Attention(nn.Module):
    def __init__(self, causal: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.causal, self.rate = causal, dropout
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        rate = self.rate if self.training else 0.0
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal and mask is None, dropout_p=rate
        )
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, causal: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(causal, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, causal: bool = True, dropout: float = 0.0, tied: bool = False) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block(causal, dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.apply(small_init)
        if tied:
            self.head.weight = self.tok.weight

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def small_init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def texts(count: int = 4, rows: int = ROWS, length: int = LENGTH) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    token_rows = [torch.randint(2, VOCAB, (rows, length + 1), generator=draw) for _ in range(count)]
    return [(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) for tokens in token_rows]


def images(count: int = 4, rows: int = 6) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(2)
    return [
        (torch.randn(rows, 3, 8, 8, generator=draw), torch.randint(0, 4, (rows,), generator=draw)) for _ in range(count)
    ]


def tables(count: int = 4, rows: int = 8, width: int = 10, classes: int = 5) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(3)
    return [
        (torch.randn(rows, width, generator=draw), torch.randint(0, classes, (rows,), generator=draw))
        for _ in range(count)
    ]


def gpt(**options: Any) -> Program:
    model = GPT(**{"dropout": 0.1, **options})
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    config = {"init": "random", "causal": True, "clip": 1.0, "vocab_size": VOCAB, "lr_max": 1e-3}
    return Program(Task(model, optimizer, cross_entropy, scheduler, None, plain), texts(), config)


def gpt_from_zero() -> Program:
    """The warmup begins at a learning rate of 0; no train_step."""
    program = gpt(tied=True)
    task = program.task
    task.scheduler = torch.optim.lr_scheduler.LambdaLR(task.optimizer, lambda step: min(1.0, step / 10))
    task.train_step = None
    return Program(task, program.batches, {"init": "random", "tied": True})


def cnn() -> Program:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8),
        nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return Program(
        Task(model, optimizer, cross_entropy, None, None, plain), images(), {"init": "random", "batch_size": 6}
    )


class LSTM(nn.Module):
    def __init__(self, bidirectional: bool = False) -> None:
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.1, bidirectional=bidirectional)
        self.head = nn.Linear(WIDTH * (2 if bidirectional else 1), VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.tok(ids))[0])


def lstm() -> Program:
    model = LSTM()

    def step(task: Task, batch: Any) -> float:
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(task.model.parameters(), 0.5)
        task.optimizer.step()
        task.optimizer.zero_grad(set_to_none=False)
        return loss.item()

    return Program(Task(model, torch.optim.RMSprop(model.parameters(), 1e-3), cross_entropy, None, None, step), texts())


def gan() -> Program:
    """Generator and critic in one module, an optimizer each, steps in turn."""
    model = nn.ModuleDict(
        {
            "g": nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)),
            "d": nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1)),
        }
    )
    optimizers = [torch.optim.Adam(model[name].parameters(), 2e-4, betas=(0.5, 0.999)) for name in ("g", "d")]

    def critic(net: Any, batch: Any) -> Tensor:
        fake = net["g"](torch.randn(batch[0].shape[0], 4)).detach()
        real, made = net["d"](batch[0]), net["d"](fake)
        bce = functional.binary_cross_entropy_with_logits
        return bce(real, torch.ones_like(real)) + bce(made, torch.zeros_like(made))

    def step(task: Task, batch: Any) -> dict[str, Tensor]:
        generator, discriminator = task.optimizer
        discriminator.zero_grad()
        loss_d = critic(task.model, batch)
        loss_d.backward()
        discriminator.step()
        generator.zero_grad()
        made = task.model["d"](task.model["g"](torch.randn(batch[0].shape[0], 4)))
        loss_g = functional.binary_cross_entropy_with_logits(made, torch.ones_like(made))
        loss_g.backward()
        generator.step()
        return {"loss": loss_d, "generator": loss_g}

    return Program(Task(model, optimizers, critic, None, None, step), tables(), {"init": "random"})


def gan_one_side() -> Program:
    """Only the generator is watched; the critic and its optimizer live in closures, with a frozen turn."""
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 10))
    critic = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
    other = torch.optim.Adam(critic.parameters(), 1e-3)

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        return -critic(net(batch[0])).mean()

    def step(task: Task, batch: Any) -> None:
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        other.zero_grad()
        (critic(task.model(batch[0]).detach()).mean() - critic(batch[0] + 1).mean()).backward()
        other.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        task.optimizer.zero_grad()
        loss_fn(task.model, batch).backward()
        task.optimizer.step()

    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn, None, None, step), tables())


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor
    hidden_states: tuple[Tensor, ...] = ()


class Bert(nn.Module):
    """Masked language model with padding, an unused pooler, a dict for a batch and an object for an output."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.masked = masked
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH, padding_idx=0), nn.Embedding(64, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Output:
        x = self.tok(input_ids) + self.pos(torch.arange(input_ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=(attention_mask == 0) if self.masked else None)
        logits = self.head(x)
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return Output(loss, logits, (x,))


def bert(masked: bool = True) -> Program:
    draw = torch.Generator().manual_seed(4)
    batches = []
    for _ in range(3):
        ids = torch.randint(3, VOCAB, (ROWS, LENGTH), generator=draw)
        for row, length in enumerate((12, 7, 9, 5)):
            ids[row, length:] = 0
        labels = torch.where((torch.rand(ids.shape, generator=draw) < 0.4) & (ids != 0), ids, -100)
        ids = torch.where(labels != -100, 2, ids)
        batches.append({"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels})
    model = Bert(masked)
    loss_fn = lambda net, batch: net(**batch).loss  # noqa: E731
    config = {"pad_id": 0, "init": "random"}
    return Program(
        Task(model, torch.optim.AdamW(model.parameters(), 1e-3), loss_fn, None, None, plain), batches, config
    )


def amp() -> Program:
    """fp16 autocast with a loss scaler on the CPU, entered by the loss function."""
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 5))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return functional.cross_entropy(net(batch[0]).float(), batch[1])

    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(task.model, batch)
        task.scaler.scale(loss).backward()
        task.scaler.unscale_(task.optimizer)
        nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        task.scaler.step(task.optimizer)
        task.scaler.update()
        return loss

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return Program(Task(model, optimizer, loss_fn, None, scaler, step), tables(), {"dtype": "bf16", "clip": 1.0})


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(10, 8), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.down(x).chunk(2, -1)
        return self.up(mean + torch.randn_like(mean) * spread.exp()), mean, spread


def vae() -> Program:
    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        made, mean, spread = net(batch[0])
        kl = (mean**2 + (2 * spread).exp() - 1 - 2 * spread).sum(1).mean() / 2
        return functional.mse_loss(made, batch[0], reduction="sum") / len(made) + kl

    model = VAE()
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), tables())


def autoencoder_without_root() -> Program:
    """The loss function never calls the model itself; targets are the inputs."""

    class Auto(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(10, 4), nn.Linear(4, 10)

        def encode(self, x: Tensor) -> Tensor:
            return torch.tanh(self.one(x))

        def decode(self, z: Tensor) -> Tensor:
            return self.two(z)

    model = Auto()
    loss_fn = lambda net, batch: functional.l1_loss(net.decode(net.encode(batch)), batch)  # noqa: E731
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), [x for x, _ in tables()])


def contrastive() -> Program:
    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        one, two = (functional.normalize(net(batch[0] + 0.1 * torch.randn_like(batch[0])), dim=1) for _ in range(2))
        return functional.cross_entropy(one @ two.T / 0.1, torch.arange(len(one)))

    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
    return Program(Task(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn), tables(), {"batch_size": 8})


def clip() -> Program:
    """Its outputs compare all examples of a batch with each other."""

    class Clip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.text = nn.Linear(10, 8), nn.Embedding(5, 8)
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            one, two = functional.normalize(self.image(x), dim=1), functional.normalize(self.text(y), dim=1)
            return self.scale.exp() * one @ two.T

    model = Clip()
    loss_fn = lambda net, batch: functional.cross_entropy(net(*batch), torch.arange(len(batch[0])))  # noqa: E731
    return Program(Task(model, torch.optim.AdamW(model.parameters(), 1e-3), loss_fn), tables(), {"batch_size": 8})


def byol() -> Program:
    """The target is a moving average that no optimizer holds and no gradient reaches."""

    class Byol(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))
            self.target = copy.deepcopy(self.online)
            self.predictor = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                target = self.target(x)
            return self.predictor(self.online(x)), target

    model = Byol()

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        made, target = net(batch[0])
        return -functional.cosine_similarity(made, target.detach()).mean()

    def step(task: Task, batch: Any) -> Tensor:
        loss = plain(task, batch)
        with torch.no_grad():
            for one, two in zip(model.online.parameters(), model.target.parameters(), strict=True):
                two.lerp_(one, 0.01)
        return loss

    learned = [*model.online.parameters(), *model.predictor.parameters()]
    return Program(Task(model, torch.optim.Adam(learned, 1e-3), loss_fn, None, None, step), tables())


def simsiam() -> Program:
    class Siam(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.predictor = nn.Linear(10, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.encoder(x)
            return self.predictor(z), z.detach()

    model = Siam()

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        (p, _), (_, z) = net(batch[0]), net(batch[0] + 0.1)
        return -functional.cosine_similarity(p, z).mean()

    return Program(Task(model, torch.optim.SGD(model.parameters(), 0.05), loss_fn), tables())


def vq() -> Program:
    """A codebook with a straight-through gradient and its own loss."""

    class VQ(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.codes = nn.Linear(10, 4), nn.Linear(4, 10), nn.Embedding(6, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.one(x)
            near = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
            extra = functional.mse_loss(near, z.detach()) + 0.25 * functional.mse_loss(z, near.detach())
            return self.two(z + (near - z).detach()), extra

    model = VQ()

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        made, extra = net(batch[0])
        return functional.mse_loss(made, batch[0]) + extra

    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), tables())


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, base.in_features)), nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


def lora() -> Program:
    model = nn.Sequential(
        LoRA(nn.Linear(10, 16)), nn.ReLU(), LoRA(nn.Linear(16, 16)), nn.ReLU(), LoRA(nn.Linear(16, 5))
    )
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, 1e-3)
    return Program(Task(model, optimizer, cross_entropy, None, None, plain), tables(), {"init": "pretrained"})


def linear_probe() -> Program:
    """Only the head is optimized; nobody froze the backbone. The loss has weights of its own in the optimizer."""
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    margins = nn.Parameter(torch.zeros(16, 16))
    loss_fn = lambda net, batch: cross_entropy(net, batch) + (margins**2).sum() * 0.1  # noqa: E731
    optimizer = torch.optim.SGD([*model[4].parameters(), margins], 0.1)
    return Program(Task(model, optimizer, loss_fn), tables())


class Seq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.inner = nn.Transformer(WIDTH, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
        hidden = self.inner(
            self.tok(source), self.tok(target), tgt_mask=mask, tgt_is_causal=True,
            src_key_padding_mask=source == 0, memory_key_padding_mask=source == 0,
        )  # fmt: skip
        return self.head(hidden)


def seq2seq() -> Program:
    """The decoder's text begins with the padding's id, and the source is the text itself, shifted like it."""
    draw = torch.Generator().manual_seed(5)
    batches = []
    for _ in range(3):
        text = torch.randint(1, VOCAB, (ROWS, LENGTH), generator=draw)
        text[1, 8:] = 0
        source = torch.cat([torch.ones(ROWS, 1, dtype=torch.long), text], 1)
        given = torch.cat([torch.zeros(ROWS, 1, dtype=torch.long), text[:, :-1]], 1)
        batches.append((source, given, torch.where(text == 0, -100, text)))
    model = Seq2Seq()

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(net(batch[0], batch[1]).flatten(0, 1), batch[2].flatten())

    return Program(Task(model, torch.optim.AdamW(model.parameters(), 1e-3), loss_fn), batches, {"pad_id": 0})


def vit() -> Program:
    """Patches, a class token, checkpointed blocks."""
    from torch.utils.checkpoint import checkpoint

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, WIDTH, 4, 4)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 5, WIDTH) * 0.02)
            self.blocks = nn.ModuleList(Block(causal=False) for _ in range(3))
            self.head = nn.Linear(WIDTH, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.head(x[:, 0])

    model = ViT()
    return Program(Task(model, torch.optim.AdamW(model.parameters(), 1e-3), cross_entropy, None, None, plain), images())


def graph() -> Program:
    """Rows are nodes of a graph: they mix by design."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 5)

        def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
            return self.two(adjacency @ torch.relu(self.one(adjacency @ x)))

    model = Net()
    batches = [(x, y, torch.softmax(torch.ones(len(x), len(x)), 1)) for x, y in tables()]
    loss_fn = lambda net, batch: functional.cross_entropy(net(batch[0], batch[2]), batch[1])  # noqa: E731
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-2), loss_fn), batches)


def detection() -> Program:
    """A batch is a list of pairs: an image and a dictionary of boxes, each of its own number."""
    draw = torch.Generator().manual_seed(6)
    batches = [
        [
            (torch.randn(3, 8, 8, generator=draw), {"boxes": torch.rand(count, 4, generator=draw), "name": "x"})
            for count in (1, 3, 0)
        ]
        for _ in range(3)
    ]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        made = net(torch.stack([image for image, _ in batch]))
        parts = [(made[index] - target["boxes"]).abs().sum() for index, (_, target) in enumerate(batch)]
        return torch.stack(parts).sum()

    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), batches, {"reduction": "sum"})


@dataclass
class Sample:
    x: Tensor
    y: Tensor
    weight: float = 1.0


def regression() -> Program:
    """A dataclass for a batch, parameters of the loss in the optimizer, a sum for a loss, no train_step."""
    model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
    noise = nn.Parameter(torch.zeros(()))

    def loss_fn(net: nn.Module, batch: Sample) -> Tensor:
        return ((net(batch.x).squeeze(1) - batch.y) ** 2 * (-noise).exp()).sum() + noise

    batches = [Sample(x, y.float()) for x, y in tables()]
    return Program(Task(model, torch.optim.SGD([*model.parameters(), noise], 1e-3), loss_fn), batches)


def bf16_parameters() -> Program:
    model = GPT().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.0)
    loss_fn = lambda net, batch: functional.cross_entropy(net(batch[0]).float().flatten(0, 1), batch[1].flatten())  # noqa: E731
    return Program(Task(model, optimizer, loss_fn, None, None, plain), texts(), {"dtype": "bf16"})


def lbfgs() -> Program:
    model = nn.Linear(10, 5)

    def step(task: Task, batch: Any) -> Any:
        def closure() -> Tensor:
            task.optimizer.zero_grad()
            loss = cross_entropy(task.model, batch)
            loss.backward()
            return loss

        return task.optimizer.step(closure)

    return Program(
        Task(model, torch.optim.LBFGS(model.parameters(), max_iter=3), cross_entropy, None, None, step), tables()
    )


def adversarial_autoencoder() -> Program:
    """The encoder is in two optimizers, each with a loss of its own."""
    model = nn.ModuleDict({"e": nn.Linear(10, 4), "d": nn.Linear(4, 10), "c": nn.Linear(4, 1)})
    recon = torch.optim.Adam([*model["e"].parameters(), *model["d"].parameters()], 1e-3)
    fool = torch.optim.Adam(model["e"].parameters(), 1e-4)
    judge = torch.optim.Adam(model["c"].parameters(), 1e-3)
    loss_fn = lambda net, batch: functional.mse_loss(net["d"](net["e"](batch[0])), batch[0])  # noqa: E731

    def step(task: Task, batch: Any) -> Tensor:
        recon.zero_grad()
        loss = loss_fn(model, batch)
        loss.backward()
        recon.step()
        judge.zero_grad()
        (model["c"](model["e"](batch[0]).detach()).mean() - model["c"](torch.randn(8, 4)).mean()).backward()
        judge.step()
        fool.zero_grad()
        (-model["c"](model["e"](batch[0])).mean()).backward()
        fool.step()
        return loss

    return Program(Task(model, [recon, fool, judge], loss_fn, None, None, step), tables())


def packed() -> Program:
    """A GRU over packed sequences, lengths on the side."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.rnn, self.head = nn.Embedding(VOCAB, 8, 0), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
            sequence = nn.utils.rnn.pack_padded_sequence(self.tok(ids), lengths, batch_first=True, enforce_sorted=True)
            return self.head(self.rnn(sequence)[1][-1])

    model = Packed()
    draw = torch.Generator().manual_seed(7)
    batches = []
    for _ in range(3):
        lengths = torch.tensor([9, 7, 4, 2])
        ids = torch.randint(1, VOCAB, (4, 9), generator=draw) * (torch.arange(9) < lengths[:, None])
        batches.append((ids, lengths, torch.randint(0, 3, (4,), generator=draw)))
    loss_fn = lambda net, batch: functional.cross_entropy(net(batch[0], batch[1]), batch[2])  # noqa: E731
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), batches, {"pad_id": 0})


def time_first() -> Program:
    """A causal language model over (time, examples)."""

    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
            self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 32), 1, enable_nested_tensor=False)

        def forward(self, ids: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(len(ids))
            return self.head(self.inner(self.tok(ids), mask=mask, is_causal=True))

    model = TimeFirst()
    batches = [(x.T.contiguous(), y.T.contiguous()) for x, y in texts()]
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), cross_entropy), batches, {"causal": True})


def prefix_lm() -> Program:
    """The first half sees itself in both directions and is not supervised."""
    model = GPT()
    mask = torch.ones(LENGTH, LENGTH).tril().bool()
    mask[: LENGTH // 2, : LENGTH // 2] = True

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(net(batch[0], mask).flatten(0, 1), batch[1].flatten())

    batches = [(x, torch.where(torch.arange(LENGTH) < LENGTH // 2, -100, y)) for x, y in texts()]
    return Program(Task(model, torch.optim.AdamW(model.parameters(), 1e-3), loss_fn), batches)


def accumulated(divide: float = 4.0, clear_each: bool = False) -> Program:
    """Four micro-batches a step, in a list."""
    model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 5))

    def step(task: Task, micro: list[Any]) -> Tensor:
        task.optimizer.zero_grad()
        losses = []
        for batch in micro:
            if clear_each:
                task.optimizer.zero_grad()
            loss = task.loss_fn(task.model, batch)
            (loss / divide).backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        task.optimizer.step()
        return torch.stack(losses).mean()

    task = Task(model, torch.optim.AdamW(model.parameters(), 1e-3), cross_entropy, None, None, step)
    return Program(task, tables(8), {"accumulation": 4, "clip": 1.0})


def chunked() -> Program:
    """One batch that the step cuts into parts itself."""
    model = nn.Linear(10, 5)

    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
            (cross_entropy(task.model, (x, y)) / 4).backward()
        task.optimizer.step()
        return cross_entropy(task.model, batch).detach()

    task = Task(model, torch.optim.SGD(model.parameters(), 0.1), cross_entropy, None, None, step)
    return Program(task, tables(), {"accumulation": 4})


def every_fourth() -> Program:
    """The optimizer steps on every fourth call, as `task.step` says; nothing is declared."""
    model = nn.Linear(10, 5)

    def step(task: Task, batch: Any) -> Tensor:
        loss = cross_entropy(task.model, batch)
        (loss / 4).backward()
        if task.step % 4 == 3:
            task.optimizer.step()
            task.optimizer.zero_grad()
        return loss

    return Program(Task(model, torch.optim.SGD(model.parameters(), 0.1), cross_entropy, None, None, step), tables())


def diffusion() -> Program:
    """Random times and noise in the loss, a generator of its own in numpy."""
    draw = np.random.default_rng(0)

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(11, 32), nn.SiLU(), nn.Linear(32, 10))

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return self.net(torch.cat([x, t], 1))

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        t = torch.from_numpy(draw.random((len(batch[0]), 1), dtype=np.float32))
        noise = torch.randn_like(batch[0])
        return functional.mse_loss(net((1 - t) * batch[0] + t * noise, t), noise)

    model = Denoiser()
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn, None, None, plain), tables())


def causal_convolution() -> Program:
    """A WaveNet over (examples, channels, time)."""

    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv1d(4, 8, 2), nn.Conv1d(8, 4, 2, dilation=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(functional.pad(torch.relu(self.one(functional.pad(x, (1, 0)))), (2, 0)))

    model = Wave()
    batches = [(torch.randn(3, 4, 16),) for _ in range(3)]
    loss_fn = lambda net, batch: functional.mse_loss(net(batch[0])[..., :-1], batch[0][..., 1:])  # noqa: E731
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), batches, {"causal": True})


def sparse_autoencoder() -> Program:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.act, self.down = nn.Linear(10, 512), nn.ReLU(), nn.Linear(512, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.act(self.up(x))
            return self.down(torch.zeros_like(h).scatter(-1, h.topk(4).indices, h.topk(4).values))

    model = Sparse()
    loss_fn = lambda net, batch: functional.mse_loss(net(batch[0]), batch[0])  # noqa: E731
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn), tables())


def parametrized() -> Program:
    """Spectral norm changes a buffer in every pass; batch statistics are used in evaluation, too."""
    model = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(10, 16)),
        nn.BatchNorm1d(16, track_running_stats=False),
        nn.Sigmoid(),
        nn.utils.parametrizations.weight_norm(nn.Linear(16, 5)),
    )
    optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
    return Program(Task(model, optimizer, cross_entropy, None, None, plain), tables(), {"batch_size": 8})


class Trainer:
    """A program written as a class, with counters, an average of the weights and a scheduler only it knows."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 5))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)
        self.seen, self.history = 0, []

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.seen += len(batch[0])
        return cross_entropy(model, batch)

    def step(self, task: Task, batch: Any) -> tuple[Tensor, int]:
        self.optimizer.zero_grad()
        loss = self.loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.average.update_parameters(self.model)
        self.history.append(loss.item())
        return loss.detach(), self.seen


def trainer() -> Program:
    owner = Trainer()
    return Program(Task(owner.model, owner.optimizer, owner.loss, None, None, owner.step), tables())


def counting() -> Program:
    """A model with a counter, a cache and a plain tensor that every pass changes."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.count, self.cache, self.last = nn.Linear(10, 5), 0, {}, torch.zeros(5)

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.cache[self.count] = x.shape
            y = self.net(x)
            self.last.copy_(y.detach().mean(0))
            return y

    model = Counting()
    return Program(Task(model, torch.optim.SGD(model.parameters(), 0.1), cross_entropy, None, None, plain), tables())


def unoptimized() -> Program:
    return Program(Task(nn.Linear(10, 5), [], cross_entropy), tables())


def deep_residual() -> Program:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.net = nn.LayerNorm(10), nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.net(self.norm(x))

    model = nn.Sequential(*[Residual() for _ in range(16)], nn.Linear(10, 5))
    return Program(Task(model, torch.optim.SGD(model.parameters(), 0.1), cross_entropy), tables(), {"init": "random"})


def frozen_backbone() -> Program:
    """A pretrained part held in evaluation mode by its own train()."""

    class Tuned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU()).requires_grad_(False)
            self.head = nn.Linear(16, 5)

        def train(self, mode: bool = True) -> Tuned:
            super().train(mode)
            self.body.eval()
            return self

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.body(x)
            return self.head(x)

    model = Tuned()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)  # frozen ones are in it, too
    return Program(Task(model, optimizer, cross_entropy, None, None, plain), tables(), {"init": "pretrained"})


def experts() -> Program:
    """One expert per row: some get no row of a batch, and no gradient."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(10, 12), nn.ModuleList(nn.Linear(10, 5) for _ in range(12))

        def forward(self, x: Tensor) -> Tensor:
            weights, chosen = self.router(x).softmax(-1).max(-1)
            out = torch.zeros(len(x), 5)
            for index, expert in enumerate(self.experts):
                rows = chosen == index
                if rows.any():
                    out[rows] = expert(x[rows])
            return out * weights[:, None]

    model = Experts()
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), cross_entropy, None, None, plain), tables())


def multi_task() -> Program:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 5), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = functional.dropout(functional.gelu(self.body(x)), 0.1, self.training)
            return {"class": self.one(h), "value": self.two(h)}

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        made = net(batch[0])
        return functional.cross_entropy(made["class"], batch[1]) + functional.mse_loss(
            made["value"][:, 0], batch[0][:, 0]
        )

    model = Two()
    return Program(Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn, None, None, plain), tables())


HEALTHY: dict[str, Callable[[], Program]] = {
    make.__name__: make
    for make in (
        gpt, gpt_from_zero, cnn, lstm, gan, gan_one_side, bert, amp, vae, autoencoder_without_root, contrastive, clip,
        byol, simsiam, vq, lora, linear_probe, seq2seq, vit, graph, detection, regression, bf16_parameters, lbfgs,
        adversarial_autoencoder, packed, time_first, prefix_lm, accumulated, chunked, every_fourth, diffusion,
        causal_convolution, sparse_autoencoder, parametrized, trainer, counting, unoptimized, deep_residual,
        frozen_backbone, experts, multi_task,
    )
}  # fmt: skip


def build(name: str) -> Program:
    """A healthy program, the same every time."""
    from programs_odd import ODD

    torch.manual_seed(0)
    return (HEALTHY | ODD)[name]()
