"""nanoGPT (`iter 10: loss 4.5, time 52ms`, `step 250: train loss 1.9, val loss 2.0`) and modded-nanogpt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs, read
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_ITER = re.compile(rf"^\s*iter (\d[\d,]*): loss ({ANY})\b(.*)", re.I)
_EVAL = re.compile(rf"^\s*step (\d[\d,]*): train loss ({ANY})[^,]*+, val loss ({ANY})", re.I)
_REST = re.compile(rf"\b(time|mfu|lr|grad_norm|norm) ({ANY})", re.I)


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if match := _ITER.search(line):
            rest = [
                (name if name != "time" else "time of the step (ms)", text) for name, text in _REST.findall(match[3])
            ]
            yield pairs([("iter", match[1]), ("loss", match[2]), *rest], anomalies, number)
        elif match := _EVAL.search(line):
            names = ("iter", "train loss", "val loss")
            yield pairs(list(zip(names, match.groups(), strict=True)), anomalies, number)


_PLAIN = re.compile(rf"^(\d+) (train|val|hella) ({ANY})\s*$")
_PLAIN_NAMES = {"train": "train loss", "val": "val loss", "hella": "hellaswag"}


def _plain_rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if match := _PLAIN.search(line):
            yield pairs([("step", match[1]), (_PLAIN_NAMES[match[2]], match[3])], anomalies, number)


_MODDED = re.compile(r"^\s*+step:(\d{1,15})(?:/(\d{1,15}))?\s++(.*\b(?:train_loss|val_loss):.*)$")
_TOKEN = re.compile(rf"(?<![\w./])([\w./]++):\s*+({ANY})(?:[a-zµ]*+)", re.I)


def _modded_rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    for number, line in lines:
        if not (match := _MODDED.search(line)):
            continue
        if match[2]:
            log.config["total_steps"] = int(match[2])
        step = read(match[1], anomalies, f"line {number:,}")
        if step is not None:
            yield {"step": step, **pairs(_TOKEN.findall(match[3]), anomalies, number)}


DIALECT = Dialect("nanogpt", "nanoGPT log", re.compile(f"{_ITER.pattern}|{_EVAL.pattern}", re.I), _rows, "single batch")
PLAIN = Dialect("build-nanogpt", "build-nanogpt log.txt", _PLAIN, _plain_rows, "mean of a step")
MODDED = Dialect("modded-nanogpt", "modded-nanogpt log", _MODDED, _modded_rows, "single batch")
