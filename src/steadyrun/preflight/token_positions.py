"""The tokens that a model's scores belong to, and the positions of its padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.forward_pass import ModelCall
from steadyrun.preflight.input_edits import tensors_in
from steadyrun.probes.loss_graph import Labels, LossGraph
from steadyrun.probes.targets import alignment, per_row

# Targets as rows aligned with the tokens, for any layout of the texts.


@dataclass(frozen=True)
class Pair:
    """Rows of embedded ids, the targets aligned with them, and the ignored label."""

    tokens: Tensor
    targets: Tensor
    ignored: int

    @property
    def keep(self) -> Tensor:
        return self.targets != self.ignored

    @property
    def graph(self) -> LossGraph:
        """A graph of this pair alone."""
        labels = Labels(self.targets, 0, self.ignored, "mean")
        return LossGraph(labels=[labels], tokens=[self.tokens])


def pairs(graph: LossGraph) -> list[Pair]:
    """Every loss with every embedding that fits it: texts as rows, as columns, or as columns in one of them."""
    aligned = []
    for labels in graph.labels:
        for tokens in graph.tokens:
            for ids, targets in _laid_out(labels, tokens):
                if ids.shape[1] > 1:
                    aligned.append(Pair(ids, targets, labels.ignore_index))
    return aligned


def _laid_out(labels: Labels, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    turned = tokens.t()
    rows, mixed = per_row(labels.targets, *tokens.shape), per_row(labels.targets, *turned.shape)
    columns = labels.targets.reshape(tokens.shape).t() if labels.targets.numel() == tokens.numel() else None
    beside = [(tokens, rows), (turned, mixed), (turned, columns)]
    return [(ids, targets) for ids, targets in beside if targets is not None]


def input_tensors(call: ModelCall) -> list[Tensor]:
    """Every tensor among the model's inputs, each once."""
    return list({id(tensor): tensor for tensor in tensors_in([call.args, call.kwargs])}.values())


def next_token_shares(bench: Bench, tokens: Tensor) -> Tensor | None:
    """The fractions of targets equal to the input, the next and the one after it; None if unknown."""
    if tokens.dim() != 2 or tokens.is_floating_point():
        return None
    graph = bench.first_pass().graph
    return alignment(LossGraph(labels=graph.labels, tokens=[tokens]))


def supervised(bench: Bench, rows: int, width: int) -> Tensor | None:
    """A mask of targets in the loss, in rows aligned with the scores; None if they do not align."""
    for labels in bench.first_pass().graph.labels:
        targets = per_row(labels.targets, rows, width)
        if targets is not None:
            keep = targets != labels.ignore_index
            whole = torch.zeros(rows, width, dtype=torch.bool, device=keep.device)
            whole[:, : keep.shape[1]] = keep
            return whole
    return None


class _Embeddings(TorchFunctionMode):
    """Passes every embedding lookup through `change(ids, vectors)`."""

    def __init__(self, change: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self._change = change

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        vectors = function(*args, **(kwargs or {}))
        if function is torch.nn.functional.embedding:
            ids = args[0] if args else (kwargs or {}).get("input")
            if isinstance(ids, Tensor) and isinstance(vectors, Tensor):
                return self._change(ids, vectors)
        return vectors


@contextmanager
def embedding(change: Callable[[Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Change the outputs of embedding tables within the body."""
    with _Embeddings(change):
        yield


class _Calls(TorchFunctionMode):
    """Observes every call of torch from Python."""

    def __init__(self, note: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note(function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


@contextmanager
def noting(note: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> Iterator[None]:
    """Call `note(function, args, kwargs)` for every call of torch within the body."""
    with _Calls(note):
        yield
