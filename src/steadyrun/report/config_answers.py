"""The note about the declared config: names and values that look like known ones and are not compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from steadyrun.questions.form import NOTE, Answer, Outcome, Question
from steadyrun.report.kept_answers import cannot_be_asked
from steadyrun.report.two_sources import CONFIG
from steadyrun.signals.config_names import config_notes
from steadyrun.store.reader import RunReader
from steadyrun.trees.walker import Asked

KIND = "config-note"  # of the events that the recorder writes
_FIX = "Rename it in the config; names of your own are kept and need no change."


def noted_config(view: RunReader) -> list[Asked]:
    """The note of a recorded run; [] if everything in its config is known or the user's own."""
    return _note(str(event.fields.get("why", "")) for event in view.events(KIND))


def noted_before(config: Mapping[str, Any] | None) -> list[Asked]:
    """The note about a config that preflight gets."""
    return _note(note.why for note in config_notes(config or {}))


def is_about_config(asked: Asked) -> bool:
    """Whether an answer is such a note."""
    return asked.question.code.startswith(CONFIG)


def _note(whys: Iterable[str]) -> list[Asked]:
    texts = list(dict.fromkeys(whys))
    if not texts:
        return []
    message = f"config: {'; '.join(texts)}"
    outcome = Outcome(name="not-compared", answer=NOTE, meaning=message, fix=_FIX)
    question = Question(
        f"{CONFIG}1.1",
        "declared config",
        "Is everything declared known?",
        "",
        (),
        None,
        (),
        (outcome,),
        cannot_be_asked,
    )
    return [Asked(question, Answer(NOTE, outcome.name, message, fix=_FIX), {})]
