"""Suspects while the run goes on: announced once, and acted on only if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyrun
from steadyrun.errors import UsageError

STEPS = 1600


def climb(run: steadyrun.Run, steps: int = STEPS, **monitored: Any) -> None:
    """A loss that comes down and climbs back, long before the end."""
    noise = np.random.default_rng(1).normal(0, 0.02, steps)
    run.monitor(**monitored)
    for step in range(steps):
        run.step((1 + 3 * np.exp(-step / 60) if step < 400 else 3.0) + noise[step])


def test_a_suspect_is_announced_once_while_it_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found: list[steadyrun.Found] = []
    faults: list[steadyrun.Found] = []
    with steadyrun.record(tmp_path / "run") as run:
        climb(run, on_fault=faults.append, on_suspect=found.append)
    assert faults == []
    assert [(one.code, one.outcome, one.grade, one.certain) for one in found] == [
        ("V1.1", "fell-back", "suspect", True)
    ]
    assert found[0].noticed < STEPS, "not only when the run ends"
    lines = [line for line in capfd.readouterr().err.splitlines() if "suspect V1.1 fell-back" in line]
    assert len(lines) == 1
    assert "steadyrun check" in lines[0]
    view = steadyrun.open_run(tmp_path / "run")
    assert [event.fields["code"] for event in view.events("suspect")] == ["V1.1"]
    assert view.events("verdict")[-1].fields["verdict"] == "suspect"
    report = steadyrun.check(tmp_path / "run")
    assert report.headline is not None
    assert report.headline.question.code == "V1.1", "what was announced is in the report"


def test_a_suspect_ends_nothing_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrun.monitor.monitor.SHARE", 1e3)  # however long a look takes on this machine
    with steadyrun.record(tmp_path / "run") as run:
        climb(run, on_fault="stop")
    with pytest.raises(steadyrun.FaultFound), steadyrun.record(tmp_path / "stopped") as run:
        climb(run, on_suspect="stop")


def test_on_suspect_is_checked(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run, pytest.raises(UsageError, match="on_suspect must be a function"):
        run.monitor(on_suspect=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("alert_on", "sent"), [("fault", 0), ("suspect", 1)])
def test_alerts_send_suspects_only_if_asked(tmp_path: Path, alert_on: str, sent: int) -> None:
    messages: list[str] = []
    with steadyrun.record(tmp_path / "run", alert=messages.append, alert_on=alert_on) as run:
        climb(run)
    assert len(messages) == sent
    assert all("suspect V1.1 fell-back" in message for message in messages)


def test_alert_on_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='alert_on must be "fault" or "suspect"'):
        steadyrun.record(tmp_path / "run", alert=print, alert_on="note")
