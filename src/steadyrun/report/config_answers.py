"""What the recorder noted about the declared config: names and values that are not compared with the run."""

from __future__ import annotations

from steadyrun.questions.form import NOTE, Answer, Outcome, Question
from steadyrun.report.kept_answers import cannot_be_asked
from steadyrun.report.two_sources import CONFIG
from steadyrun.store.reader import RunReader
from steadyrun.trees.walker import Asked

KIND = "config-note"  # of the events that the recorder writes
_FIX = "Rename it in the config that steadyrun.record gets; names of your own are kept and need no change."


def noted_config(view: RunReader) -> list[Asked]:
    """One note with everything in the config that looks like a known name or value and is not; [] if all is known."""
    texts = list(dict.fromkeys(str(event.fields.get("why", "")) for event in view.events(KIND)))
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
