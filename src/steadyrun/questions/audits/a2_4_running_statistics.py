"""A2.4: do running statistics move?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import sampled
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    if run.maybe("running_statistics") is None and "objective" in run.inferred:
        raise NotApplicable("no normalisation layer in training mode keeps running statistics")
    kept, untouched = sampled(run, "running_statistics"), sampled(run, "untouched_statistics")
    later = untouched.where(untouched.steps >= limit["steps"])
    if not len(later):
        raise MissingSignal("untouched_statistics", f"no sample after step {limit['steps']:g} yet")
    layers, still = float(kept.values[-1]), float(later.values[-1])
    measured = {"layers": layers, "untouched": still}
    if still:
        has = "has" if still == 1 else "have"
        message = (
            f"After {later.step_at(-1):,} steps, {still:g} of {layers:g} normalisation layers still {has} initial "
            "statistics (mean 0, variance 1)."
        )
        return Finding("untouched", message, measured, later.step_at(0))
    return Finding("pass", f"The running statistics of all {layers:g} normalisation layers move.", measured)


QUESTION = Question(
    code="A2.4",
    name="running statistics move",
    asks="Do the running statistics of batch normalisation follow the data?",
    why="In evaluation, batch normalisation uses its running statistics. If they never move (momentum 0), evaluation "
    "uses a different model than training.",
    needs=("untouched_statistics",),
    panel=1,
    thresholds=(
        Threshold(
            name="steps",
            value=10,
            unit="steps",
            meaning="by when the statistics must have moved",
            seed="",
            decision="one training pass moves them, whatever the data; ten steps allow for layers that join late",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="running statistics follow the data"),
        Outcome(
            name="untouched",
            answer=FAULT,
            meaning="running statistics still have their initial values",
            fix="Set the momentum of the normalisation layers to 0.1 (0 means never), and load buffers together with "
            "the weights.",
            explains=("C4.2", "S1.3", "S1.4", "V1.3"),
            proved=True,
        ),
    ),
    find=find,
    always=True,
)
