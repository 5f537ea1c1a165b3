"""Trials on a Ray cluster of two nodes and on submitit's own processes give the table of local processes."""

from pathlib import Path

import pytest

from steadyrun import Trial, trial

FACTORY = f"{Path(__file__).parents[1] / 'trial' / 'trial_programs.py'}:task"
CASES = {"dropout": {"dropout": 0.97}, "decay": {"weight_decay": 300.0}, "default-settings": {"eps": 1.0}}


def tried(group: str, on: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setenv("STEADYRUN_SCRATCH", str(scratch / on.partition(":")[0]))
    return trial(FACTORY, config=CASES[group], only=[group], steps=24, on=on)


def table(found: Trial) -> dict[str, float]:
    assert found.kept == 0
    return {row.factor: row.loss for row in found.rows}


@pytest.mark.parametrize("group", CASES)
def test_the_same_table_everywhere(group: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("submitit.LocalJob._results_timeout_s", 1)  # files of this machine need no longer
    local = tried(group, "local:2", tmp_path, monkeypatch)
    for on in (f"ray:{address}", "slurm:local"):
        there = tried(group, on, tmp_path, monkeypatch)
        assert table(there) == pytest.approx(table(local), rel=1e-3)
        assert (there.verdict.kind, there.verdict.code) == (local.verdict.kind, local.verdict.code)
