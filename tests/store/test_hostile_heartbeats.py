"""Heartbeats and Flight Recorder traces are data: whatever their bytes, readers report and go on."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyrun.signals.collectives import waiting_for
from steadyrun.store.flight_recorder import FOLDER, keep_trace, read_traces
from steadyrun.store.heartbeats import heartbeat_file, read_heartbeats, write_heartbeat

BEAT: dict[str, Any] = {
    "rank": 3,
    "world": 8,
    "host": "node-1",
    "pid": 77,
    "step": 12,
    "phase": "backward",
    "step_began": 1e9,
    "now": 1e9 + 5,
    "seconds_in_step": 5.0,
    "state": "running",
}


class Exploding:
    def __reduce__(self) -> Any:
        return os.system, ("touch exploded",)


def test_a_heartbeat_reads_back(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, 3, BEAT)
    beats, bad = read_heartbeats(tmp_path)
    assert bad == []
    beat = beats[3]
    assert (beat.world, beat.host, beat.step, beat.phase, beat.seconds_in_step) == (8, "node-1", 12, "backward", 5.0)
    assert not beat.ended
    assert read_heartbeats(tmp_path / "nothing") == ({}, [])


@pytest.mark.parametrize(
    "change",
    [
        {"world": 0},
        {"world": 10**12},
        {"world": True},
        {"step": "12"},
        {"step": 1e300},
        {"pid": -1},
        {"now": "nan"},
        {"now": 1e300},
        {"seconds_in_step": None},
    ],
)
def test_a_damaged_heartbeat_is_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    write_heartbeat(tmp_path, 3, BEAT | change)
    write_heartbeat(tmp_path, 4, BEAT)
    beats, bad = read_heartbeats(tmp_path)
    assert list(beats) == [4]
    assert len(bad) == 1
    assert f"{next(iter(change))} is not a valid number" in str(bad[0])


def test_links_pipes_and_huge_files_are_not_read(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, 0, BEAT)
    folder = tmp_path / "heartbeats"
    (folder / "rank-00001.json").symlink_to(folder / "rank-00000.json")
    os.mkfifo(folder / "rank-00002.json")
    (folder / "rank-00003.json").write_bytes(b" " * 100_000)
    (folder / "rank-00004.json").mkdir()
    (folder / "../../rank-5.json").resolve().write_text("{}")
    beats, bad = read_heartbeats(tmp_path)
    assert list(beats) == [0]
    assert [dropped.file for dropped in bad] == ["rank-00003.json"]


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=400)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("run")
    for path in (heartbeat_file(root, 0), root / FOLDER / "rank-00000.json"):
        path.parent.mkdir()
        path.write_bytes(content)
    beats, bad = read_heartbeats(root)
    assert len(beats) + len(bad) == 1
    traces, unread = read_traces(root / FOLDER)
    assert len(traces) + len(unread) == 1
    waiting_for(traces)


# -- the Flight Recorder ------------------------------------------------------------------------------------


def entry(
    number: int, name: str = "nccl:all_reduce", group: str = "0", sizes: Any = None, **more: Any
) -> dict[str, Any]:
    return {
        "collective_seq_id": number,
        "profiling_name": name,
        "state": "started",
        "process_group": [group, "default_pg"],
        "input_sizes": sizes or [[8]],
        "is_p2p": False,
        **more,
    }


def dump(*entries: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"version": "2.10", "entries": list(entries), **more}).encode()


def traces_of(folder: Path, *dumps: bytes, name: str = "nccl_trace_rank_{}") -> Any:
    for rank, content in enumerate(dumps):
        (folder / name.format(rank)).write_bytes(content)
    traces, bad = read_traces(folder)
    assert bad == []
    return traces


def test_the_rank_behind(tmp_path: Path) -> None:
    ahead = dump(entry(7), entry(8), entry(9, "nccl:all_gather"), entry(10))
    waiting = waiting_for(traces_of(tmp_path, ahead, dump(entry(7), entry(8)), ahead))
    assert waiting is not None
    assert (waiting.behind, waiting.there, waiting.differs) == ((1,), (0, 2), False)
    assert (waiting.collective.number, waiting.collective.name) == (9, "nccl:all_gather")


def test_another_collective(tmp_path: Path) -> None:
    waiting = waiting_for(traces_of(tmp_path, dump(entry(7), entry(8)), dump(entry(7), entry(8, sizes=[[4]]))))
    assert waiting is not None
    assert (waiting.behind, waiting.differs) == ((1,), True)


def test_ranks_that_are_together(tmp_path: Path) -> None:
    own_group = dump(entry(7), entry(3, group="5"), entry(1, "nccl:send 0->1", is_p2p=True))
    assert waiting_for(traces_of(tmp_path, own_group, dump(entry(7)))) is None
    assert waiting_for({}) is None


def test_a_member_without_collectives_is_behind(tmp_path: Path) -> None:
    config = {"pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}}
    waiting = waiting_for(traces_of(tmp_path, dump(entry(1), **config), dump(**config), name="rank-0000{}.json"))
    assert waiting is not None
    assert waiting.behind == (1,)


def test_pickles_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(Exploding()))
    (tmp_path / "nccl_trace_rank_1").write_bytes(b'{"entries": [{"collective_seq_id": "x"}]}')
    (tmp_path / "notes.txt").write_text("not a trace")
    traces, bad = read_traces(tmp_path)
    assert traces == {}
    assert ["is a pickle, which steadyrun never loads" in str(dropped) for dropped in bad] == [True, False]
    assert all("\n" not in str(dropped) for dropped in bad)
    assert not (tmp_path / "exploded").exists()


def test_only_the_end_of_a_trace_is_kept(tmp_path: Path) -> None:
    keep_trace(tmp_path, 2, dump(*(entry(number, frames=["long"] * 100) for number in range(1000))))
    traces, bad = read_traces(tmp_path / FOLDER)
    assert bad == []
    assert [call.number for call in traces[2].groups["0:default_pg"]] == list(range(950, 1000))
    assert (tmp_path / FOLDER / "rank-00002.json").stat().st_size < 20_000
    keep_trace(tmp_path, 3, None)
    assert not (tmp_path / FOLDER / "rank-00003.json").exists()
