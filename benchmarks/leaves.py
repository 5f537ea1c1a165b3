"""How often the verdict is right: every fault of the tutor and the whole healthy fleet, walked.

python benchmarks/leaves.py --runs build/leaves

Writes benchmarks/leaves.md and the measured numbers beside the thresholds (src/steadyrun/questions/measured.json).
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fleet
import numpy as np
import torch

import steadyrun
from steadyrun.questions.form import FAULT, NOTE, Answer
from steadyrun.records import Event, Series
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.train import train_recorded

HERE = Path(__file__).parent
PAGE = HERE / "leaves.md"
MEASURED = HERE.parent / "src" / "steadyrun" / "questions" / "measured.json"
# The audits are measured on other programs, by the scoreboard (diagnosis/margins.py).
TREES = {code: question for code, question in QUESTIONS.items() if code[0] in "CDS" and code != "S1.4"}
SEEDS = (1, 2)
PREFIXES = (10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1500, 2000)
EVERY_STEP = {
    "loss",
    "grad_norm",
    "lr/0",
    "lr/1",
    "backward_loss",
    "clipped",
    "grad_norm_applied",
}  # what a logger thins out
SIGNS = {"pass": ".", "fault": "F", "note": "n", "cannot-tell": "?", "not-applicable": "-"}


class Part:
    """A run as it was at an earlier step, or as a sparser record of it would be."""

    def __init__(self, view: steadyrun.RunView, until: float = np.inf, every: int = 1) -> None:
        self._view, self._until, self._every = view, until, every
        self.manifest = view.manifest
        self.state = "running" if np.isfinite(until) else view.state
        self._kept: dict[str, Series] = {}

    def names(self) -> list[str]:
        return self._view.names()

    def series(self, name: str) -> Series:
        if name not in self._kept:
            full = self._view.series(name)
            keep = (full.steps < self._until) & ((full.steps % self._every == 0) | (name not in EVERY_STEP))
            self._kept[name] = Series(name, full.steps[keep], full.values[keep], full.times[keep])
        return self._kept[name]

    def events(self, kind: str | None = None) -> list[Event]:
        return [event for event in self._view.events(kind) if event.step is None or event.step < self._until]


@dataclass(frozen=True)
class Verdict:
    """One run: every answer, and the leaf at full length, when it was first seen, and with every tenth step only."""

    name: str
    fault: str
    answers: dict[str, Answer]
    leaf: str
    outcome: str
    detected: int | None
    early_faults: tuple[str, ...]
    sparse_leaf: str
    told: dict[str, int]  # by the live monitor: code, and the step at which it was noticed
    last: int


def judge(name: str, fault: str, path: Path) -> Verdict:
    view = steadyrun.open_run(path)
    everything = walk(QUESTIONS, Signals(view), {}, go_on=True)
    leaf, outcome = _leaf(Signals(view))
    last = view.last_step() or 0
    seen = {step: _leaf(Signals(Part(view, until=step)))[0] for step in PREFIXES if step <= last}
    detected = next((step for step, found in seen.items() if found == leaf), last + 1) if leaf else None
    return Verdict(
        name,
        fault,
        {asked.question.code: asked.answer for asked in everything.path},
        leaf,
        outcome,
        detected,
        tuple(f"{found} at step {step}" for step, found in seen.items() if found and found != leaf),
        _leaf(Signals(Part(view, every=10)))[0],
        {event.fields["code"]: event.fields["noticed"] for event in view.events("fault")},
        last,
    )


def _leaf(signals: Signals) -> tuple[str, str]:
    found = walk(QUESTIONS, signals, {}).leaf
    return (found.question.code, found.answer.outcome) if found else ("", "")


def train_faults(folder: Path) -> dict[str, Path]:
    """A run of every fault at every seed; those already there are kept."""
    paths = {}
    for fault in FAULTS:
        for seed in SEEDS:
            path = paths[f"{fault}-{seed}"] = folder / f"{fault}-{seed}"
            if not fleet.finished(path):
                print(f"training {path.name}", flush=True)
                shutil.rmtree(path, ignore_errors=True)
                train_recorded(load_recipe(fault, seed=seed, steps=FAULTS[fault].steps), path)
    return paths


def train_fleet(folder: Path) -> dict[str, Path]:
    paths = {}
    for name, train in fleet.programs().items():
        path = paths[name] = folder / name
        if not fleet.finished(path):
            print(f"training {name}", flush=True)
            shutil.rmtree(path, ignore_errors=True)
            train(path)
    return paths


# -- the page ------------------------------------------------------------------------------------------


def page(faulty: list[Verdict], healthy: list[Verdict]) -> str:
    meant = [v for v in faulty if FAULTS[v.fault].leaf]
    right = [v for v in meant if v.leaf == FAULTS[v.fault].leaf]
    silent = [v for v in faulty if not FAULTS[v.fault].leaf]
    noted = [v for v in faulty if FAULTS[v.fault].note]
    mentioned = [v for v in noted if v.answers[FAULTS[v.fault].note].kind == NOTE]
    lengths = {fault.steps for fault in FAULTS.values()}
    told = [v for v in right if v.told.get(v.leaf, v.last) < v.last]
    contrary = [v for v in [*faulty, *healthy] if any(v.answers[code].kind != FAULT for code in v.told)]
    alarms = [v for v in healthy if v.leaf]
    early = [v for v in healthy if v.early_faults]
    sparse = [v for v in healthy if v.sparse_leaf]
    lines = [
        "# How often the verdict is right",
        "",
        "Written by `python benchmarks/leaves.py` (part of `make bench`).",
        f"Faults of the tutor: seeds {', '.join(map(str, SEEDS))}, each for as many steps as it needs to show "
        f"({min(lengths)} to {max(lengths)}). Healthy: `benchmarks/fleet.py`.",
        "",
        "| what | how often |",
        "|---|---|",
        f"| leaf as meant, of the runs with a fault that the tree can prove | {len(right)} of {len(meant)} |",
        f"| a leaf where a fault leaves no trace here | {len([v for v in silent if v.leaf])} of {len(silent)} |",
        f"| mentioned in a note, of the faults that honest runs barely show | {len(mentioned)} of {len(noted)} |",
        f"| leaf told by the live monitor before the end, of the leaves as meant | {len(told)} of {len(right)} |",
        f"| runs with a fault told live that the check at the end does not find | {len(contrary)} of "
        f"{len(faulty) + len(healthy)} |",
        f"| false alarms on healthy runs | {len(alarms)} of {len(healthy)} |",
        f"| false alarms at any earlier step of the healthy runs | {len(early)} of {len(healthy)} |",
        f"| false alarms on the healthy runs with every tenth step recorded | {len(sparse)} of {len(healthy)} |",
        "",
        "Signs: `.` pass, `F` fault, `n` note, `?` cannot tell, `-` not applicable. Every question is asked (`--all`);",
        "the leaf is that of the ordinary walk. *Seen* is the first of the steps "
        f"{', '.join(map(str, PREFIXES[:12]))} … at which the walk gave the leaf.",
        "",
        "## Faults",
        "",
        f"| run | meant | leaf | outcome | seen | {' | '.join(QUESTIONS)} |",
        f"|---|---|---|---|---|{'---|' * len(QUESTIONS)}",
        *(_row(v, FAULTS[v.fault].leaf or "none") for v in faulty),
        "",
        "## Healthy",
        "",
        f"| run | leaf | {' | '.join(QUESTIONS)} |",
        f"|---|---|{'---|' * len(QUESTIONS)}",
        *(f"| {v.name} | {v.leaf or 'none'} | {_signs(v)} |" for v in healthy),
        "",
    ]
    return "\n".join(lines)


def _row(v: Verdict, meant: str) -> str:
    seen = "" if v.detected is None else f"{v.detected}"
    return f"| {v.name} | {meant} | {v.leaf or 'none'} | {v.outcome} | {seen} | {_signs(v)} |"


def _signs(v: Verdict) -> str:
    return " | ".join(SIGNS[v.answers[code].kind] for code in QUESTIONS)


# -- the numbers beside the thresholds -----------------------------------------------------------------


def measured(faulty: list[Verdict], healthy: list[Verdict]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for code, question in TREES.items():
        for of in sorted({threshold.of for threshold in question.thresholds if threshold.of}):
            sign = -1.0 if of.startswith("-") else 1.0
            values = _values(healthy, code, of.removeprefix("-"))
            of_faults: dict[str, list[float]] = {}
            for v in faulty:
                if v.leaf == code and (value := v.answers[code].measured.get(of.removeprefix("-"))) is not None:
                    of_faults.setdefault(v.fault, []).append(value)
            found.setdefault(code, {})[of] = {
                "healthy": summary(values, sign),
                "faults": {name: rounded(float(np.median(kept))) for name, kept in of_faults.items()},
            }
    return found


def _values(verdicts: Iterable[Verdict], code: str, name: str) -> dict[str, float]:
    known = {v.name: v.answers[code].measured.get(name) for v in verdicts}
    return {name: value for name, value in known.items() if value is not None}


def summary(values: dict[str, float], sign: float) -> dict[str, Any] | None:
    if not values:
        return None
    worst = max(values, key=lambda name: sign * values[name])
    numbers = np.array(list(values.values()))
    return {
        "runs": len(values),
        "median": rounded(float(np.median(numbers))),
        "p99": rounded(sign * float(np.quantile(sign * numbers, 0.99))),
        "worst": rounded(values[worst]),
        "worst_run": worst,
    }


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("build/leaves"), help="where the runs are, or go")
    folder: Path = parser.parse_args().runs
    torch.set_num_threads(1)
    paths = train_faults(folder / "faults")
    faulty = [judge(name, name.rpartition("-")[0], path) for name, path in paths.items()]
    healthy = [judge(name, "", path) for name, path in train_fleet(folder / "fleet").items()]
    PAGE.write_text(page(faulty, healthy), encoding="utf-8")
    found = json.loads(MEASURED.read_text(encoding="utf-8")) | measured(faulty, healthy)
    MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for v in [*faulty, *healthy]:
        meant = FAULTS[v.fault].leaf if v.fault else ""
        if v.leaf != meant or v.early_faults or v.sparse_leaf != v.leaf:
            found = f"found {v.leaf or 'none'}; earlier {v.early_faults}; sparse {v.sparse_leaf or 'none'}"
            print(f"{v.name}: meant {meant or 'none'}, {found}")
    wrong = [v.name for v in healthy if v.answers and any(a.kind == FAULT for a in v.answers.values())]
    print(f"wrote {PAGE.name} and {MEASURED.name}; fault answers on healthy runs: {wrong or 'none'}")


if __name__ == "__main__":
    main()
