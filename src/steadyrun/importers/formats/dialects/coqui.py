"""Coqui TTS: blocks of lines, `--> STEP: 24/100 -- GLOBAL_STEP: 50`, then `| > loss: 1.2 (1.3)`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs, read
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_STEP = re.compile(r"--> (?:TIME: [^|]{0,100}?-- )?STEP: \d++/\d++ -- GLOBAL_STEP: (\d++)")
_EVAL = re.compile(r"--> EVAL PERFORMANCE|> EVALUATION")
_OTHER = re.compile(r"--> |^\s*> (?:EPOCH|TRAINING)")
_FIELD = re.compile(rf"^\s*\| > ([\w./]+)\s*:\s*({ANY})", re.I)


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    """A block is a row; the fields of an evaluation are averages: `avg_loss` of it is the validation loss."""
    block: dict[str, float] = {}
    step, held_out = 0.0, False

    def ended() -> Iterator[Row]:
        if block:
            named = {f"val_{name.removeprefix('avg_')}" if held_out else name: value for name, value in block.items()}
            yield {"global_step": step, **named}
            block.clear()

    for number, line in lines:
        if match := _STEP.search(line):
            yield from ended()
            said = read(match[1], anomalies, f"line {number:,}")
            step, held_out = step if said is None else said, False
        elif _EVAL.search(line):
            yield from ended()
            held_out = True
        elif _OTHER.search(line):
            yield from ended()
            held_out = False
        elif match := _FIELD.search(line):
            block.update(pairs([(match[1], match[2])], anomalies, number))
    yield from ended()


DIALECT = Dialect("coqui", "Coqui TTS log", _STEP, _rows)
