"""Whatever a line of the event log holds: it is an event, or costs itself and is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile import (
    EVENTS,
    assert_true_or_said,
    copied,
    read_all,
)

import steadyrun
from steadyrun.store import events, reader
from steadyrun.store.reader import open_run

LINES = {
    "infinite step": '{"kind": "note", "step": 1e999, "time": 0}',
    "no step": '{"kind": "note", "step": NaN, "time": 0}',
    "half a step": '{"kind": "note", "step": 1.5, "time": 0}',
    "huge step": f'{{"kind": "validation", "step": {10**30}, "time": 0, "values": {{"val_loss": 1}}}}',
    "a little too large": f'{{"kind": "note", "step": {2**63}, "time": 0}}',
    "huge time": '{"kind": "note", "step": 1, "time": ' + "9" * 400 + "}",
    "infinite time": '{"kind": "note", "step": 1, "time": "inf"}',
    "deep": '{"kind": "note", "step": 1, "time": 0, "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "values a list": '{"kind": "validation", "step": 1, "time": 0, "values": [1, 2]}',
    "values words": '{"kind": "validation", "step": 1, "time": 0, "values": {"val_loss": "abc"}}',
    "values null": '{"kind": "validation", "step": 1, "time": 0, "values": {"val_loss": null}}',
    "values objects": '{"kind": "validation", "step": 1, "time": 0, "values": {"val_loss": {"a": 1}}}',
    "attempt words": '{"kind": "resume", "step": 1, "time": 0, "attempt": "x"}',
    "attempt null": '{"kind": "resume", "step": 1, "time": 0, "attempt": null}',
    "attempt infinite": '{"kind": "resume", "step": 1, "time": 0, "attempt": Infinity}',
    "kind a list": '{"kind": ["note"], "step": 1, "time": 0}',
    "a list": "[1, 2]",
    "words": "hello",
}


@pytest.mark.parametrize("name", LINES)
def test_an_odd_line_costs_itself(closed: Path, tmp_path: Path, name: str) -> None:
    run = copied(closed, tmp_path)
    with (run / EVENTS).open("a") as file:
        file.write(LINES[name] + '\n{"kind": "note", "step": 3, "time": 1}\n')
    assert assert_true_or_said(run) == [f"rank-00000.jsonl: {len(LINES[name])} bytes not read, line 5 is not an event"]
    assert len(read_all(run)) == 1
    assert open_run(run).events("note")[0].step == 3


def test_lines_of_an_older_version_read(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    lines = [json.loads(line) for line in (run / EVENTS).read_text().splitlines()]
    for line in lines:
        assert len(line.pop("crc")) == 8
    (run / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert assert_true_or_said(run) == []


def test_lines_that_another_tool_wrote_again_read(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    lines = [json.loads(line) for line in (run / EVENTS).read_text().splitlines()]
    (run / EVENTS).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert assert_true_or_said(run) == []
    assert "crc" not in open_run(run).events()[0].fields


def test_a_flipped_digit_is_said(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    text = (run / EVENTS).read_text()
    (run / EVENTS).write_text(text.replace('"val_loss": 1.19', '"val_loss": 9.19'))
    assert "its checksum does not match" in assert_true_or_said(run)[0]


def test_many_odd_lines_are_counted_and_not_listed(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    with (run / EVENTS).open("a") as file:
        file.write("garbage\n" * 5_000)
    said = assert_true_or_said(run)
    assert len(said) == 21
    assert said[-1].startswith("rank-00000.jsonl: 34860 bytes not read, 4,980 more lines")


@pytest.mark.parametrize("limit", ["_MOST", "_LARGEST"])
def test_of_an_endless_log_the_beginning_is_read(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    run = copied(closed, tmp_path)
    monkeypatch.setattr(events, limit, {"_MOST": 4, "_LARGEST": (run / EVENTS).stat().st_size}[limit])
    with (run / EVENTS).open("a") as file:
        file.write('{"kind": "note", "step": 3, "time": 1}\n' * 100)
    assert assert_true_or_said(run) == ["rank-00000.jsonl: 3900 bytes not read, the log is larger than steadyrun reads"]


def test_resumes_are_followed_in_one_pass() -> None:
    looks = 0

    class Looked(steadyrun.records.Event):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name == "kind"
            return super().__getattribute__(name)

    made = [Looked("resume" if step % 2 else "validation", step, 0.0) for step in range(2_000)]
    assert len(reader._without_repeated_steps(made)) == 2_000
    assert looks <= 4 * len(made)
