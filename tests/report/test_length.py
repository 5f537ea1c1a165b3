"""A report fits on a screen: at most 15 lines for a healthy run and 25 for a broken one, at 100 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from samples import asked, report

import steadyrun
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOTE, PASS, SUSPECT
from steadyrun.report.incidents import IncidentCard
from steadyrun.report.report import NEEDED_FOR_HEALTHY, Report
from steadyrun.report.summary import short
from steadyrun.report.terminal import show

COLUMNS, HEALTHY, BROKEN = 100, 15, 25
LONG = "the loss of the first steps is far above that of a guess, and it stays there until the last step. " * 6


def lines(made: Report) -> list[str]:
    console = Console(file=io.StringIO(), width=COLUMNS, color_system=None, highlight=False)
    show(console, made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("fault", ["healthy", "bad-init", "no-warmup"])
def test_a_real_report_fits(tutor_run, fault: str) -> None:  # type: ignore[no-untyped-def]
    made = steadyrun.check(tutor_run(fault, steps=60).root)
    assert len(lines(made)) <= (HEALTHY if made.verdict == "healthy" else BROKEN), "\n".join(lines(made))


def test_a_report_with_long_texts_and_many_findings_fits() -> None:
    found = [asked(f"C{n}.1", FAULT, message=LONG, fix=LONG, step=n) for n in range(1, 6)]
    found += [asked(f"S{n}.1", NOTE, message=LONG, fix=LONG) for n in range(1, 6)]
    found += [asked(f"D{n}.1", SUSPECT, message=LONG, experiment=LONG) for n in range(1, 4)]
    found += [asked(f"V1.{n}", CANNOT_TELL, how_to_record=LONG) for n in range(1, 9)]
    happened = tuple(IncidentCard(step, "spike", LONG) for step in range(9))
    made = lines(report(*found, incidents=happened, damage=(LONG,)))
    assert len(made) <= BROKEN, "\n".join(made)
    assert all(len(line.rstrip()) <= COLUMNS for line in made if "steadyrun " not in line), "commands stay whole"


def test_a_healthy_report_fits() -> None:
    signs = [asked(f"V1.{n}", PASS, message="loss 2 at the start, 1 at its best, 1 at the end.") for n in range(1, 9)]
    passed = [asked(code, PASS) for code in NEEDED_FOR_HEALTHY]
    made = lines(report(*passed, *signs, asked("C1.2", NOTE, message=LONG)))
    assert len(made) <= HEALTHY, "\n".join(made)


def test_a_healthy_report_with_incidents_fits_and_shows_the_proved_one() -> None:
    signs = [asked(f"V1.{n}", PASS, message=LONG) for n in range(1, 9)]
    passed = [asked(code, PASS) for code in NEEDED_FOR_HEALTHY]
    cards = [IncidentCard(step, "spike", LONG) for step in (10, 20, 30, 40)]
    cards.append(IncidentCard(50, "spike", LONG, replay="exact", cause=LONG, fix=LONG))
    notes = [asked(f"S{n}.1", NOTE, message=LONG) for n in range(1, 6)]
    made = lines(report(*passed, *signs, *notes, incidents=tuple(cards)))
    assert len(made) <= HEALTHY, "\n".join(made)
    text = "\n".join(made)
    assert "5 incidents" in made[0]
    assert "step 50, spike" in text
    assert "cause, proved by replay" in text
    assert "also: spike at step 10, spike at step 20 and 2 more" in text


def test_a_text_is_cut_at_a_sentence_or_at_a_word() -> None:
    assert short("One. Two.", 20) == "One. Two."
    assert short("One two. Three four five six.", 15) == "One two."
    assert short("one two three four", 10) == "one two …"
