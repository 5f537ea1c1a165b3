"""python -m diagnosis.second.quality, from benchmarks/: how good every model of the second fleet is on held-out data.

Trains without recording and asks steadyrun nothing: the numbers show that healthy runs learn and that bugs do damage.
They are kept in build/diagnosis-second/quality.json, one entry per case and seed; the means of a full set of seeds are
written to damage.json, which causes.py reads.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from diagnosis.cases import Case
from diagnosis.harness import Silent
from diagnosis.second.cases import cases, twin

COLUMNS = (("", "quality"), ("_validation", "val"))


@dataclass(frozen=True)
class Source:
    """The cases of a fleet, where its damage is written, and of how many seeds."""

    fleet: str
    cases: Callable[..., list[Case]]
    twin: Callable[[str, str], str]
    seeds: int = 3

    @property
    def damage(self) -> Path:
        return Path(__file__).parents[1] / self.fleet / "damage.json"

    @property
    def kept(self) -> Path:
        return Path(__file__).parents[3] / "build" / f"diagnosis-{self.fleet}" / "quality.json"


def measured(case: Case) -> dict[str, Any]:
    """The held-out score, the last validation loss and the seconds of one training."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = case.module.train(Path(folder) / "run", case.bug, case.seed, record=Silent, **case.changes).rows
        except Exception as problem:
            return {"quality": math.nan, "val": math.nan, "raised": f"{type(problem).__name__}: {problem}"[:200]}
    validated = [row["val_loss"] for row in rows if "val_loss" in row]
    found = {"first": rows[0]["loss"], "last": rows[-1]["loss"], "val": validated[-1] if validated else math.nan}
    return found | {"quality": rows[-1]["quality"], "seconds": round(time.process_time() - began, 2)}


def groups(source: Source, only: str, seeds: int) -> Iterator[list[Case]]:
    """The seeds of one healthy or faulty program after another, healthy ones first."""
    cases, twin = source.cases, source.twin
    healthy = [case for case in cases(1) if case.bug is None]
    faulty = [case for case in cases(1, only) if case.bug is not None]
    needed = {twin(case.program, case.bug or "") for case in faulty} | {case.name for case in cases(1, only)}
    for case in [case for case in healthy if case.name in needed] + faulty:
        name = case.name if case.bug is None else case.name.removesuffix("-1")
        yield [replace(case, name=f"{name}-{seed}", seed=seed) for seed in range(1, seeds + 1)]


def main(source: Source) -> None:
    parser = argparse.ArgumentParser(description=f"How good every model of the {source.fleet} fleet is.")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--seeds", type=int, default=source.seeds)
    parser.add_argument("--redo", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = source.kept
    kept: dict[str, Any] = json.loads(file.read_text()) if file.is_file() and not options.redo else {}
    for group in groups(source, options.only, options.seeds):
        for case in group:
            if case.name not in kept:
                kept[case.name] = measured(case)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(kept, indent=1))
        print(line(source, group, kept), flush=True)
    if options.only == "*" and options.seeds >= source.seeds:
        source.damage.write_text(json.dumps(table(source, kept, options.seeds), indent=1, allow_nan=False) + "\n")


def mean(kept: dict[str, Any], name: str, what: str, seeds: int) -> float:
    """The mean of a number over the seeds."""
    return sum(kept[f"{name}-{seed}"][what] for seed in range(1, seeds + 1)) / seeds


def table(source: Source, kept: dict[str, Any], seeds: int) -> dict[str, dict[str, dict[str, float | None]]]:
    """Scores and validation losses of every bug and program beside those of the healthy twin; null if not finite."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for case in [case for case in source.cases(1) if case.bug is not None]:
        bug = case.bug or ""
        names = {"healthy": source.twin(case.program, bug), "faulty": case.name.removesuffix("-1")}
        row = {f"{kind}{end}": mean(kept, name, what, seeds) for kind, name in names.items() for end, what in COLUMNS}
        found.setdefault(bug, {})[case.program] = {
            name: float(f"{value:.4g}") if math.isfinite(value) else None for name, value in row.items()
        }
    return found


def line(source: Source, group: list[Case], kept: dict[str, Any]) -> str:
    """One program beside its healthy twin: means over the seeds."""
    name, bug, seeds = group[0].name.removesuffix("-1"), group[0].bug, len(group)
    own = f"{mean(kept, name, 'quality', seeds):9.4g}  validation {mean(kept, name, 'val', seeds):8.3g}"
    if bug is None:
        return f"{name:44} {own}"
    clean = source.twin(group[0].program, bug)
    healthy = f"{mean(kept, clean, 'quality', seeds):9.4g}  validation {mean(kept, clean, 'val', seeds):8.3g}"
    return f"{name:44} {own}  healthy {healthy}"


if __name__ == "__main__":
    main(Source("second", cases, twin))
