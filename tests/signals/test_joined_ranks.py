"""Ranks' files written by the store's own writer, and joined: running, resumed, damaged, missing, many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyrun
from steadyrun.signals.ranks import Ranks, in_words
from steadyrun.signals.run_signals import Signals
from steadyrun.store.ranks import rank_list, rank_range
from steadyrun.store.reader import open_run
from steadyrun.store.writer import RunWriter

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from ranks_size import structure, write_rank


def joined(root: Path) -> Ranks:
    ranks = Signals(open_run(root).as_of_now()).ranks
    assert ranks is not None
    return ranks


def write(root: Path, rank: int, world: int, steps: Any, **columns: Any) -> RunWriter:
    """A rank that still runs; its clock is an hour behind that of the rank before it."""
    writer = RunWriter(root, rank)
    if rank == 0:
        writer.save_manifest(state="running", config={}, inferred={})
    writer.event("start" if writer.attempt == 1 else "resume", int(steps[0]), attempt=writer.attempt)
    writer.event("process", None, rank=rank, world=world)
    writer.event("structure", None, **structure(world))
    times = np.full(len(steps), 1e9 - 3600.0 * rank)
    given = {"loss": np.ones(len(steps)), **{name: np.asarray(values, float) for name, values in columns.items()}}
    writer.write("steps", np.asarray(steps), times, given)
    writer.flush()
    return writer


@pytest.mark.parametrize("ranks", [[], [3], [0, 1], list(range(64)), list(range(1, 64, 8)), [0, 1, 5]])
def test_a_range_of_ranks_reads_back(ranks: list[int]) -> None:
    assert rank_list(rank_range(ranks)) == ranks


@pytest.mark.parametrize(
    "given",
    [None, 3, "0", {"first": 0}, {"first": 0, "count": 10**9, "stride": 1}, {"first": -1, "count": 2, "stride": 1}],
)
def test_a_damaged_range_of_ranks_is_empty(given: Any) -> None:
    assert rank_list(given) == []
    assert rank_list([0, True, "1", -4, 10**12, 2]) == [0, 2]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 2, 5], "ranks 0, 2 and 5"),
        (range(64), "ranks 0 to 63"),
        ([0, 2, 4, 6, 8], "ranks 0, 2, 4 and 2 more"),
    ],
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert in_words(ranks) == words


def test_one_process_has_no_ranks(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
    assert Signals(open_run(tmp_path / "run")).ranks is None
    report = steadyrun.check(tmp_path / "run")
    assert "ranks" not in report.to_dict()
    assert not [asked for asked in report.walk.path if asked.question.code.startswith("R")]


def test_a_job_whose_replicas_could_not_be_compared_is_not_called_healthy(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, rank, 2, np.arange(200), loss=np.linspace(3, 1, 200)).close()
    assert {"R1.1", "R1.2"} <= set(steadyrun.check(tmp_path).unanswered)


def test_ranks_at_different_steps_are_compared_where_both_have_values(tmp_path: Path) -> None:
    write(tmp_path, 0, 2, np.arange(30), **{"lr/0": np.full(30, 1e-3)})
    write(tmp_path, 1, 2, np.arange(20), **{"lr/0": np.where(np.arange(20) < 15, 1e-3, 2e-3)})
    ranks = joined(tmp_path)
    matrix = ranks.matrix("lr/0")
    assert (len(matrix.steps), int(matrix.compared.sum())) == (30, 20)
    assert list(ranks.odd("lr/0")) == [(step, (0, 1)) for step in range(15, 20)]
    assert (ranks.last_step(0), ranks.last_step(1)) == (29, 19)


def test_a_rank_without_files_is_named(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        write(tmp_path, rank, 4, np.arange(20))
    ranks = joined(tmp_path)
    assert (ranks.world, ranks.present, ranks.missing) == (4, (0, 1, 3), (2,))
    report = steadyrun.check(tmp_path)
    assert str(report).splitlines()[0].endswith("last step 19, 4 ranks, rank 2 has no files")
    assert report.to_dict()["ranks"] == {"world": 4, "present": [0, 1, 3], "missing": [2]}
    assert "rank 2 has no files" in report._repr_html_()


def test_a_resumed_rank_counts_with_its_newest_attempt(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, rank, 2, np.arange(20), **{"lr/0": np.full(20, 1e-3 * (1 + rank))}).close()
    for rank in range(2):
        write(tmp_path, rank, 2, np.arange(10, 30), **{"lr/0": np.full(20, 5e-3)})
    matrix = joined(tmp_path).matrix("lr/0")
    assert matrix.steps.tolist() == list(range(30))
    assert matrix.differs.tolist() == [True] * 10 + [False] * 20


def test_a_resume_with_fewer_ranks_leaves_the_others_out(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, 4, np.arange(10)).close()
    for rank in range(2):
        write(tmp_path, rank, 2, np.arange(10, 20))
    ranks = joined(tmp_path)
    assert (ranks.world, ranks.present, ranks.missing) == (2, (0, 1), ())


@pytest.mark.parametrize("closed", [False, True])
def test_a_damaged_rank_is_reported_and_the_others_are_compared(tmp_path: Path, closed: bool) -> None:
    for rank in range(3):
        writer = write(tmp_path, rank, 3, np.arange(20), **{"lr/0": np.full(20, 1e-3)})
        if closed:
            writer.close()
    damaged = next((tmp_path / "metrics" / "rank-00001").glob("steps-*"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    damaged.write_bytes(data)
    (tmp_path / "events" / "rank-00002.jsonl").write_bytes(b"\xff\x00 not an event\n" * 3)
    report = steadyrun.check(tmp_path)
    assert report.ranks is not None
    assert (report.ranks.world, report.ranks.missing) == (3, ())
    assert any(damaged.name in line for line in report.damage)
    assert joined(tmp_path).matrix("lr/0").ranks in {(0, 2), (0, 1, 2)}


def test_a_long_column_is_thinned_alike_on_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrun.signals.ranks._MOST_CELLS", 1)
    for rank in range(3):
        write(tmp_path, rank, 3, np.arange(5000 + rank), **{"lr/0": np.full(5000 + rank, 1e-3)})
    matrix = joined(tmp_path).matrix("lr/0")
    assert len(matrix.steps) < 200
    assert np.all(matrix.compared)
    assert matrix.steps[:32].tolist() == list(range(32))


@pytest.mark.parametrize("closed", [True, False])
def test_the_odd_rank_of_64_is_named(tmp_path: Path, closed: bool) -> None:
    for rank in range(64):
        write_rank(tmp_path, rank, 64, 300, odd=rank == 17, closed=closed)
    report = steadyrun.check(tmp_path)
    assert report.headline is not None
    assert (report.headline.question.code, report.headline.answer.outcome) == ("R1.2", "parted")
    assert "between 100 and 150: rank 17 differs from the other 63" in report.headline.answer.message
    assert "64 ranks" in str(report).splitlines()[0]
    assert len(str(report).splitlines()) <= 25
