"""Real programs of several ranks over gloo: every mistake is found with its ranks, and healthy programs are silent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun
from steadyrun.questions.form import FAULT, SUSPECT
from steadyrun.report.report import Report

PROGRAM = Path(__file__).with_name("program.py")
HEALTHY = (
    "ddp",
    "batch-norm",
    "dropout",
    "padded",
    "duplicates",
    "accumulation",
    "ema",
    "join",
    "fsdp",
    "tensor-parallel",
    "by-hand",
    "best-loaded",
    "zero",
    "apart",
    "two-passes",
    "unused",
    "static-graph",
    "fsdp-accumulation",
    "fsdp-tensor-parallel",
    "replicated-shards",
    "power-sgd",
    "drawn-with-replacement",
    "validated-on-one",
    "compressed",
    "local-sgd",
    "augmented",
)
FOUND = {
    "past-ddp": "R1.1 not-averaged",
    "no-sync": "R1.1 not-averaged",
    "outside": "R1.1 partly",
    "loss-scale": "R1.3 loss-scale",
    "clip-by-rank": "R1.3 clip",
    "rate": "R1.3 rate",
    "other-start": "R1.2 other-start",
    "bit-flip": "R1.2 parted",
    "by-hand-in-part": "R1.1 some-differ",
    "late-change": "R1.2 other-end",
    "same-data": "R2.1 same",
    "other-transform": "R2.4 inputs",
    "evaluation-mode": "R1.3 mode",
    "group-of-one": "R1.1 perhaps-not-averaged",
    "own-split": "R2.1 perhaps-overlap",
    "no-sampler": "R2.1 overlap",
    "second-pass": "R1.1 not-averaged",
    "never-averaged": "R1.1 perhaps-not-averaged",
    "added-up": "R1.1 perhaps-sum",
    "clip-early": "R1.3 clip-early",
    "no-batch": "R2.1 same",
    "hook": "R1.1 by-hook",
    "loaded": "R1.2 other-start",
    "gradient-flip": "R1.2 parted",
    "some-shards": "R1.6 perhaps-equal",
    "sampler-seed": "R2.1 overlap",
    "set-epoch": "R2.2 repeats",
    "decay": "R1.3 optimizer",
    "fewer-parameters": "R1.3 optimizer",
    "state-on-one": "R1.2 other-state",
    "fsdp-unsynced": "R1.1 not-reduced",
    "parallel-on-other-data": "R1.1 other-batches",
    "nan": "R3.1 first",
    "broadcast-off": "R1.4 differ",
    "local-norm": "R1.5 local-norm",
    "equal-shards": "R1.6 equal",
}


def launch(folder: Path, world: int, names: list[str]) -> Path:
    """Train the cases in one launch, which takes seconds by itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-addr", "127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *words, "--master-port", str(port), str(PROGRAM), str(folder), *names],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launch(tmp_path_factory.mktemp("two"), 2, [*HEALTHY, *FOUND])


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launch(tmp_path_factory.mktemp("four"), 4, [*HEALTHY, *FOUND])


def silent(report: Report) -> None:
    grave = [asked for asked in report.walk.path if asked.answer.kind in {FAULT, SUSPECT}]
    assert not grave, [(asked.question.code, asked.answer.message) for asked in grave]


def found(report: Report, world: int) -> str:
    """The headline of a mistake, which names ranks; the message of its answer."""
    headline = report.headline
    assert headline is not None
    assert report.ranks is not None
    assert (report.ranks.world, report.ranks.missing) == (world, ())
    return f"{headline.question.code} {headline.answer.outcome}"


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_of_two_ranks_are_silent(two: Path, name: str) -> None:
    silent(steadyrun.check(two / name, everything=True))


def test_ranks_that_nobody_averages_are_noted(two: Path) -> None:
    notes = steadyrun.check(two / "apart", everything=True).notes
    assert "R1.1 not-compared" in [f"{note.question.code} {note.answer.outcome}" for note in notes]


def test_an_average_of_parameters_from_time_to_time_is_noted(two: Path) -> None:
    notes = steadyrun.check(two / "local-sgd", everything=True).notes
    assert "R1.1 periodic" in [f"{note.question.code} {note.answer.outcome}" for note in notes]


def test_recording_adds_no_collective(two: Path) -> None:
    """What a program runs by itself, and nothing else: the first step of DDP rebuilds its buckets."""
    for name, own in (("never-averaged", 0), ("added-up", 6), ("by-hand", 6)):
        for rank in (0, 1):
            assert set(steadyrun.open_run(two / name).series("collectives", rank).values) == {own}


def test_a_sharded_optimizer_is_compared_by_the_gradients_of_the_whole_model(two: Path) -> None:
    view = steadyrun.open_run(two / "zero")
    blocks = {name for rank in (0, 1) for name in view.names(rank) if name.startswith("gradient_digest/replicated/")}
    assert blocks == {f"gradient_digest/replicated/{layer}" for layer in (0, 2, 4)}
    assert view.events("optimizer-replaced") == []
    assert set(view.series("optimizer_steps").values) == {1.0}


@pytest.mark.parametrize("name", FOUND)
def test_each_mistake_of_two_ranks_is_the_headline(two: Path, name: str) -> None:
    report = steadyrun.check(two / name)
    assert found(report, 2) == FOUND[name]
    assert report.headline is not None
    assert "rank" in report.headline.answer.message.lower()
    assert report.headline.answer.step is not None
    assert report.to_dict()["headline"]["ranks"]


def test_the_rank_with_the_first_nan_is_named(two: Path) -> None:
    message = steadyrun.check(two / "nan").headline.answer.message  # type: ignore[union-attr]
    assert message == "The loss of rank 1 is not finite from step 30 on; the others follow at step 31."


def test_a_flipped_bit_is_dated_and_its_size_is_given(two: Path) -> None:
    message = steadyrun.check(two / "bit-flip").headline.answer.message  # type: ignore[union-attr]
    assert "since a step between 10 and" in message
    assert "first in 0" in message
    assert "of its size" in message


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_of_four_ranks_are_silent(four: Path, name: str) -> None:
    silent(steadyrun.check(four / name, everything=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_each_mistake_of_four_ranks_is_the_headline(four: Path, name: str) -> None:
    assert found(steadyrun.check(four / name), 4) == FOUND[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bit-flip", "rate", "clip-by-rank", "nan"])
def test_the_odd_rank_of_four_is_named(four: Path, name: str) -> None:
    assert "rank 3" in steadyrun.check(four / name).headline.answer.message  # type: ignore[union-attr]
