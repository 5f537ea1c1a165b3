"""The tree as text."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from samples import HOSTILE, asked, fault_report, healthy_report, question, report

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS
from steadyrun.report.comparison import compare
from steadyrun.report.report import Report
from steadyrun.report.terminal import change_line, plain, show, verdict_line


def whole(made: Report) -> Report:
    return replace(made, verbose=True)


def test_a_fault_is_shown_with_its_evidence_its_fix_and_what_to_type_next() -> None:
    assert plain(fault_report()) == (
        "✗ fault  runs/a  finished, last step 99\n"
        "✗ it is broken (C3.1, step 12)\n"
        "  evidence: level 9 above 8. (limit high changed from 5 to 8)\n"
        "  fix: Mend it.\n"
        "noted: a little off (C1.2)\n"
        "to learn more: call run.watch(model, optimizer) (C2.1)\n"
        "next\n"
        "  steadyrun explain C3.1\n"
        "  steadyrun check NEW_RUN --after runs/a\n"
        "  steadyrun check runs/a --verbose  # 1 passed, 1 not answered, 1 not applicable\n"
    )


def test_verbose_shows_the_walk_and_every_limit() -> None:
    assert plain(whole(fault_report())) == (
        "✗ fault  runs/a  finished, last step 99\n"
        "the walk\n"
        "├── ✓ C1.1 first things, pass: message of C1.1\n"
        "├── ! C1.2 first things, note: message of C1.2\n"
        "├── ? C2.1 first things, cannot tell: message of C2.1\n"
        "├── ✗ C3.1 first things, fault: level 9 above 8. (limit high changed from 5 to 8)\n"
        "├── 1 question does not apply (--all lists them)\n"
        "└── 1 question not asked: the walk ends at the first fault (--all goes on)\n"
        "✗ it is broken (C3.1, step 12)\n"
        "  evidence: level 9 above 8. (limit high changed from 5 to 8)\n"
        "  fix: Mend it.\n"
        "  measured: level 9, bad nan\n"
        "  drawn on: panel 2\n"
        "  limit: high 8 nats (changed by the user, 5 before)\n"
        "noted: C1.2 first things: a little off. Look at it some day.\n"
        "to learn more: call run.watch(model, optimizer) (C2.1)\n"
        "next\n"
        "  steadyrun explain C3.1\n"
        "  steadyrun check NEW_RUN --after runs/a\n"
    )


def test_what_does_not_apply_is_counted_unless_all_is_asked_for() -> None:
    path = [asked("C1.1", PASS), asked("C2.1", NOT_APPLICABLE), asked("C2.2", NOT_APPLICABLE)]
    short, every = plain(whole(report(*path))), plain(report(*path, whole=True))
    assert "└── 2 questions do not apply (--all lists them)\n" in short
    assert "C2.1 " not in short
    assert "- C2.1 first things, not applicable: message of C2.1\n" in every
    assert "do not apply" not in every


def test_a_healthy_run_is_short() -> None:
    lines = plain(healthy_report()).splitlines()
    assert lines[:2] == ["✓ healthy  runs/a  finished, last step 99", "No fault found."]
    assert len(lines) == 3


def test_what_keeps_a_run_from_being_called_healthy_is_said() -> None:
    text = plain(report(asked("C4.1", PASS), asked("D1.1", CANNOT_TELL, how_to_record="record it")))
    assert "\nNo fault found, but not answered: D1.1, D2.1, D4.1.\n" in text
    assert "next\n  steadyrun explain D1.1\n" in text


def test_a_report_prints_as_its_text() -> None:
    assert str(fault_report()) == plain(fault_report()).rstrip()
    assert repr(fault_report()) == "<steadyrun report of 'runs/a', fault>"


def test_damage_is_shown_and_lists_end() -> None:
    missing = [asked(f"C{n}.1", CANNOT_TELL, how_to_record=f"record {n}") for n in range(1, 21)]
    text = plain(report(*missing, damage=("steps.arrow: 9 rows not read, checksum",)))
    assert "not read: steps.arrow: 9 rows not read, checksum\n" in text
    assert "record 2 (C2.1); 5 more\n" in text
    assert "record 3 (C3.1)" not in text


def test_one_remedy_names_all_the_questions_it_answers() -> None:
    path = [asked(code, CANNOT_TELL, how_to_record="call run.watch") for code in ("C1.1", "C2.1", "C3.1")]
    assert "to learn more: call run.watch (C1.1, C2.1, C3.1)\n" in plain(report(*path))


def test_long_lines_stay_lines_when_there_is_no_terminal() -> None:
    text = plain(whole(report(asked("C1.1", PASS, message="word " * 150))))
    assert max(map(len, text.splitlines())) > 700


def test_on_a_terminal_lines_are_wrapped_and_coloured_and_words_remain() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system="standard", highlight=False)
    show(console, report(asked("C1.1", FAULT, message="word " * 30, fix="Mend it.")))
    assert isinstance(console.file, io.StringIO)
    coloured = console.file.getvalue()
    assert "\x1b[1;31m✗ it is broken (C1.1)" in coloured
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert max(map(len, words.splitlines())) <= 60
    assert words.count("word") == 30


@pytest.mark.parametrize("kind", [PASS, NOTE, FAULT, CANNOT_TELL])
def test_hostile_names_are_spelled_out(kind: str) -> None:
    odd = question(code="C1.1", name=HOSTILE)
    answer = asked("C1.1", kind, message=HOSTILE, fix=HOSTILE, how_to_record=HOSTILE)
    made = report(type(answer)(odd, answer.answer, {}), run=HOSTILE, state=HOSTILE, damage=(HOSTILE,))
    text = plain(whole(made), compare(made, healthy_report(run=HOSTILE)))
    assert "[red]x[/red]" in text
    assert r"\x1b[31m\x00\x07\n\r\u202e\u2066 \udcff \ufffe \x9b" in text
    assert all(char.isprintable() or char == "\n" for char in text)
    assert text.encode()


def test_a_symptom_comes_without_a_fix_of_its_own() -> None:
    path = (asked("C1.1", NOTE, outcome="broken", fix="Mend it."), asked("C2.1", FAULT, fix="Do that."))
    text = plain(whole(report(*path)))
    assert "noted: C1.1 first things: it is broken. A symptom.\n" in text
    assert "Mend it." not in text


def test_lines_of_a_log() -> None:
    made = fault_report(state="running")
    assert change_line(made, made.walk.path[0]) == "step 99: ✓ C1.1 first things, pass: message of C1.1"
    assert verdict_line(made) == "step 99: ✗ fault: it is broken (C3.1) at step 12 (running)"
    assert verdict_line(report(last_step=None)).startswith("no steps: ? cannot tell")
