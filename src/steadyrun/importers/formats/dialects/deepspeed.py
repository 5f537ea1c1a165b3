"""DeepSpeed's own lines: steps, skipped steps, learning rates, the loss scale and its overflows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, read
from steadyrun.importers.log_rows import Log, Row
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


def _rows(lines: Lines, told: Anomalies, _log: Log) -> Iterator[Row]:
    at, total, scale = 0.0, 0.0, None
    for number, line in lines:
        where = f"line {number:,}"
        if found := _SCALE.search(line):
            said = read(found["reduced"] or found["new"] or found["tried"] or "", told, where)
            scale = said if said is not None else scale
        elif found := _STEP.search(line):
            step, skipped = float(found[1]), float(found[2])
            row = {"step": step, "skipped in all": skipped, "skipped share": _share(skipped - total, step - at)}
            rates = [read(text, told, where) for text in found[3].split(",")]
            row |= {f"lr/pg{place}": rate for place, rate in enumerate(rates) if rate is not None}
            at, total = step, skipped
            yield row | ({"loss scale": scale} if scale is not None else {})
        elif found := _LOSS.search(line):
            loss = read(found[2], told, where)
            if loss is not None:
                yield {"step": float(found[1]), "loss": loss}
        elif found := _EPOCH.search(line):
            loss = read(found[2], told, where)
            if loss is not None:
                yield {"step": at, "mean loss of the epoch": loss}
        elif found := _PERPLEXITY.search(line):
            held = read(found[1], told, where)
            if held is not None:
                yield {"step": at, "perplexity": held}


def _share(skipped: float, steps: float) -> float:
    return min(1.0, max(0.0, skipped) / max(1.0, steps))


DIALECT = Dialect(
    "deepspeed",
    "DeepSpeed log",
    re.compile(rf"{_STEP.pattern}|{_LOSS.pattern}", re.I),
    _rows,
    roles={"step": "step", "skipped": "skipped share", "loss_scale": "loss scale"},
)
