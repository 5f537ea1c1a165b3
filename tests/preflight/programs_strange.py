"""Healthy programs with unusual ways: layouts, losses, loaders, modules that most programs do not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from programs_data import (
    ROWS,
    VOCAB,
    WIDTH,
    TinyGPT,
    classify,
    mlp,
    points,
    scores,
    shifted,
    task,
    texts,
)
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import steadyrun


class Tied(TinyGPT):
    """Head and embedding are one, the block is checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        here = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.norm(checkpoint(self.block, here, mask, use_reentrant=False)))


def tied_and_checkpointed() -> steadyrun.Task:
    return task(Tied(), scores, shifted())


class Low(nn.Module):
    """LoRA: the second factor begins with zeros, the rest is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.base = mlp().requires_grad_(False)
        self.down, self.up = nn.Linear(10, 2, bias=False), nn.Linear(2, 4, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def lora() -> steadyrun.Task:
    return task(Low(), classify, points())


def functional_table() -> steadyrun.Task:
    """Fields whose ids are moved by an offset before one shared table is read."""

    class Fields(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(30, WIDTH) * 0.02)
            self.bag = nn.EmbeddingBag(30, WIDTH, sparse=True)
            self.head = nn.Linear(2 * WIDTH, 2)

        def forward(self, ids: Tensor) -> Tensor:
            moved = ids + torch.tensor([0, 10, 20])
            return self.head(torch.cat([functional.embedding(moved, self.table).sum(1), self.bag(moved)], 1))

    batches = [(torch.randint(0, 10, (16, 3)), torch.randint(0, 2, (16,))) for _ in range(5)]
    model = Fields()
    dense = torch.optim.Adam([parameter for name, parameter in model.named_parameters() if "bag" not in name])
    return task(model, classify, batches, optimizer=[dense, torch.optim.SparseAdam(list(model.bag.parameters()))])


def speech() -> steadyrun.Task:
    """CTC: targets of their own length, class 0 is the blank."""

    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        sound, text, lengths = batch
        scores = model(sound).log_softmax(-1).transpose(0, 1)
        return functional.ctc_loss(scores, text, torch.full((len(sound),), sound.shape[1]), lengths)

    batches = [(torch.randn(4, 20, 10), torch.randint(1, 4, (4, 5)), torch.tensor([5, 4, 3, 5])) for _ in range(4)]
    return task(mlp(), loss_fn, batches)


def triplets() -> steadyrun.Task:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        return functional.triplet_margin_loss(*(model(part) for part in batch))

    return task(mlp(8), loss_fn, [tuple(torch.randn(3, 16, 10)) for _ in range(4)])


def policy_gradient() -> steadyrun.Task:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        chosen = model(batch["seen"]).log_softmax(1).gather(1, batch["done"][:, None])
        return -(chosen.squeeze(1) * batch["reward"]).mean()

    batches = [
        {"seen": torch.randn(16, 10), "done": torch.randint(0, 4, (16,)), "reward": torch.randn(16)} for _ in range(4)
    ]
    return task(mlp(), loss_fn, batches)


def diffusion() -> steadyrun.Task:
    """Noise and times are drawn in the loss function."""

    def loss_fn(model: nn.Module, x: Tensor) -> Tensor:
        noise, time = torch.randn_like(x), torch.rand(len(x), 1)
        return functional.mse_loss(model(torch.cat([x * (1 - time) + noise * time, time], 1)), noise)

    return task(mlp(10, 11), loss_fn, list(torch.randn(5, 16, 10)))


class Counting(nn.Module):
    """Counts its calls and keeps a moving mean beside its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.calls, self.mean = mlp(), 0, 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * float(x.mean())
        return self.inside(x)


def side_effects() -> steadyrun.Task:
    return task(Counting(), classify, points())


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(64):
            x = torch.randn(10)
            yield {"x": x, "y": x[:4].argmax(), "text": "word"}


def stream() -> steadyrun.Task:
    loader = DataLoader(Stream(), 8)
    return task(mlp(), lambda m, b: functional.cross_entropy(m(b["x"]), b["y"]), loader, val_loader=loader)


def generator() -> steadyrun.Task:
    return task(mlp(), classify, (batch for batch in points()))


def arrays() -> steadyrun.Task:
    """numpy batches, turned into tensors by the loss function."""

    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(torch.from_numpy(batch[0])), torch.from_numpy(batch[1]))

    return task(mlp(), loss_fn, [(x.numpy(), y.numpy()) for x, y in points()])


def probabilities_as_targets() -> steadyrun.Task:
    batches = [(x, functional.softmax(x[:, :4], 1)) for x, _ in points()]
    return task(mlp(), classify, batches)


def binary() -> steadyrun.Task:
    batches = [(x, (x[:, :1] > 0).float()) for x in torch.randn(5, 16, 10)]
    return task(mlp(1), lambda m, b: functional.binary_cross_entropy_with_logits(m(b[0]), b[1]), batches)


