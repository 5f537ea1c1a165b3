"""Cases for tests of the post-mortem: made of given numbers, or of a copy of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import Synthetic

from steadyrun.postmortem.case import Case, choose
from steadyrun.report.report import Report
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk


def examined(source: Synthetic, name: str = "run") -> tuple[Signals, Report]:
    """The signals and the whole walk over made-up series."""
    signals = Signals(source)
    ends = [int(source.series(name).steps[-1]) for name in source.names() if len(source.series(name))]
    return signals, Report(name, walk(QUESTIONS, signals, {}, go_on=True), source.state, max(ends, default=None))


def case_of(source: Synthetic, run: Path, step: int | None = None) -> Case:
    """A case of made-up series; `run` is where its incident folders would be."""
    signals, report = examined(source, str(run))
    moment, proofs = choose(run, signals, report, step)
    return Case(run, signals, report, moment, proofs, None)


def spiky(at: int = 200, height: float = 5.0, steps: int = 400, **series: Any) -> Synthetic:
    """A falling, noisy loss with one spike, and a gradient norm with one."""
    noise = np.random.default_rng(0)
    loss = 2.0 + 2.0 * np.exp(-np.arange(steps) / 80) + noise.normal(0, 0.05, steps)
    norm = 0.6 + np.abs(noise.normal(0, 0.05, steps))
    loss[at], norm[at] = height, 47.2
    config = {"seed": 42, "clip": 1.0, "dtype": "fp32", "lr_max": 3e-4}
    return Synthetic(config=config, **{"loss": loss, "grad_norm": norm, "lr/0": np.full(steps, 3e-4)} | series)


def incident(run: Path, step: int, kind: str = "spike", **files: Any) -> Path:
    """An incident folder with these JSON files."""
    folder = run / "incidents" / f"step-{step:07d}"
    folder.mkdir(parents=True, exist_ok=True)
    files.setdefault("incident", {"step": step, "kind": kind, "why": f"step {step}", "checkpoint": step - 50})
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def experiments(verdict: str, **parts: Any) -> dict[str, Any]:
    """An experiments.json in which only the factor of the verdict makes the incident go away."""
    groups = ("data", "optimizer-state", "learning-rate", "precision")
    table = [
        {
            "factor": group,
            "group": group,
            "words": f"another {group}",
            "peak_loss": 2.1 if group == verdict else "nan",
            "peak_grad_norm": 1.0,
            "gone": group == verdict,
            "note": "",
        }
        for group in groups
    ]
    why = f"only another {verdict} makes it go away."
    base = {"peak_loss": 5.0, "peak_grad_norm": 47.2, "gone": False}
    return {"schema": 1, "verdict": verdict, "why": why, "interaction": None, "baseline": base, "table": table} | parts


def replayed(verdict: str = "bit-equal", **parts: Any) -> dict[str, Any]:
    """A replay.json."""
    proof = {"verdict": verdict, "compared": 60, "tolerance": 1e-4, "largest": 0.0, "differences": []}
    return {"schema": 1, "proof": proof, "culprit": None, "precision": None, "violent": None} | parts
