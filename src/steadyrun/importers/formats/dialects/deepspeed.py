"""DeepSpeed's own lines: steps, skipped steps, learning rates, the loss scale and its overflows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, read
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_STEP = re.compile(r"\bstep=(\d+), skipped=(\d+), lr=\[([^\]]{0,2000})\]")
_LOSS = re.compile(rf"\bsteps: (\d+) loss: ({ANY}) iter time", re.I)
_SCALE = re.compile(
    rf"(?:Attempted loss scale: (?P<tried>{ANY}), (?:reducing to (?P<reduced>{ANY})|but hysteresis)"
    rf"|dynamic loss scale from (?P<old>{ANY}) to (?P<new>{ANY}))",
    re.I,
)
_EPOCH = re.compile(rf"Epoch (\d+)/\d+ with loss ({ANY})", re.I)
_PERPLEXITY = re.compile(rf"^\s*(?:ppl|perplexity): ({ANY})", re.I)


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    at, total, scale = 0.0, 0.0, None
    for number, line in lines:
        where = f"line {number:,}"
        if match := _SCALE.search(line):
            said = read(match["reduced"] or match["new"] or match["tried"] or "", anomalies, where)
            scale = said if said is not None else scale
        elif match := _STEP.search(line):
            step, skipped = float(match[1]), float(match[2])
            row = {"step": step, "skipped in all": skipped, "skipped share": _share(skipped - total, step - at)}
            rates = [read(text, anomalies, where) for text in match[3].split(",")]
            row |= {f"lr/pg{group}": rate for group, rate in enumerate(rates) if rate is not None}
            at, total = step, skipped
            yield row | ({"loss scale": scale} if scale is not None else {})
        elif match := _LOSS.search(line):
            loss = read(match[2], anomalies, where)
            if loss is not None:
                yield {"step": float(match[1]), "loss": loss}
        elif match := _EPOCH.search(line):
            loss = read(match[2], anomalies, where)
            if loss is not None:
                yield {"step": at, "mean loss of the epoch": loss}
        elif match := _PERPLEXITY.search(line):
            perplexity = read(match[1], anomalies, where)
            if perplexity is not None:
                yield {"step": at, "perplexity": perplexity}


def _share(skipped: float, steps: float) -> float:
    return min(1.0, max(0.0, skipped) / max(1.0, steps))


DIALECT = Dialect(
    "deepspeed",
    "DeepSpeed log",
    re.compile(rf"{_STEP.pattern}|{_LOSS.pattern}", re.I),
    _rows,
    roles={"step": "step", "skipped": "skipped share", "loss_scale": "loss scale"},
)
