"""Pipes, devices, holes and odd manifests: read, or refused in steadyrun's own words, and what is lost is said."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import (
    EVENTS,
    MANIFEST,
    PARQUET,
    SEGMENT,
    assert_true_or_said,
    copied,
    everything,
    read_all,
    truth,
)

import steadyrun
from steadyrun.store.reader import open_run

MANIFESTS = {
    "deep": '{"schema": 1, "config": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deeper than we write": '{"schema": 1, "config": ' + '{"a": ' * 900 + "1" + "}" * 900 + "}",
    "not UTF-8": '{"schema": 1, "state": "\udcff"}',
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_cannot_be_parsed_costs_itself(closed: Path, tmp_path: Path, name: str) -> None:
    run = copied(closed, tmp_path)
    (run / MANIFEST).write_bytes(MANIFESTS[name].encode("utf-8", "surrogateescape"))
    assert [line for line in read_all(run) if MANIFEST in line]
    assert everything(open_run(run))["loss"] == truth()["loss"]
    shutil.rmtree(run / "metrics")
    shutil.rmtree(run / "events")
    with pytest.raises(steadyrun.errors.RunDirectoryError, match="cannot read"):
        open_run(run)


@pytest.mark.parametrize("digits", [400, 4_000, 5_000])
def test_a_number_that_no_float_holds_is_infinite(closed: Path, tmp_path: Path, digits: int) -> None:
    run = copied(closed, tmp_path)
    keys = ("lr_max", "total_steps", "warmup_steps", "clip", "vocab_size", "batch_size", "seed", "val_every")
    config = ", ".join(f'"{key}": {"9" * digits}' for key in keys)
    (run / MANIFEST).write_text('{"schema": 1, "state": "finished", "config": {"schedule": "cosine", ' + config + "}}")
    assert open_run(run).manifest["config"]["lr_max"] == math.inf
    assert read_all(run) == []
    steadyrun.dashboard(run)


@pytest.mark.parametrize("failure", ["it broke", ["it", "broke"], 7, True])
def test_a_failure_that_is_no_object(closed: Path, tmp_path: Path, failure: object) -> None:
    run = copied(closed, tmp_path)
    (run / MANIFEST).write_text(json.dumps({"schema": 1, "state": "crashed", "failure": failure}))
    assert read_all(run) == []


@pytest.mark.parametrize("name", ["rank-²", "rank-٣٣٣٣٣", "rank-" + "9" * 200, "rank-1"])
def test_a_folder_with_a_name_like_a_rank(closed: Path, tmp_path: Path, name: str) -> None:
    run = copied(closed, tmp_path)
    (run / "metrics" / name).mkdir()
    assert open_run(run).ranks == [0]
    assert read_all(run) == []


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 36)


def folder(path: Path) -> None:
    path.mkdir()


def nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [fifo, endless, sparse, folder, nowhere])
@pytest.mark.parametrize("name", [MANIFEST, EVENTS, PARQUET, SEGMENT, "metrics/rank-00000/log-001.parquet"])
def test_only_regular_files_of_a_sensible_size_are_read(
    closed: Path, killed: Path, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    run = copied(killed if name == SEGMENT else closed, tmp_path)
    (run / name).unlink(missing_ok=True)
    make(run / name)
    said = read_all(run)
    lost = make is nowhere and name == EVENTS  # a link that leads nowhere is no file
    assert lost or [line for line in said if Path(name).name in line], said


@pytest.mark.parametrize("make", [fifo, endless, sparse])
def test_the_answers_of_replays_are_regular_files_as_well(
    closed: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    run = copied(closed, tmp_path)
    (run / "incidents/step-0000010").mkdir(parents=True)
    make(run / "incidents/step-0000010/replay.json")
    assert read_all(run) == []


def test_a_replay_nested_too_deeply_is_passed_over(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    (run / "incidents/step-0000010").mkdir(parents=True)
    (run / "incidents/step-0000010/replay.json").write_text('{"culprit": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert read_all(run) == []


def test_a_run_that_lies_behind_links_reads(closed: Path, tmp_path: Path) -> None:
    """As tools that keep large files elsewhere leave it: the folder a link, and the files links to regular files."""
    run = copied(closed, tmp_path)
    (run / PARQUET).rename(tmp_path / "elsewhere")
    (run / PARQUET).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(run)
    assert assert_true_or_said(tmp_path / "link") == []


@pytest.mark.parametrize("name", [SEGMENT, EVENTS])
def test_an_empty_file_has_lost_what_it_held(killed: Path, tmp_path: Path, name: str) -> None:
    run = copied(killed, tmp_path)
    (run / name).write_bytes(b"")
    assert [line for line in assert_true_or_said(run) if Path(name).name in line and "it is empty" in line]


def test_a_run_that_recorded_nothing_has_lost_nothing(tmp_path: Path) -> None:
    steadyrun.record(tmp_path).close()
    assert open_run(tmp_path).verify() == []
    (tmp_path / EVENTS).touch()  # as older versions left it
    assert open_run(tmp_path).verify() == []
