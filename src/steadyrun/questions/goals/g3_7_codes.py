"""G3.7: are the codes of a codebook in use?"""

from __future__ import annotations

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import MANY
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import last_level
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import has_codebook, words_of
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    names = [name for name in run.own if "perplexity" in words_of(name)] if has_codebook(run) else []
    points = next((each for name in names if (each := run.maybe(name)) is not None), None)
    if points is None or len(points) < limit["many"]:
        raise NotApplicable("no perplexity of a codebook was logged often enough")
    last = last_level(points)
    words = f"The perplexity of the codes is {shown(last)} at the end"
    if last < limit["one"]:
        return Finding("one-code", f"{words} (limit {limit['one']:g}).", {"perplexity": last})
    return Finding("used", f"{words}.", {"perplexity": last})


QUESTION = Question(
    code="G3.7",
    name="codes are in use",
    asks="Does a model with a codebook use several of its codes?",
    why="If one code is nearest to everything, the code carries no information, and the other codes never learn.",
    needs=("perplexity",),
    panel=1,
    thresholds=(
        MANY,
        Threshold(
            name="one",
            value=1.5,
            unit="codes",
            meaning="with a lower perplexity, nearly everything has one code",
            seed="",
            decision="a perplexity of 1 is one code; healthy runs with eight codes end at 5.7",
        ),
    ),
    outcomes=(
        Outcome(name="used", answer=PASS, meaning="several codes are in use"),
        Outcome(
            name="one-code",
            answer=SUSPECT,
            meaning="one code stands for everything",
            fix="Start the codes where the encoder's vectors are (from a batch of them), and replace unused codes.",
            experiment="Print the distances of one encoded batch to all codes. If one code is always nearest, the "
            "others are out of reach.",
            explains=("V1", "C4"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
