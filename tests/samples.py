"""Hand-made questions, answers and reports, so that tests of their forms depend on no real question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steadyrun.questions.form import (
    CANNOT_TELL,
    FAULT,
    NOT_APPLICABLE,
    NOTE,
    PASS,
    SUSPECT,
    Answer,
    Finding,
    Limits,
    Outcome,
    Question,
    Threshold,
)
from steadyrun.report import Report
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked, Walk

HOSTILE = "[red]x[/red] </td><script>alert(1)</script> & | ` * @all \x1b[31m\x00\x07\n\r\u202e\u2066 \udcff \ufffe \x9b"
"""A name that is markup in every form, moves cursors, reorders lines and has no UTF-8."""


def _manifest(text: str) -> Callable[[Path], None]:
    return lambda run: (run / "manifest.json").write_text(text) and None


def _event(line: str) -> Callable[[Path], None]:
    def append(run: Path) -> None:
        with (run / "events/rank-00000.jsonl").open("a") as file:
            file.write(line + "\n")

    return append


ODD_RUNS: dict[str, Callable[[Path], None]] = {
    "deep manifest": _manifest('{"schema": 1, "config": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "long number": _manifest('{"schema": 1, "config": ' + "9" * 5_000 + "}"),
    "process and state": _manifest('{"schema": 1, "state": [1], "process": {"started": NaN, "pid": 1e999, "host": 1}}'),
    "process words": _manifest('{"schema": 1, "state": "running", "process": "x"}'),
    "infinite step": _event('{"kind": "note", "step": 1e999, "time": 0}'),
    "values": _event('{"kind": "validation", "step": 1, "time": 0, "values": {"val_loss": null}}'),
    "attempt": _event('{"kind": "resume", "step": 1, "time": 0, "attempt": "x"}'),
    "rank": lambda run: (run / "metrics/rank-²").mkdir(),
    "Parquet": lambda run: (run / "metrics/rank-00000/steps-001.parquet").write_bytes(b"PAR1PAR1") and None,
}
"""What one may find in a run directory, by what is odd about it: how to make a run so."""

HIGH = Threshold(
    name="high", value=5.0, unit="nats", meaning="more than this", seed="5 at most", decision="as specified", of="level"
)
OUTCOMES = (
    Outcome(name="pass", answer=PASS, meaning="all is well"),
    Outcome(name="off", answer=NOTE, meaning="a little off", fix="Look at it some day."),
    Outcome(name="likely", answer=SUSPECT, meaning="it looks broken", fix="Mend it.", experiment="Try it alone."),
    Outcome(name="broken", answer=FAULT, meaning="it is broken", fix="Mend it."),
)


def question(code: str = "C1.1", name: str = "first things", find: Any = None, **changed: Any) -> Question:
    parts: dict[str, Any] = {
        "asks": "Is it so?",
        "why": "Because.",
        "needs": ("loss", "vocab_size or num_classes", "unheard_of"),
        "panel": 2,
        "thresholds": (HIGH,),
        "outcomes": OUTCOMES,
        "edges": {"broken": ("C9",)},
    }
    return Question(code, name, find=find or (lambda run, limit: Finding("pass", "fine")), **parts | changed)


def asked(code: str, kind: str, *, changed: Mapping[str, float] | None = None, **answer: Any) -> Asked:
    outcomes = {PASS: "pass", NOTE: "off", SUSPECT: "likely", FAULT: "broken"}
    outcomes |= {CANNOT_TELL: "missing", NOT_APPLICABLE: "not-applicable"}
    parts = {"outcome": outcomes[kind], "message": f"message of {code}"} | answer
    return Asked(question(code), Answer(kind, **parts), changed or {})


def report(*path: Asked, not_reached: tuple[Question, ...] = (), **parts: Any) -> Report:
    return Report(**{"run": "runs/a", "walk": Walk(path, not_reached), "state": "finished", "last_step": 99} | parts)


def fault_report(**parts: Any) -> Report:
    """A pass, a note, something missing, something that does not apply, then a fault with a changed limit."""
    fault = asked(
        "C3.1",
        FAULT,
        changed={"high": 8.0},
        message="level 9 above 8.",
        measured={"level": 9.0, "bad": float("nan")},
        step=12,
        fix="Mend it.",
    )
    path = (
        asked("C1.1", PASS),
        asked("C1.2", NOTE, step=3, fix="Look at it some day."),
        asked("C2.1", CANNOT_TELL, missing=("lr/*",), how_to_record="call run.watch(model, optimizer)"),
        asked("C2.2", NOT_APPLICABLE),
        fault,
    )
    return report(*path, not_reached=(question("D1.1"),), **parts)


def healthy_report(**parts: Any) -> Report:
    return report(*(asked(code, PASS) for code in ("C3.1", "C4.1", "D1.1", "D2.1", "D4.1")), **parts)


def first_loss(run: Signals, limit: Limits) -> Finding:
    """A question's function: the loss of the first step, against a limit."""
    loss = float(run.points("loss").values[0])
    outcome = "broken" if loss > limit["high"] else "pass"
    return Finding(outcome, f"loss {loss:.3g}, limit {limit['high']:g}.", {"level": loss}, 0)


def something_missing(run: Signals, limit: Limits) -> Finding:
    raise MissingSignal("sunshine", how="record sunshine")


def few_questions(missing: bool = False) -> dict[str, Question]:
    """Questions that answer on real runs what a test wants to hear: bad-init is a fault, healthy is healthy."""
    loud = Threshold(
        name="high",
        value=20.0,
        unit="nats",
        meaning="more than this",
        seed="",
        decision="between healthy and faulty",
        of="level",
    )
    last = something_missing if missing else None
    return {
        "C1.1": question("C1.1", "first loss", first_loss, thresholds=(loud,)),
        "C4.1": question("C4.1", "losses fall"),
        "D1.1": question("D1.1", "finite"),
        "D2.1": question("D2.1", "no spike"),
        "D4.1": question("D4.1", "no drift", last),
    }


@contextmanager
def only(questions: Mapping[str, Question]) -> Iterator[None]:
    """Ask these questions and no others."""
    real = dict(QUESTIONS)
    try:
        QUESTIONS.clear()
        QUESTIONS.update(questions)
        yield
    finally:
        QUESTIONS.clear()
        QUESTIONS.update(real)
