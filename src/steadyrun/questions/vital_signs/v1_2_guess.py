"""V1.2: does the model beat a guess?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    known, loss = known_facts(run, limit), levels(run, limit["losses"])
    if known.guess is None:
        raise NotApplicable("the loss of a guess is not known for this objective", "vocab_size")
    if known.guess < limit["entropy"]:
        raise NotApplicable(f"almost all targets are of one class: a guess costs {shown(known.guess)}")
    ratio = loss.end / known.guess
    measured = {"guess": known.guess, "end": loss.end, "ratio": ratio, "steps": loss.steps}
    words = f"{known.guess_why}; the loss ends at {shown(loss.end)}"
    if ratio < limit["beats"]:
        return Finding("beats", f"{words}.", measured)
    if ratio > 1 + limit["worse"] and loss.steps >= limit["steps"]:
        return Finding("worse", f"{words}, {ratio:.2f} times that.", measured)
    early = loss.steps < limit["patience"] or run.running or known.start == LEARNED
    return Finding("not-yet" if early else "no-better", f"{words} after {loss.steps:.0f} steps.", measured)


_EXPERIMENT = (
    "Overfit one batch (steadyrun preflight --deep). If that works, the labels do not belong to the inputs, or the "
    "rate is wrong; if not, the model or the loss is broken."
)

QUESTION = Question(
    code="V1.2",
    name="the model beats a guess",
    asks="Is the loss below that of guessing by class frequency?",
    why="A classifier or language model that has learned anything from its inputs is better than a guess that ignores "
    "them.",
    needs=("loss", "vocab_size"),
    panel=1,
    thresholds=(
        Threshold(
            name="beats",
            value=0.985,
            unit="of a guess's loss",
            meaning="what the loss must get below",
            seed="",
            decision="as in S1.4: noise",
            of="ratio",
        ),
        Threshold(
            name="worse",
            value=0.1,
            unit="of a guess's loss",
            meaning="how far above a guess a loss may end",
            seed="",
            decision="label smoothing and mixup raise a loss by less",
        ),
        Threshold(
            name="steps",
            value=50,
            unit="steps",
            meaning="before this, a loss above a guess may be the start",
            seed="",
            decision="runs that start a little too wide are below a guess by then",
        ),
        Threshold(
            name="patience",
            value=300,
            unit="steps",
            meaning="how long a run may take to beat a guess",
            seed="",
            decision="as in S1.4",
        ),
        Threshold(
            name="entropy",
            value=0.05,
            unit="nats",
            meaning="a guess this good leaves nothing to learn",
            seed="",
            decision="one class in a hundred differs",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="beats", answer=PASS, meaning="the model uses its inputs"),
        Outcome(name="not-yet", answer=NOTE, meaning="the model does not beat a guess yet"),
        Outcome(
            name="no-better",
            answer=SUSPECT,
            meaning="the model knows the class frequencies and nothing else",
            fix="Check that inputs and labels belong together, and that the learning rate fits.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="worse",
            answer=SUSPECT,
            meaning="the model is worse than a guess: the run diverged, or its labels are wrong",
            fix="Lower the learning rate by ten, and check the labels.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
