"""Small training programs of many kinds, as tasks: the healthy zoo, and programs with a bug in their data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import steadyrun

VOCAB, WIDTH, LENGTH, ROWS = 32, 16, 12, 8


class TinyGPT(nn.Module):
    """One causal block; ids in, scores of every position out."""

    def __init__(self, vocab: int = VOCAB, causal: bool = True, dropout: float = 0.0, positions: int = 64) -> None:
        super().__init__()
        self.causal = causal
        self.tokens, self.positions = nn.Embedding(vocab, WIDTH), nn.Embedding(positions, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        here = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        mask = torch.triu(torch.full((ids.shape[1],) * 2, -math.inf), 1) if self.causal else None
        return self.head(self.norm(self.block(here, src_mask=mask)))


class Out:
    def __init__(self, loss: Tensor | None, logits: Tensor) -> None:
        self.loss, self.logits = loss, logits


class Shifting(nn.Module):
    """As transformers has it: labels are the inputs, the model shifts them."""

    def __init__(self, inner: TinyGPT) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Out:
        logits = self.inner(input_ids)
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1))
        return Out(loss, logits)


def task(model: nn.Module, loss_fn: Callable[..., Any], loader: Any, **more: Any) -> steadyrun.Task:
    optimizer = more.pop("optimizer", None) or torch.optim.AdamW(model.parameters(), lr=1e-3)
    return steadyrun.Task(model, optimizer, loss_fn, loader=loader, **more)


def scores(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def classify(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def texts(count: int = 6, width: int = LENGTH + 1) -> list[Tensor]:
    return [torch.randint(2, VOCAB, (ROWS, width)) for _ in range(count)]


def shifted() -> list[tuple[Tensor, Tensor]]:
    return [(t[:, :-1], t[:, 1:]) for t in texts()]


def points(count: int = 6, rows: int = 16, classes: int = 4) -> list[tuple[Tensor, Tensor]]:
    return [(x, x[:, :classes].argmax(1)) for x in torch.randn(count, rows, 10)]


def mlp(out: int = 4, inside: int = 10) -> nn.Module:
    return nn.Sequential(nn.Linear(inside, 24), nn.ReLU(), nn.Linear(24, out))


# -- the healthy zoo --------------------------------------------------------------------------------


def gpt() -> steadyrun.Task:
    return task(TinyGPT(dropout=0.1), scores, shifted(), config={"causal": True, "vocab_size": VOCAB, "init": "random"})


def hf_style() -> steadyrun.Task:
    batches = [{"input_ids": t, "attention_mask": torch.ones_like(t), "labels": t} for t in texts()]
    return task(Shifting(TinyGPT()), lambda model, batch: model(**batch).loss, batches)


def padded() -> steadyrun.Task:
    """Padding masked by hand after a loss without reduction."""

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        x, y = t[:, :-1], t[:, 1:]
        losses = functional.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        mask = (y != 0) | (x != 0)
        return (losses * mask).sum() / mask.sum()

    return task(TinyGPT(), loss_fn, with_padding(), config={"pad_id": 0, "eos_id": 1, "causal": True})


def weighted_padding() -> steadyrun.Task:
    weight = torch.ones(VOCAB)
    weight[0] = 0

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        return functional.cross_entropy(model(t[:, :-1]).transpose(1, 2), t[:, 1:], weight=weight)

    return task(TinyGPT(), loss_fn, with_padding(), config={"pad_id": 0, "eos_id": 1})


def with_padding(eos: int = 1, pad: int = 0) -> list[Tensor]:
    rows = texts()
    for t in rows:
        for row, length in zip(t, range(4, 4 + ROWS), strict=True):
            row[length], row[length + 1 :] = eos, pad
    return rows


def masked_lm() -> steadyrun.Task:
    batches = []
    for t in texts():
        hidden = torch.rand(t.shape) < 0.3
        batches.append((t.masked_fill(hidden, 1), torch.where(hidden, t, -100)))
    return task(TinyGPT(causal=False), scores, batches, config={"eos_id": 2})


def token_autoencoder() -> steadyrun.Task:
    return task(TinyGPT(causal=False), scores, [(t, t) for t in texts()])


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module] = nn.GRU) -> None:
        super().__init__()
        self.tokens, self.cell, self.head = nn.Embedding(VOCAB, WIDTH), kind(WIDTH, WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.cell(self.tokens(ids))[0])


def gru() -> steadyrun.Task:
    """Time first."""
    batches = [(x.t(), y.t()) for x, y in shifted()]
    return task(Recurrent(), scores, batches)


def lstm() -> steadyrun.Task:
    return task(Recurrent(nn.LSTM), scores, [(x.t(), y.t()) for x, y in shifted()])


def classifier() -> steadyrun.Task:
    data = TensorDataset(torch.randn(200, 10), torch.randint(0, 4, (200,)))
    loader = DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(5))
    held_out = DataLoader(TensorDataset(torch.randn(64, 10), torch.randint(0, 4, (64,))), 16)
    return task(mlp(), classify, loader, val_loader=held_out)


def cnn() -> steadyrun.Task:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    batches = [{"image": torch.randn(8, 3, 12, 12), "label": torch.randint(0, 5, (8,))} for _ in range(5)]
    return task(model, lambda m, b: functional.cross_entropy(m(b["image"]), b["label"], label_smoothing=0.1), batches)


def segmentation() -> steadyrun.Task:
    batches = [(torch.randn(4, 3, 8, 8), torch.randint(-1, 5, (4, 8, 8))) for _ in range(4)]
    return task(nn.Conv2d(3, 5, 1), lambda m, b: functional.cross_entropy(m(b[0]), b[1], ignore_index=-1), batches)


def regression() -> steadyrun.Task:
    batches = [(x, x[:, :1]) for x in torch.randn(5, 16, 10)]
    return task(mlp(1), lambda m, b: functional.mse_loss(m(b[0]), b[1]), batches)


def autoencoder() -> steadyrun.Task:
    return task(mlp(10), lambda m, x: ((m(x) - x) ** 2).sum(), list(torch.randn(5, 16, 10)))


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(10, 8), nn.Linear(4, 10)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log = self.inside(x).chunk(2, 1)
        return mean, log

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log = self.encode(x)
        return self.outside(mean + torch.randn_like(mean) * (0.5 * log).exp()), mean, log


def vae() -> steadyrun.Task:
    def loss_fn(model: nn.Module, x: Tensor) -> Tensor:
        out, mean, log = model(x)
        return functional.mse_loss(out, x) - 0.5 * (1 + log - mean**2 - log.exp()).mean()

    return task(VAE(), loss_fn, list(torch.randn(5, 16, 10)))


def no_root_call() -> steadyrun.Task:
    return task(VAE(), lambda m, x: m.encode(x)[0].pow(2).mean(), list(torch.randn(5, 16, 10)))


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maker, self.judge = mlp(10, 4), mlp(1)

    def forward(self, real: Tensor) -> Tensor:
        fake = self.maker(torch.randn(real.shape[0], 4))
        return torch.cat([self.judge(real), self.judge(fake)])


def gan() -> steadyrun.Task:
    model = Gan()
    optimizers = [torch.optim.Adam(part.parameters()) for part in (model.maker, model.judge)]

    def loss_fn(model: nn.Module, real: Tensor) -> Tensor:
        logits = model(real)
        truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
        return functional.binary_cross_entropy_with_logits(logits, truth)

    return task(model, loss_fn, list(torch.randn(5, 16, 10)), optimizer=optimizers)


def contrastive() -> steadyrun.Task:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        one, other = (functional.normalize(model(view), dim=1) for view in batch)
        return functional.cross_entropy(one @ other.T / 0.1, torch.arange(len(one)))

    return task(mlp(8), loss_fn, [(x, x + 0.1 * torch.randn_like(x)) for x in torch.randn(5, 16, 10)])


def multi_task() -> steadyrun.Task:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        out = model(batch["x"])
        return functional.cross_entropy(out[:, :3], batch["kind"]) + 0.5 * functional.mse_loss(out[:, 3], batch["size"])

    batches = [{"x": torch.randn(8, 10), "kind": torch.randint(0, 3, (8,)), "size": torch.randn(8)} for _ in range(5)]
    return task(mlp(), loss_fn, batches)


@dataclass
class Scene:
    image: Tensor
    boxes: list[Tensor]
    kinds: list[Tensor]


def detection() -> steadyrun.Task:
    def loss_fn(model: nn.Module, scene: Scene) -> Tensor:
        out = model(scene.image)
        losses = [
            functional.cross_entropy(row.view(1, 4), kind[:1]) for row, kind in zip(out, scene.kinds, strict=True)
        ]
        return torch.stack(losses).mean()

    def scene() -> Scene:
        counts = torch.randint(1, 4, (4,)).tolist()
        return Scene(
            torch.randn(4, 10), [torch.rand(n, 4) for n in counts], [torch.randint(0, 4, (n,)) for n in counts]
        )

    return task(mlp(), loss_fn, [scene() for _ in range(5)])


def zero_head() -> steadyrun.Task:
    """A head that begins with zeros: at first no output depends on any input."""
    model = mlp()
    nn.init.zeros_(model[2].weight)  # type: ignore[index,arg-type]
    nn.init.zeros_(model[2].bias)  # type: ignore[index,arg-type]
    return task(model, classify, points())


def bf16() -> steadyrun.Task:
    batches = [(x.bfloat16(), y) for x, y in points()]
    return task(mlp().bfloat16(), classify, batches)


def frozen_backbone() -> steadyrun.Task:
    model = mlp()
    model[0].requires_grad_(False)  # type: ignore[index]
    return task(model, classify, points(), optimizer=torch.optim.SGD(model[2].parameters(), lr=0.1))  # type: ignore[index]


def graph_nodes() -> steadyrun.Task:
    """One graph for training and validation: the mask tells them apart."""
    data = {"x": torch.randn(40, 10), "y": torch.randint(0, 4, (40,)), "mask": torch.rand(40) < 0.5}

    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch["x"])[batch["mask"]], batch["y"][batch["mask"]])

    return task(mlp(), loss_fn, [data], val_loader=[data])


def one_batch_by_heart() -> steadyrun.Task:
    return task(mlp(), classify, points(1) * 8)


def seq2seq() -> steadyrun.Task:
    """An autoencoder of texts with a decoder that is given what comes before."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder, self.head = TinyGPT(causal=False), Recurrent(), nn.Linear(2 * VOCAB, VOCAB)

        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            code = self.encoder(source).mean(1, keepdim=True).expand(-1, given.shape[1], -1)
            return self.head(torch.cat([self.decoder(given.t()).transpose(0, 1), code], -1))

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        given = torch.cat([torch.zeros_like(t[:, :1]), t[:, :-1]], 1)
        return functional.cross_entropy(model(t, given).flatten(0, 1), t.flatten())

    return task(Both(), loss_fn, texts(), config={"causal": None})


def empty_optimizer() -> steadyrun.Task:
    return task(mlp(), classify, points(), optimizer=[])


def scalars_and_strings() -> steadyrun.Task:
    batches = [{"x": x, "y": y, "weight": torch.tensor(1.0), "name": "a", "none": None} for x, y in points()]
    return task(mlp(), lambda m, b: b["weight"] * functional.cross_entropy(m(b["x"]), b["y"]), batches)


ZOO: dict[str, Callable[[], steadyrun.Task]] = {
    make.__name__: make
    for make in (
        gpt,
        hf_style,
        padded,
        weighted_padding,
        masked_lm,
        token_autoencoder,
        gru,
        lstm,
        classifier,
        cnn,
        segmentation,
        regression,
        autoencoder,
        vae,
        no_root_call,
        gan,
        contrastive,
        multi_task,
        detection,
        zero_head,
        bf16,
        frozen_backbone,
        graph_nodes,
        one_batch_by_heart,
        seq2seq,
        empty_optimizer,
        scalars_and_strings,
    )
}
