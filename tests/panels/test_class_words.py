"""Verb forms are the subject of the tutor alone: a run without such classes hears nothing of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic import Synthetic

import steadyrun
from steadyrun.panels.board import board_of, build
from steadyrun.report.file_formats import junit, markdown
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk

WORDS = re.compile(r"regular|verb|\bforms?\b|tangled", re.IGNORECASE)
FALLING = [3.0 - step / 100 for step in range(200)]


def recorded(path: Path, *names: str) -> Path:
    with steadyrun.record(path) as run:
        for loss in FALLING:
            run.step(loss, class_losses=dict.fromkeys(names, loss))
    return path


@pytest.mark.parametrize("names", [(), ("short", "long")])
def test_other_runs_hear_nothing_of_verb_forms(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = recorded(tmp_path / "run", *names)
    report = steadyrun.check(folder, everything=True)
    text = "\n".join([str(report), markdown(report), report._repr_html_()])
    assert not WORDS.search(text)
    board = board_of(folder)
    panel = board.panels[6]
    assert not WORDS.search(
        " ".join([panel.title, panel.caption, panel.badge, panel.missing, *(glance.asks for glance in board.reading)])
    )
    assert not [answered for answered in board.walk if answered.code.startswith("S7")]
    content = report.to_dict()
    assert [entry["answer"] for entry in content["walk"] if entry["code"].startswith("S7")] == ["not-applicable"] * 2
    assert not [entry for entry in content["not_asked"] if entry["code"].startswith("S7")]
    assert "S7.1" in junit(report)


def test_a_run_about_them_is_asked(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", "regular", "irregular")
    board = board_of(folder)
    assert "memorise individual forms" in board.panels[6].title
    assert "Irregular forms" in board.reading[-1].asks
    signals = Signals(Synthetic(**{f"class_loss/{name}": FALLING * 10 for name in ("regular", "irregular")}))
    asked = {a.question.code: a.answer.kind for a in walk(QUESTIONS, signals, {}, go_on=True).path}
    assert asked["S7.1"] in {"pass", "note"}
    assert build(signals, steadyrun.check(folder)).panels[6].title == board.panels[6].title
