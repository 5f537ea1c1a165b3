"""Which tokens of the first batches are learned: counts for the questions, and a few examples as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.probes.row_queue import HostArray, ProbeRow, Values
from steadyrun.probes.scalars import is_tensor
from steadyrun.program.supervision import SpecialTokens, Supervision, TokenBatch, example_of, stretches, token_batch

_BATCHES = 20  # a mask is made by code: what it does shows in the first batches
_SHOWN = 3  # examples that are kept as text
_NAMES = ("input_ids", "labels")  # of a pair


class LearnedTokens:
    """Looks at the batches that are given to `run.step`, until it has seen enough.

    With a tokenizer and `text`, the first examples are kept as text. `sizes` are those of the rows of tokens in tables
    that are frozen.
    """

    def __init__(
        self,
        tokenizer: Any,
        config: Mapping[str, Any],
        save: Callable[[dict[str, Any]], None],
        *,
        text: bool,
        sizes: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self._special = SpecialTokens.of(tokenizer, config)
        self._supervision = Supervision(self._special, tokenizer, sizes=sizes)
        self._save = save
        self._left = _BATCHES
        self._tokenizer = tokenizer if text else None
        self._shown: list[list[list[Any]]] = []

    @property
    def looks(self) -> bool:
        """Whether it has not seen enough yet."""
        return self._left > 0

    def look(self, batch: object, row: ProbeRow) -> None:
        """Count a batch; one on an accelerator when it has arrived on the host."""
        if not self.looks:
            return
        self._left -= 1
        given = _named(batch)
        if given is not None and given["input_ids"].device.type != "cpu":
            import torch

            names, shape = list(given), given["input_ids"].shape

            def arrived(array: HostArray) -> Values:
                self._count(dict(zip(names, array.reshape(len(names), *shape), strict=True)))
                return {}

            row.put_many(torch.stack([tensor.detach().long() for tensor in given.values()]), arrived)
        else:
            self._count(batch)

    def _count(self, batch: object) -> None:
        tokens = token_batch(batch, self._special)
        if tokens is None:
            self._left = 0  # not a language model's batches
            return
        self._supervision.add(tokens)
        self._keep_text(tokens)
        self._save(self._supervision.facts() | ({"shown": self._shown} if self._shown else {}))

    def _keep_text(self, tokens: TokenBatch) -> None:
        rows = range(len(tokens.ids)) if self._tokenizer is not None else ()
        for row in rows[: _SHOWN - len(self._shown)]:
            parts = stretches(example_of(tokens, row, self._tokenizer))
            self._shown.append([[part.text, part.learned, part.role] for part in parts])


def _named(batch: object) -> dict[str, Any] | None:
    """The tensors of a batch by the names of transformers; those of another shape than the tokens are left out."""
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        found = {name: batch[name] for name in batch if is_tensor(batch[name])}  # type: ignore[index, attr-defined]
        found = {name: tensor for name, tensor in found.items() if not tensor.is_floating_point()}
    elif isinstance(batch, list | tuple) and len(batch) == len(_NAMES) and all(map(is_tensor, batch)):
        found = dict(zip(_NAMES, batch, strict=True))
    else:
        return None
    tokens = found.get("input_ids")
    if tokens is None or tokens.is_floating_point():
        return None
    return {name: tensor for name, tensor in found.items() if tensor.shape == tokens.shape}