def rows_of_changing_length() -> steadyrun.Task:
    batches = [torch.randint(2, VOCAB, (ROWS, width + 1)) for width in (5, 9, 7, 12, 3, 20)]
    return task(TinyGPT(), lambda m, t: scores(m, (t[:, :-1], t[:, 1:])), batches)


def one_row() -> steadyrun.Task:
    return task(TinyGPT(), scores, [(x[:1], y[:1]) for x, y in shifted()])


def empty_tensors() -> steadyrun.Task:
    batches = [(x, y, torch.empty(0, 3), torch.tensor(2), torch.empty(0, dtype=torch.long)) for x, y in points()]
    return task(mlp(), classify, batches)


def frozen_and_no_gradient() -> steadyrun.Task:
    return task(mlp().requires_grad_(False), classify, points())


def odd_inputs() -> steadyrun.Task:
    """Sparse and complex tensors beside plain ones."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = mlp()

        def forward(self, graph: Tensor, x: Tensor, wave: Tensor) -> Tensor:
            return self.inside(torch.sparse.mm(graph, x) + wave.abs())

    batches = [(torch.eye(16).to_sparse(), x, torch.randn(16, 10, dtype=torch.complex64), y) for x, y in points()]
    return task(Odd(), lambda m, b: functional.cross_entropy(m(*b[:3]), b[3]), batches)


def compiled() -> steadyrun.Task:
    model = mlp()
    return task(torch.compile(model, backend="eager"), classify, points())  # type: ignore[arg-type]


def several_heads() -> steadyrun.Task:
    """The next token and the one after it."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.later = TinyGPT(), nn.Linear(VOCAB, VOCAB)

        def forward(self, ids: Tensor) -> dict[str, Tensor]:
            out = self.trunk(ids)
            return {"next": out, "later": self.later(out)}

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        out = model(t[:, :-2])
        one = functional.cross_entropy(out["next"].flatten(0, 1), t[:, 1:-1].flatten())
        return one + 0.3 * functional.cross_entropy(out["later"].flatten(0, 1), t[:, 2:].flatten())

    return task(Two(), loss_fn, texts(), config={"causal": True})


def tagging() -> steadyrun.Task:
    """A class for every token, with few classes and few tokens."""
    batches = [(t % 4, (t // 4) % 4) for t in texts()]
    return task(TinyGPT(4), scores, batches)


def imbalanced() -> steadyrun.Task:
    y = (torch.rand(640) < 0.01).long()
    loader = DataLoader(TensorDataset(torch.randn(640, 10), y), 16, shuffle=True)
    return task(mlp(2), classify, loader)


def oversampled() -> steadyrun.Task:
    data = TensorDataset(torch.randn(64, 10), (torch.arange(64) < 6).long())
    weights = torch.where(torch.arange(64) < 6, 10.0, 1.0)
    sampler = torch.utils.data.WeightedRandomSampler(weights.tolist(), 128)
    return task(mlp(2), classify, DataLoader(data, 16, sampler=sampler))


def noisy_labels() -> steadyrun.Task:
    """A tenth of the labels is drawn anew at every pass, on purpose."""

    class Relabelled:
        def __init__(self) -> None:
            self.x = torch.randn(128, 10)
            self.y = self.x[:, :4].argmax(1)

        def __iter__(self) -> Iterator[Any]:
            new = torch.rand(128) < 0.1
            labels = torch.where(new, torch.randint(0, 4, (128,)), self.y)
            yield from zip(self.x.split(16), labels.split(16), strict=True)

    return task(mlp(), classify, Relabelled())


def sampled_windows() -> steadyrun.Task:
    """Windows of one text drawn at random, for training and validation, as nanoGPT does; the text is small."""
    text = np.random.default_rng(0).integers(2, VOCAB, 2000)

    class Windows:
        def __init__(self, start: int, end: int) -> None:
            self.start, self.end = start, end

        def __iter__(self) -> Iterator[Any]:
            for _ in range(8):
                places = torch.randint(self.start, self.end - 13, (ROWS,))
                yield tuple(
                    torch.stack([torch.from_numpy(text[p + d : p + d + 12]) for p in places.tolist()]) for d in (0, 1)
                )

        def __len__(self) -> int:
            return 8

    return task(TinyGPT(), scores, Windows(0, 1800), val_loader=Windows(1800, 2000), config={"causal": True})


STRANGE: dict[str, Callable[[], steadyrun.Task]] = {
    make.__name__: make
    for make in (
        tied_and_checkpointed,
        lora,
        functional_table,
        speech,
        triplets,
        policy_gradient,
        diffusion,
        side_effects,
        stream,
        generator,
        arrays,
        probabilities_as_targets,
        binary,
        rows_of_changing_length,
        one_row,
        empty_tensors,
        frozen_and_no_gradient,
        odd_inputs,
        compiled,
        several_heads,
        tagging,
        imbalanced,
        oversampled,
        noisy_labels,
        sampled_windows,
    )
}
