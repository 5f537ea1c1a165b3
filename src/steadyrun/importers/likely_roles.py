"""Find roles that the names of a log do not give: by its file, the names beside it or the course of the numbers.

Only for a log in which nothing is known as a loss, or in which the name that fits best is rarely printed. A name that
may be a loss, such as `cost`, `error` or `train`, is one if its numbers come down; if they do not, it may as well be an
accuracy, and gets no role. A `score` that comes down is one only beside an accuracy: alone it may be that of a game.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from steadyrun.importers.log_rows import LogRows
from steadyrun.importers.log_series import Mapped
from steadyrun.importers.loss_parts import NONE
from steadyrun.importers.row_marks import floats, present
from steadyrun.importers.series_roles import (
    HELD_OUT,
    KINDS,
    NEUTRAL,
    SCORE,
    SMOOTH,
    TRAIN,
    name_of_file,
    rank,
    spellings,
)
from steadyrun.signals.success import HIGHER, better

_MONITOR = frozenset({"r", "l", "t"})  # reward, length and time of an episode, as Gym and stable-baselines write them
_LETTERS = ("L", "J")  # a loss in formulas, of which `L_ctc` is a term
_MAYBE = (
    frozenset({"cost", "costs", "objective", "criterion"}),
    frozenset({"error", "errors", "err", "residual", "residuals"}),
    frozenset({"mae", "rmse", "mape", "rmsle", "bpc", "bpb", "bpd", "bits"}),
    frozenset({"total"}),
)  # the likeliest first
_SCORES = frozenset({"score", "scores"})
_OF_CLASSES = frozenset({"accuracy", "acc", "f1", "precision", "recall"})
_NAMELESS = re.compile(r"column_\d+|value")  # what columns without a name are called
_BESIDE = TRAIN | HELD_OUT | NEUTRAL | SMOOTH
_FEWEST = 5  # points that show a course
_RARE = 0.1  # of the points of another loss: one with fewer, and which begins late, is not the loss of the run
_END = 0.2  # of the points at either end, whose medians are compared


def likely_roles(mapped: Mapped, packs: list[LogRows], source: Path) -> dict[str, str]:
    """Role to name, for a log of which nothing is known as a loss or a score, or only a loss that is hardly there."""
    names = list(mapped.series)
    if (loss := mapped.roles.get("loss")) is not None and (other := _fuller(loss, names, packs)) is not None:
        return {"loss": other}
    if mapped.sums or {"loss", "val_loss", SCORE} & mapped.roles.keys() or mapped.losses()[1] != NONE:
        return {}
    if set(names) >= _MONITOR:
        return {SCORE: "r"}
    about = role_of_file(source)
    unnamed = [name for name in names if better(name) != HIGHER]
    nameless = [name for name in names if not _counts(packs, name)] if all(map(_NAMELESS.fullmatch, names)) else []
    alone = nameless[:1] or (names if names == unnamed[:1] else [])
    if about is not None and alone and not set(names) & set(mapped.roles.values()):
        return {about: alone[0]}
    return _by_course(unnamed, packs) or _falling_score(names, packs)


def _fuller(loss: str, names: list[str], packs: list[LogRows]) -> str | None:
    """Another training loss that covers the log, if the one that is named best has few points late in it."""
    others = [name for name in names if name != loss and rank("loss", name) is not None]
    there = {name: np.flatnonzero(np.concatenate([present(rows, name) for rows in packs])) for name in (loss, *others)}
    best = max(others, key=lambda name: len(there[name]), default=None)
    if best is None or not len(there[loss]) or len(there[loss]) >= _RARE * len(there[best]):
        return None
    before = int(np.searchsorted(there[best], there[loss][0]))
    return best if before > _RARE * len(there[best]) else None


def role_of_file(source: Path) -> str | None:
    """The role of the only series of a file that is named after it: `loss.csv`, `val_loss.txt`, `rewards.txt`."""
    about = name_of_file(source.stem)
    losses = [role for role in ("loss", "val_loss") if rank(role, about) is not None]
    return losses[0] if losses else SCORE if better(about) == HIGHER else None


def _by_course(names: list[str], packs: list[LogRows]) -> dict[str, str]:
    """The likeliest names whose numbers come down: of training, and of validation."""
    words = {name: frozenset(spellings(name)[1].split("_")) for name in names}
    letters = [name for name in _LETTERS if name in words and any(other.startswith(f"{name}_") for other in names)]
    splits = [name for name, each in words.items() if each <= TRAIN | HELD_OUT]  # `train` and `val`, nothing else
    splits = splits if any(words[name] <= TRAIN for name in splits) else []
    others = (
        [name for name, each in words.items() if each & known and each - known <= _BESIDE | KINDS] for known in _MAYBE
    )
    for likely in (letters, splits, *others):
        found: dict[str, str] = {}
        for name in (name for name in likely if _comes_down(packs, name)):
            found.setdefault("val_loss" if words[name] & HELD_OUT else "loss", name)
        if found:
            return found
    return {}


def _falling_score(names: list[str], packs: list[LogRows]) -> dict[str, str]:
    """A score beside an accuracy, whose numbers come down."""
    words = {name: frozenset(spellings(name)[1].split("_")) for name in names}
    scores = [name for name, each in words.items() if each & _SCORES and each - _SCORES <= _BESIDE]
    beside = any(each & _OF_CLASSES for each in words.values())
    return {"loss": scores[0]} if beside and scores and _comes_down(packs, scores[0]) else {}


def _counts(packs: list[LogRows], name: str) -> bool:
    """Whether these are whole numbers that never fall: a count of frames beside that of the episodes."""
    values = np.concatenate([floats(rows, name) for rows in packs])
    values = values[np.isfinite(values)]
    falls = int(np.sum(np.diff(values) < 0))  # at each start of the program
    whole = len(values) > 1 and bool(np.all(values == np.rint(values)))
    return whole and falls <= _END * len(values) and bool(values[-1] > values[0])


def _comes_down(packs: list[LogRows], name: str) -> bool:
    """Whether the numbers end below where they begin."""
    values = np.concatenate([floats(rows, name) for rows in packs])
    values = values[np.isfinite(values)]
    some = max(int(_END * len(values)), 1)
    return len(values) >= _FEWEST and bool(np.median(values[-some:]) < np.median(values[:some]))
