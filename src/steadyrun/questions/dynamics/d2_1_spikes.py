"""D2.1: does the loss jump above what it was?"""

from __future__ import annotations

from steadyrun.questions.dynamics.run_spikes import SIGMAS, WINDOW, find_spikes, window_of
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.spikes import LossJump, jump_of
from steadyrun.text import shown

_SHOWN = 3
_PER = 1000  # steps: the unit of how often it spikes


def find(run: Signals, limit: Limits) -> Finding:
    points = run.points("loss")
    window = window_of(run, limit)
    if limit["losses"] <= len(points) <= window:
        return _in_few(run, points, limit)
    spikes = find_spikes(run, limit)
    per_thousand = _PER * len(spikes) / len(points)
    largest = max(spikes, key=lambda spike: spike.sigmas, default=None)
    measured = {
        "spikes": float(len(spikes)),
        "per_thousand": per_thousand,
        "sigmas": largest.sigmas if largest else 0.0,
    }
    unit = run.counted(points)
    if largest is None:
        return Finding(
            "pass",
            f"no loss is {limit['sigmas']:g} deviations above the mean of the {window} {unit} before it.",
            measured,
        )
    shown_ones = sorted(spikes, key=lambda spike: -spike.sigmas)[:_SHOWN]
    peaks = "; ".join(
        f"step {s.peak_step}: {shown(s.value)}, {shown(s.sigmas)} deviations above {shown(s.level)}" for s in shown_ones
    )
    more = f" and {len(spikes) - _SHOWN} more" if len(spikes) > _SHOWN else ""
    message = (
        f"{len(spikes)} times the loss is {limit['sigmas']:g} deviations above the {window} {unit} "
        f"before it ({peaks}{more})."
    )
    from steadyrun.questions.dynamics import d2_3_cause  # it imports the rule of this question

    noise = limit.of(d2_3_cause.QUESTION)["noise"]
    if largest.sigmas <= noise:
        return Finding("noise", f"{message[:-1]}: within the noise of a run, up to {noise:g}.", measured)
    return Finding("flagged", message, measured, largest.peak_step)


def _in_few(run: Signals, points: Points, limit: Limits) -> Finding:
    """A record too short for the deviation of a window: a jump beyond the noise of all other points."""
    jump = jump_of(run, limit["times"], limit["clear"], rose=limit["rose"], look_back=limit.count("look_back"))
    if jump is None:
        words = f"no loss of {len(points)} jumps to {limit['times']:g} times the losses before it, beyond their noise."
        return Finding("pass", words)
    outcome = "flagged" if _validation_kept(run, jump) else "jump"
    return Finding(outcome, jump.words, {"times": jump.times}, jump.step)


def _validation_kept(run: Signals, jump: LossJump) -> bool:
    """Whether validation is no worse after the jump: then training has become harder, not the model worse."""
    val = run.maybe("val_loss")
    if val is None:
        return False
    before, after = val.values[val.steps < jump.began], val.values[val.steps >= jump.step]
    return bool(len(before) and len(after)) and float(after[-1]) <= float(before[-1])


QUESTION = Question(
    code="D2.1",
    name="loss spikes",
    asks="Is there a step whose loss is 3 deviations or more above the mean of the 100 steps before it?",
    why="A spike is the visible part of an update that went wrong. The rule also flags ordinary noise, one to four "
    "times "
    "in 2,000 healthy steps: it is where the section starts, not a fault.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="window",
            value=WINDOW,
            unit="steps",
            meaning="the window before",
            seed="100 steps",
            decision="as specified; 20 logged points or more where the record is sparse",
        ),
        Threshold(
            name="sigmas",
            value=SIGMAS,
            unit="deviations",
            meaning="height of a spike",
            seed="3 sigma",
            decision="as specified; never a fault by itself",
            of="sigmas",
        ),
        Threshold(
            name="times",
            value=1.5,
            unit="times the middle of the points before",
            meaning="a jump in a record too short for deviations",
            seed="",
            decision="an excerpt of a public log goes from 2.8 to 8.7, another from 2.2 to 5.1; healthy logs of "
            "40 to 20,000 "
            "points come to 1.2 after their first quarter",
            of="times",
        ),
        Threshold(
            name="clear",
            value=4,
            unit="times the largest move of another point from its neighbours",
            meaning="a jump in such a record must be this high as well",
            seed="",
            decision="losses of single batches come to 5 times their level and back; of 318 healthy runs, each "
            "read in 14 forms of a log (most of 8 to 100 points), one jumps so far, and its data changes there",
        ),
        LOSSES,
        Threshold(
            name="points",
            value=20,
            unit="logged points",
            meaning="the window has at least this many in a sparse record",
            seed="",
            decision="fewer have no standard deviation to speak of",
        ),
        Threshold(
            name="rose",
            value=2.0,
            unit="times the median of the norms before",
            meaning="a gradient norm that rose before such a jump",
            seed="",
            decision="it decides nothing: the rise is mentioned with the jump",
        ),
        Threshold(
            name="look_back",
            value=10,
            unit="points",
            meaning="how far before such a jump the gradient may have risen",
            seed="",
            decision="it decides nothing: the rise is mentioned with the jump",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no spike"),
        Outcome(name="noise", answer=PASS, meaning="no spike beyond the noise that healthy runs have"),
        Outcome(
            name="jump",
            answer=SUSPECT,
            meaning="the loss jumped, in a record too short for a standard deviation",
            fix="Go back to the checkpoint before the jump and leave its batches out, or lower the rate there.",
            experiment="Train on from the checkpoint before the jump, once with the same batches and once with "
            "others. If only the same ones jump, it is the data; if both do, it is the rate or the optimizer's state.",
        ),
        Outcome(name="flagged", answer=NOTE, meaning="the loss jumped; what came of it is asked next"),
    ),
    find=find,
)
