"""Losses that do not simply fall: a VAE, a DCGAN, contrastive embeddings and a diffusion model, healthy and broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import objective_programs
import pytest

import steadyrun

Program = Callable[..., steadyrun.Report]


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def program(name: str) -> Program:
    found: Program = getattr(objective_programs, name)
    return found


@pytest.mark.parametrize(
    ("name", "bug", "seed"),
    [
        ("gan", "", 0),
        slow("gan", "", 1),
        slow("gan", "slow", 0),
        slow("gan", "slow", 1),
        slow("vae", "", 0),
        slow("vae", "", 1),
        slow("simclr", "", 0),
        slow("simclr", "", 1),
        slow("diffusion", "", 0),
        slow("diffusion", "", 1),
    ],
)
def test_a_healthy_objective_is_quiet(tmp_path: Path, name: str, bug: str, seed: int) -> None:
    report = program(name)(tmp_path / "run", bug, seed=seed)
    assert report.verdict == "healthy", str(report)


@pytest.mark.parametrize(
    ("name", "bug", "answer"),
    [
        ("vae", "forgotten", "G3.2:not-counted"),
        slow("vae", "sign", "G3.2:subtracted"),
        slow("vae", "heavy", "V1.2:no-better"),
        slow("gan", "noise", "G3.1:equal"),
        slow("gan", "eager", "G3.1:collapsed"),
        slow("gan", "strong", "V1.1:won"),
        ("simclr", "hot", "G3.3:flat"),
        slow("simclr", "batch", "G3.3:few"),
        slow("simclr", "cold", "G3.4:narrow"),
        slow("simclr", "positives", "S4.3:collapsed"),
        slow("simclr", "partners", "S1.4:unrelated"),
        slow("diffusion", "kind", "G3.5:other"),
        slow("diffusion", "noise", "V1.2:no-better"),
        slow("diffusion", "schedule", "V1.2:no-better"),
    ],
)
def test_a_broken_objective_is_suspect(tmp_path: Path, name: str, bug: str, answer: str) -> None:
    report = program(name)(tmp_path / "run", bug)
    answers = [*report.suspects, *([report.leaf] if report.leaf is not None else [])]
    assert report.verdict in {"suspect", "fault"}, str(report)
    assert answer in {f"{asked.question.code}:{asked.answer.outcome}" for asked in answers}, str(report)
