"""Boosted trees: XGBoost (`[10] train-logloss:0.5 valid-logloss:0.6`), LightGBM and CatBoost."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY
from steadyrun.importers.series_roles import HELD_OUT, TRAIN

_LINE = re.compile(rf"^(?:\[[\d:. -]++\]\s*+)?\[?(\d++)[\]:]\s++([\w@' -]++:\s*+{ANY}.*)$")
_FIELD = re.compile(rf"(?<![\w@'-])([\w@'-]++(?: [\w@-]++)?):\s*+({ANY})")
_SURE = re.compile(rf"^(?:\[[\d:. -]++\]\s*+)?(?:\[\d++\]\s++\w++(?:-|'s )[\w@-]++:|\d++:\s++learn:)\s*+{ANY}")
_LOSSES = (
    "logloss",
    "rmse",
    "mae",
    "mse",
    "error",
    "l1",
    "l2",
    "nloglik",
    "loss",
    "huber",
    "quantile",
    "rmsle",
    "mape",
)
_LEARN = {*TRAIN, "learn", "validation_0"}


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    for number, line in lines:
        if not (match := _LINE.match(line)) or not _SURE.match(line):
            continue
        fields = [(name.strip(), text) for name, text in _FIELD.findall(match[2])]
        if not log.roles:
            log.roles.update({"step": "round", **_losses([name for name, _ in fields])})
        yield pairs([("round", match[1]), *fields], anomalies, number)


def _losses(names: list[str]) -> dict[str, str]:
    """Which fields are losses: the last metric counts, as it does for early stopping."""
    roles: dict[str, str] = {}
    for name in names:
        data, _, metric = name.replace("'s ", "-").rpartition("-")
        if name in ("learn", "test"):  # CatBoost prints no metric; what it learns is its loss
            data, metric = name, "loss"
        if any(metric.endswith(loss) for loss in _LOSSES):
            first = data.split("_")[0]
            if data in _LEARN or first in TRAIN:
                roles["loss"] = name
            elif first in HELD_OUT:
                roles["val_loss"] = name
    return roles


DIALECT = Dialect("boosting", "XGBoost, LightGBM or CatBoost log", _SURE, _rows, "mean of an epoch")
