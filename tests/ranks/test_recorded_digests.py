"""Two real ranks over gloo: what each records for comparison, without a collective and without a changed bit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import steadyrun

CASES = ["ddp", "inside-ddp", "past-ddp", "plain", "fsdp", "fsdp-local-clip", "tensor-parallel", "apart"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all cases, trained in one process group."""
    folder = tmp_path_factory.mktemp("recorded")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    program = Path(__file__).with_name("recorded_program.py")
    done = subprocess.run(
        [sys.executable, *words, "--master-port", str(port), str(program), str(folder), *CASES],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def digests(view: steadyrun.RunView, series: str) -> dict[str, list[list[float]]]:
    """The values of all columns of a series, by rank."""
    names = [name for name in view.names() if name.split("/")[0] == series]
    return {name: [view.series(name, rank).values.tolist() for rank in (0, 1)] for name in names}


def structure(view: steadyrun.RunView, rank: int) -> dict[str, object]:
    return view.events("structure", rank)[-1].fields


@pytest.mark.parametrize("case", [case for case in CASES if case != "apart"])
def test_every_rank_records_itself(runs: Path, case: str) -> None:
    view = steadyrun.open_run(runs / case)
    assert view.ranks == [0, 1]
    for rank in view.ranks:
        assert view.events("probe-failed", rank) == []
        process = view.events("process", rank)[0].fields
        assert (process["rank"], process["world"], process["local_rank"]) == (rank, 2, rank)
        assert process["pid"] > 0
    values = [value for series in digests(view, "parameter_digest").values() for rank in series for value in rank]
    assert values
    assert all(value == int(value) and 0 <= value < 2**52 for value in values)


@pytest.mark.parametrize("case", ["ddp", "inside-ddp"])
def test_replicas_of_ddp_agree_at_every_sample(runs: Path, case: str) -> None:
    view = steadyrun.open_run(runs / case)
    for series in ("start_digest", "gradient_digest", "parameter_digest", "state_digest"):
        found = digests(view, series)
        assert found
        for first, second in found.values():
            assert first == second
            assert len(set(first)) == len(first)
    assert view.series("parameter_digest/replicated", 1).steps.tolist() == [0, 1, 2]
    assert view.series("start_digest/replicated").steps.tolist() == [0]
    assert {name.split("/")[2] for name in digests(view, "gradient_digest") if name.count("/") == 2} == {"0", "1", "4"}
    assert view.series("random_digest", 0).values[0] != view.series("random_digest", 1).values[0]
    for rank in (0, 1):
        facts = structure(view, rank)
        assert facts["parallelism"] == "ddp"
        assert facts["classes"] == {"replicated": {"replicas": [0, 1], "shards": [rank]}}
        assert facts["blocks"] == {"0": "replicated", "1": "replicated", "4": "replicated"}
        assert facts["broadcast_buffers"] is True
    buffers = [view.events("validation", rank)[0].fields["buffers"] for rank in (0, 1)]
    assert buffers[0] == buffers[1]  # broadcast before the validation's pass


def test_past_ddp_gradients_differ_from_the_first_step(runs: Path) -> None:
    view = steadyrun.open_run(runs / "past-ddp")
    for first, second in digests(view, "gradient_digest").values():
        assert all(np.array(first) != np.array(second))
    for first, second in digests(view, "start_digest").values():
        assert first == second
    buffers = [view.events("validation", rank)[0].fields["buffers"] for rank in (0, 1)]
    assert buffers[0] != buffers[1]


def test_a_structure_that_nothing_shows_is_unknown(runs: Path) -> None:
    view = steadyrun.open_run(runs / "plain")
    facts = structure(view, 1)
    assert (facts["parallelism"], facts["classes"], facts["broadcast_buffers"]) == ("unknown", {}, None)
    assert "gradient_digest/unknown" in view.names(1)


def test_shards_of_fsdp(runs: Path) -> None:
    view = steadyrun.open_run(runs / "fsdp")
    for rank in (0, 1):
        facts = structure(view, rank)
        assert facts["parallelism"] == "fsdp"
        assert facts["classes"] == {"sharded": {"replicas": [rank], "shards": [0, 1]}}
    for first, second in digests(view, "parameter_digest").values():
        assert not set(first) & set(second)


@pytest.mark.parametrize("case", ["fsdp", "fsdp-local-clip"])
def test_the_norm_that_clipping_used(runs: Path, case: str) -> None:
    view = steadyrun.open_run(runs / case)
    local = [view.series("local_grad_norm", rank).values for rank in (0, 1)]
    used = [view.series("clip_norm", rank).values for rank in (0, 1)]
    whole = np.hypot(*local)
    for rank in (0, 1):
        expected = whole if case == "fsdp" else local[rank]
        assert used[rank].tolist() == pytest.approx(expected.tolist(), rel=1e-3)
        assert view.series("clip_threshold", rank).values.tolist() == [0.1] * 4
        assert view.series("clipped", rank).values.tolist() == [1.0] * 4
    assert np.all(np.abs(local[0] / whole - 1) > 0.05)  # the two could not be confused


def test_shards_and_replicas_of_tensor_parallel(runs: Path) -> None:
    view = steadyrun.open_run(runs / "tensor-parallel")
    for rank in (0, 1):
        facts = structure(view, rank)
        assert facts["parallelism"] == "tensor-parallel"
        assert facts["classes"] == {
            "sharded": {"replicas": [rank], "shards": [0, 1]},
            "replicated": {"replicas": [0, 1], "shards": [rank]},
        }
    for name, (first, second) in digests(view, "gradient_digest").items():
        assert (first == second) == ("replicated" in name)


@pytest.mark.parametrize("structure", ["ddp", "fsdp", "tensor_parallel"])
@pytest.mark.parametrize("rank", [0, 1])
def test_recording_changes_no_bit_and_adds_no_collective(runs: Path, structure: str, rank: int) -> None:
    """Whether all ranks record or the first alone: a collective of ours would be counted, and would hang the latter."""
    bare, recorded, alone = (
        json.loads((runs / "apart" / f"{structure}-{who}-{rank}.json").read_text()) for who in ("none", "all", "first")
    )
    assert bare["collectives"] > 0
    assert recorded == bare
    assert alone == bare
    assert steadyrun.open_run(runs / "apart" / f"{structure}-first").ranks == [0]
    assert steadyrun.open_run(runs / "apart" / f"{structure}-all").ranks == [0, 1]
