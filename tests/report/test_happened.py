"""The incidents of a run, and what a replay has proved about them, in every form of a report and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from samples import HOSTILE, fault_report, report

import steadyrun
from steadyrun.live.followed_run import Watch
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page
from steadyrun.report.file_formats import markdown
from steadyrun.report.incidents import IncidentCard, incidents
from steadyrun.store.events import EventLog
from steadyrun.store.layout import events_file

ROW = {"factor": "other-batch", "group": "data", "words": "another batch", "gone": True}
UNTESTED = {"factor": "lr/3", "group": "learning-rate", "words": "a third of the rate", "gone": None}
TABLE = {"verdict": "data", "why": "another batch removes it", "interaction": None, "table": [UNTESTED, ROW]}
CULPRIT = {"cause": "bad-input", "message": "row 3 holds NaN.", "fix": "Drop that picture.", "step": 71}
EXAMPLES = [{"row": 3, "dataset_index": 40, "file": "data/7.png"}]


def put(root: Path, step: int, **files: Any) -> Path:
    folder = root / "incidents" / f"step-{step:07d}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"incident": {"step": step, "kind": "non-finite", "why": "loss is nan"}, **files}.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def proof(verdict: str = "bit-equal", **more: Any) -> dict[str, Any]:
    return {"schema": 1, "proof": {"verdict": verdict}, **more}


def test_a_proved_cause(tmp_path: Path) -> None:
    put(tmp_path, 71, replay=proof(culprit=CULPRIT | {"examples": EXAMPLES}), experiments=TABLE)
    [card] = incidents(tmp_path)
    assert card.proved
    assert card.removed_by == ("another batch",)
    assert card.sentence("runs/a") == (
        "step 71, non-finite: loss is nan. Cause, proved by replay: row 3 holds NaN. Rows: 3 (data/7.png). "
        "It is gone with: another batch. Fix: Drop that picture."
    )
    assert card.to_dict()["examples"] == EXAMPLES


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "Not replayed yet: steadyrun replay 'a b' --step 71 --factory FILE.py:FUNCTION"),
        (
            {"incident": {"kind": "spike", "why": "x", "missing": "no checkpoint."}},
            "It cannot be replayed: no checkpoint.",
        ),
        ({"replay": proof("not-reproducible", culprit=CULPRIT), "experiments": TABLE}, "not reproducible."),
        ({"replay": proof()}, "Reproduced by replay (bit-equal); the cause is not decided."),
        ({"replay": proof(), "experiments": {**TABLE, "verdict": "undecided"}}, "the cause is not decided."),
        ({"replay": proof(), "experiments": {**TABLE, "interaction": "both"}}, "the cause is not decided."),
        ({"replay": proof(experiments=TABLE)}, "It is gone with: another batch."),
        ({"replay": proof(), "experiments": {**TABLE, "verdict": "learning-rate"}}, "another batch removes it."),
    ],
)
def test_what_is_not_proved_is_not_said_to_be(files: dict[str, Any], words: str, tmp_path: Path) -> None:
    put(tmp_path, 71, **files)
    [card] = incidents(tmp_path)
    assert card.found("a b").endswith(words)
    assert card.proved == ("proved by replay" in card.found("a b"))


@pytest.mark.parametrize("broken", ["", "[]", "{", "[" * 100_000, '"x"', '{"proof": 7}', '{"proof": {"verdict": []}}'])
def test_damaged_files_count_as_absent(broken: str, tmp_path: Path) -> None:
    put(tmp_path, 71, replay=broken, experiments=broken)
    put(tmp_path, 80, incident=broken if "proof" not in broken else "")
    (tmp_path / "incidents" / "step-x").mkdir()
    [card] = incidents(tmp_path)
    assert (card.step, card.replay, card.proved) == (71, "", False)
    odd = proof(culprit={"message": 3, "examples": [7, {"row": {}}]}, experiments=[])
    put(tmp_path, 71, replay=odd, experiments={"verdict": "data", "why": 5, "table": [3, {"gone": True}]})
    [card] = incidents(tmp_path)
    assert not card.proved
    assert card.sentence("run")


def test_no_incidents(tmp_path: Path) -> None:
    assert incidents(tmp_path) == ()


def test_every_form_shows_it() -> None:
    happened = IncidentCard(
        71, "non-finite", HOSTILE, replay="bit-equal", cause=HOSTILE, removed_by=(HOSTILE,), fix=HOSTILE
    )
    for made in (fault_report(incidents=(happened,)), report(incidents=(happened,))):
        for form in (str(made), markdown(made), made._repr_html_()):
            assert "step 71, non-finite" in form
            assert "proved by replay" in form
            assert "\x1b" not in form
        assert "<script>" not in made._repr_html_()
        assert made.to_dict()["incidents"][0]["cause"] == HOSTILE


def recorded(root: Path) -> None:
    with steadyrun.record(root) as run:
        for step in range(120):
            run.step(2.0 - step / 100)
    EventLog(events_file(root, 0)).write("incident", 71, 1.0, {"incident": "non-finite", "why": "loss is nan"})


def test_the_page_shows_it_and_the_live_page_comes_to_show_it(tmp_path: Path) -> None:
    root = tmp_path / "run"
    recorded(root)
    put(root, 71)
    watch = Watch(root, "run")
    first = watch.look()
    assert first is not None
    assert "Not replayed yet" in first.incidents[0].outcome
    assert watch.look() is None
    why = "<img src=x onerror=alert(1)> holds NaN"
    put(root, 71, replay=proof(culprit=CULPRIT | {"message": why}), experiments=TABLE)
    later = watch.look()
    assert later is not None, "a replay of a run that is over is seen"
    assert later.incidents[0].proved
    html = page(board_of(root))
    assert "Cause, proved by replay:" in html
    assert "It is gone with: another batch." in html
    assert "<img src=x" not in html
    [mark] = [mark for mark in board_of(root).panels[0].marks if mark.kind == "incident"]
    assert "proved by replay" in mark.label


def test_check_says_it(tmp_path: Path) -> None:
    recorded(tmp_path / "run")
    put(tmp_path / "run", 71, replay=proof(culprit=CULPRIT), experiments=TABLE)
    made = steadyrun.check(tmp_path / "run")
    assert "evidence: row 3 holds NaN" in str(made)
    [entry] = made.to_dict()["incidents"]
    assert (entry["proved"], entry["verdict"], entry["removed_by"]) == (True, "data", ["another batch"])
