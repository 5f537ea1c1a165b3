"""One call of an operation below autograd: what it reads, what it writes, and which values are reliable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from steadyrun.replay.hunt.finite_range import floating

# These return uninitialised memory; `resize` and `set` may as well.
UNINITIALISED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "resize",
        "resize_as",
        "set",
    }
)
# These write to their first argument without reading it.
_WRITES_ONLY = frozenset(
    {"fill", "zero", "copy", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "cauchy"}
)
# These share memory with their input, although their schemas do not say so.
_VIEWS = frozenset(("_unsafe_view", "_reshape_alias"))
# After this many results these return bookkeeping, which may contain garbage or intended infinities.
_RESULTS = {
    "_scaled_dot_product": 1,
    "_flash_attention_forward": 1,
    "_efficient_attention_forward": 1,
    "nll_loss": 1,
    "_ctc_loss": 1,
    "_cudnn_ctc_loss": 1,
    "_cudnn_rnn_flatten_weight": 0,
    "_cudnn_rnn": 3,
}
# Memory with unfilled gaps; its values are also inputs under other names.
_PADDED = frozenset({"weight_buf", "reserve"})
# Integers that take part in the arithmetic, unlike dimensions and sizes.
_OPERANDS = frozenset({"self", "other", "scalar", "exponent", "value", "alpha", "correction"})


@dataclass(frozen=True)
class Signature:
    """The schema of an operation; `by_item`: the i-th result belongs to the i-th entry of each list."""

    name: str
    arguments: tuple[str, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]
    view: bool
    by_item: bool
    trusted: int


@dataclass(frozen=True)
class OperationCall:
    """An operation with its arguments."""

    signature: Signature
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return self.signature.name

    def inputs(self, item: int) -> Iterator[tuple[str, Any]]:
        """The tensors and numbers from which result `item` was computed."""
        for name in self.signature.read:
            argument = self.arguments.get(name)
            if isinstance(argument, list | tuple) and argument and isinstance(argument[0], Tensor | float):
                yield from _entries(name, argument, item if self.signature.by_item else None)
            elif isinstance(argument, Tensor | float) or (type(argument) is int and name in _OPERANDS):
                yield name, argument

    def written(self) -> list[tuple[int, Tensor]]:
        """The tensors that the operation changes in place, with their index among the results."""
        return _numbered([self.arguments.get(name) for name in self.signature.written])

    def results(self, output: Any) -> list[tuple[int, Tensor]]:
        """The tensors that it wrote or returned, each once."""
        fresh = output[: self.signature.trusted] if isinstance(output, list | tuple) else output
        results: dict[int, tuple[int, Tensor]] = {}
        for item, tensor in [*self.written(), *_numbered([fresh])]:
            results.setdefault(id(tensor), (item, tensor))
        return list(results.values())


def describe(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperationCall:
    """A call from the dispatcher's arguments."""
    signature = signature_of(func)
    return OperationCall(signature, {**dict(zip(signature.arguments, args, strict=False)), **kwargs})


@lru_cache(maxsize=4096)
def signature_of(func: Any) -> Signature:
    """Read the schema of an operation once; without a schema only the name is known."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return Signature(str(func), tuple(f"input{i}" for i in range(16)), (), (), False, False, sys.maxsize)
    raw = schema.name.rpartition("::")[2]
    name = raw.removeprefix("_foreach_").removesuffix("_")
    arguments = tuple(argument.name for argument in schema.arguments)
    written = tuple(argument.name for argument in schema.arguments if _is_written(raw, argument))
    unread = {
        argument.name
        for argument in schema.arguments
        if argument.name in written and (argument.kwarg_only or _blind(name))
    }
    return Signature(
        name=name,
        arguments=arguments,
        written=written,
        read=tuple(name for name in arguments if name not in unread and name not in _PADDED),
        view=raw in _VIEWS
        or any(returned.alias_info and not returned.alias_info.is_write for returned in schema.returns),
        by_item=raw.startswith(("_foreach_", "_fused_", "_amp_foreach")),
        trusted=_trusted(raw),
    )


def _trusted(raw: str) -> int:
    kept = [count for start, count in _RESULTS.items() if raw.startswith(start) and "backward" not in raw]
    return kept[0] if kept else sys.maxsize


def _is_written(raw: str, argument: Any) -> bool:
    if argument.alias_info and argument.alias_info.is_write:
        return True
    # Batch normalisation updates its running statistics, although its schema does not say so.
    return "batch_norm" in raw and "backward" not in raw and argument.name in ("running_mean", "running_var")


def _blind(name: str) -> bool:
    return name in _WRITES_ONLY or name in UNINITIALISED


def _entries(name: str, values: Any, item: int | None) -> Iterator[tuple[str, Any]]:
    if item is None:
        yield from ((f"{name}[{index}]", value) for index, value in enumerate(values))
    elif item < len(values):
        yield name, values[item]


def _numbered(values: list[Any]) -> list[tuple[int, Tensor]]:
    numbered = []
    for value in values:
        listed = value if isinstance(value, list | tuple) else [value]
        numbered += [(item, tensor) for item, tensor in enumerate(listed) if floating(tensor)]
    return numbered
