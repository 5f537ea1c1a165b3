"""Rows of a tokenized dataset, each one example, joined into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steadyrun.program.supervision import IGNORED, Ids, SpecialTokens

_FIRST = 2  # ids that show what a list holds


def is_example(row: object) -> bool:
    """Whether a mapping holds the ids and labels of one example, as the rows of a tokenized dataset do."""
    if not isinstance(row, Mapping) or not {"input_ids", "labels"} <= row.keys():
        return False
    return all(_is_line(row[name]) for name in ("input_ids", "labels"))


def _is_line(given: Any) -> bool:
    if isinstance(given, list):
        return bool(given) and all(isinstance(each, int) for each in given[:_FIRST])
    return getattr(given, "ndim", None) == 1


def joined_examples(rows: Sequence[Mapping[str, Any]], special: SpecialTokens) -> dict[str, Ids]:
    """A batch of examples of different lengths, padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    filled = {"input_ids": special.pad or 0, "labels": IGNORED, "attention_mask": 0}
    batch = {name: np.full((len(rows), width), value, np.int64) for name, value in filled.items()}
    for index, row in enumerate(rows):
        length = len(row["input_ids"])
        for name in ("input_ids", "labels"):
            batch[name][index, : len(row[name])] = np.asarray(row[name])
        batch["attention_mask"][index, :length] = 1
    return batch
