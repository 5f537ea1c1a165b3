"""D2.1: spikes of the loss."""

from __future__ import annotations

from steadyrun.questions.dynamics.run_spikes import SIGMAS, WINDOW, beyond, find_spikes, height, window_of
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.spikes import LossJump, jump_of
from steadyrun.text import counted

_SHOWN = 3
_PER = 1000  # steps: the unit of the spike rate


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
            f"No loss is {limit['sigmas']:g} standard deviations above the mean of the {window} {unit} before it.",
            measured,
        )
    shown_ones = sorted(spikes, key=lambda spike: -spike.sigmas)[:_SHOWN]
    peaks = "; ".join(height(spike) for spike in shown_ones)
    more = f" and {len(spikes) - _SHOWN} more" if len(spikes) > _SHOWN else ""
    height_of_spikes = f"of {limit['sigmas']:g} standard deviations or more"
    message = f"The loss has {counted(len(spikes), 'spike')} {height_of_spikes}: {peaks}{more}."
    from steadyrun.questions.dynamics import d2_3_cause  # it imports the rule of this question

    noise = limit.of(d2_3_cause.QUESTION)["noise"]
    if largest.sigmas <= noise:
        return Finding("noise", f"{message} The highest has {beyond(largest, noise)}.", measured)
    return Finding("flagged", message, measured, largest.peak_step)


def _in_few(run: Signals, points: Points, limit: Limits) -> Finding:
    """A jump beyond the noise of all other points, in a record too short for a standard deviation."""
    jump = jump_of(run, limit["times"], limit["clear"], rose=limit["rose"], look_back=limit.count("look_back"))
    if jump is None:
        words = (
            f"None of {len(points)} losses jumps to {limit['times']:g} times the median of the losses before it, "
            "beyond their noise."
        )
        return Finding("pass", words)
    outcome = "flagged" if _validation_kept(run, jump) else "jump"
    return Finding(outcome, jump.words, {"times": jump.times}, jump.step)


def _validation_kept(run: Signals, jump: LossJump) -> bool:
    """Whether validation did not rise with the jump: then training became harder, not the model worse."""
    val = run.maybe("val_loss")
    if val is None:
        return False
    before, after = val.values[val.steps < jump.began], val.values[val.steps >= jump.step]
    return bool(len(before) and len(after)) and float(after[-1]) <= float(before[-1])


QUESTION = Question(
    code="D2.1",
    name="loss spikes",
    asks="Is the loss of any step 3 standard deviations or more above the mean of the 100 steps before it?",
    why="A spike shows that an update went wrong. The rule also flags ordinary noise, one to four times in 2,000 "
    "healthy steps: a spike is a reason to look further, not a fault.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="window",
            value=WINDOW,
            unit="steps",
            meaning="window before the step",
            seed="100 steps",
            decision="the rule of thumb; 20 logged points or more if the log is sparse",
        ),
        Threshold(
            name="sigmas",
            value=SIGMAS,
            unit="standard deviations",
            meaning="height of a spike",
            seed="3 sigma",
            decision="the rule of thumb; never a fault by itself",
            of="sigmas",
        ),
        Threshold(
            name="times",
            value=1.5,
            unit="times the median of the points before",
            meaning="height of a jump in a record too short for a standard deviation",
            seed="",
            decision="an excerpt of a public log goes from 2.8 to 8.7, another from 2.2 to 5.1; healthy logs of 40 to "
            "20,000 points reach 1.2 after their first quarter",
            of="times",
        ),
        Threshold(
            name="clear",
            value=4,
            unit="times the largest move of another point from its neighbours",
            meaning="a jump in such a record must also be this high",
            seed="",
            decision="losses of single batches reach 5 times their level and return; of 318 healthy runs, each read "
            "in 14 forms of a log (most of 8 to 100 points), one jumps this far, and its data changes there",
        ),
        LOSSES,
        Threshold(
            name="points",
            value=20,
            unit="logged points",
            meaning="smallest window in a sparse log",
            seed="",
            decision="fewer do not give a reliable standard deviation",
        ),
        Threshold(
            name="rose",
            value=2.0,
            unit="times the median of the norms before",
            meaning="a gradient norm that rose before such a jump",
            seed="",
            decision="it does not decide: the message mentions the rise",
        ),
        Threshold(
            name="look_back",
            value=10,
            unit="points",
            meaning="how far before such a jump the gradient may have risen",
            seed="",
            decision="it does not decide: the message mentions the rise",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss does not spike"),
        Outcome(name="noise", answer=PASS, meaning="the loss spikes no higher than the noise of healthy runs"),
        Outcome(
            name="jump",
            answer=SUSPECT,
            meaning="the loss jumped",
            fix="Go back to the checkpoint before the jump. Skip its batches, or lower the learning rate there.",
            experiment="Continue from the checkpoint before the jump, once with the same batches and once with "
            "others. If only the same batches jump, the data is the cause; if both do, it is the learning rate or the "
            "optimizer's state.",
        ),
        Outcome(
            name="flagged",
            answer=NOTE,
            meaning="the loss spiked",
            fix="No action is needed if the loss recovers: see D2.2.",
        ),
    ),
    find=find,
)
