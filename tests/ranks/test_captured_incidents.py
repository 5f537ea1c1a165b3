"""Two real ranks over gloo: each keeps its part of an incident, and a replay puts the parts together."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun
from steadyrun.postmortem.document import write

sys.path.insert(0, str(Path(__file__).parent))
import captured_program as program

CASES = ["one-rank-nan", "weight-flip", "healthy", "sharded"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all cases, trained in one process group."""
    folder = tmp_path_factory.mktemp("captured")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *words, "--master-port", str(port), program.__file__, str(folder), *CASES],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_nan_on_one_rank_is_one_incident_of_that_rank(runs: Path) -> None:
    run = runs / "one-rank-nan"
    assert (run / f"incidents/step-{program.AT:07d}/rank-00001/incident.json").is_file()
    card = steadyrun.check(run).incidents
    assert [(each.step, each.kind, each.ranks) for each in card] == [(program.AT, "non-finite", (1, 0))]
    assert card[0].where == f"step {program.AT}, rank 1, non-finite"

    result = steadyrun.replay(run, program.task)
    assert result.incident.rank == 1
    assert result.proof.verdict == "bit-equal"  # two halves of a gradient have one sum, in whatever order
    assert result.culprit is not None
    assert (result.culprit.cause, result.culprit.module) == ("non-finite-input", "x")
    assert [example.row for example in result.culprit.examples] == [5]
    assert result.hardware is not None
    assert result.hardware.verdict == "reproducible"
    content = result.to_dict()
    assert content["ranks"] == {"rank": 1, "world": 2, "averaged": [0, 1], "alone": None}
    assert f"Step {program.AT}, rank 1, non-finite" in str(result)
    assert "averages the gradients of all 2 ranks" in str(result)


def test_the_other_rank_names_where_it_began(runs: Path) -> None:
    result = steadyrun.replay(runs / "one-rank-nan", program.task, rank=0, repeat=1)
    assert result.incident.rank == 0
    assert result.began_on == 1
    assert result.culprit is None
    assert result.hardware is None
    assert "--rank 1" in str(result)
    with pytest.raises(steadyrun.UsageError, match="rank 7 kept nothing"):
        steadyrun.replay(runs / "one-rank-nan", program.task, rank=7)


def test_one_rank_alone_says_what_is_missing(runs: Path, tmp_path: Path) -> None:
    """A rank that kept nothing: the replay shows this rank's passes, and claims nothing about the hardware."""
    import shutil

    run = tmp_path / "run"
    shutil.copytree(runs / "weight-flip", run)
    for part in run.glob("incidents/step-*/incident.json"):
        part.unlink()
    result = steadyrun.replay(run, program.task)
    assert result.session.alone == "rank 0 kept nothing of it"
    assert "the averaged gradient is not reproduced" in str(result)
    assert result.hardware is not None
    assert (result.hardware.verdict, result.hardware.rule) == ("undecided", "one-rank-alone")


def test_a_flipped_bit_on_one_rank(runs: Path) -> None:
    """No digest and no loss before the flip differs from the replay; then those of rank 1 do."""
    result = steadyrun.replay(runs / "weight-flip", program.task)
    assert result.hardware is not None
    assert result.hardware.verdict == "transient"
    first = result.hardware.evidence.first
    assert first is not None
    assert (first.step, first.what, first.rank, first.blocks) == (program.AT, "parameters", 1, ("4",))
    card = steadyrun.check(runs / "weight-flip").incidents[0]
    assert card.blames_hardware
    assert "rank 1" in card.sentence("run")
    titles = [hypothesis.cause.title for hypothesis in write(runs / "weight-flip").hypotheses[:2]]
    assert "Nondeterminism or hardware" in titles  # beside R1.2, which found the parted replicas


def test_a_rank_keeps_its_part_of_what_another_asked_for(runs: Path) -> None:
    """Rank 1 alone asks; with both parts, dropout and batch normalisation of both ranks come back bit for bit."""
    result = steadyrun.replay(runs / "healthy", program.task)
    assert result.incident.rank == 1
    assert [part.rank for part in result.session.ranks] == [0]
    assert result.session.ranks[0].kind == "joined"
    assert result.proof.verdict == "bit-equal"
    assert result.digests is not None
    assert result.digests.differences == {}
    assert result.hardware is not None
    assert result.hardware.verdict == "reproducible"


def test_sharded_parameters_are_not_captured_and_an_event_says_why(runs: Path) -> None:
    view = steadyrun.open_run(runs / "sharded")
    for rank in view.ranks:
        why = [event.fields["why"] for event in view.events("not-recorded", rank) if "capture" in event.fields["probe"]]
        assert len(why) == 1
        assert "sharded over the ranks" in why[0]
    assert not (runs / "sharded/incidents").exists()
