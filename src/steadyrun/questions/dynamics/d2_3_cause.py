"""D2.3: the cause of a spike."""

from __future__ import annotations

from dataclasses import replace

from steadyrun.questions.dynamics.run_spikes import beyond, find_spikes, height
from steadyrun.questions.dynamics.spike_causes import DIAGNOSES, beyond_plan, circumstances, lead, state_lost
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.spikes import Spike


def find(run: Signals, limit: Limits) -> Finding:
    lost = state_lost(run, limit)
    if lost is not None and _is_fault(lost):
        return lost
    beyond = beyond_plan(run, limit)
    if beyond is not None:
        return beyond
    spikes = find_spikes(run, limit)
    if not spikes and lost is None:
        raise NotApplicable("the loss does not spike")
    notes = [] if lost is None else [lost]
    for spike in sorted(spikes, key=lambda spike: -spike.sigmas)[: limit.count("most")]:
        for diagnose in DIAGNOSES:
            cause = diagnose(run, spike, limit)
            if cause is None:
                continue
            finding = replace(cause, message=f"{cause.message}{lead(run, spike, limit)}")
            if _is_fault(cause):
                return finding
            notes.append(finding)
    return notes[0] if notes else _without_cause(run, spikes, limit)


def _is_fault(finding: Finding) -> bool:
    return QUESTION.outcome(finding.outcome).answer == FAULT


def _without_cause(run: Signals, spikes: list[Spike], limit: Limits) -> Finding:
    largest = max(spikes, key=lambda spike: spike.sigmas)
    which = "The spike" if len(spikes) == 1 else f"The largest of {len(spikes)} spikes"
    facts = f"{which} reaches {height(largest)} ({beyond(largest, limit['noise'])})"
    measured = {"sigmas": largest.sigmas}
    if largest.sigmas > limit["noise"]:
        message = f"{facts}. No recorded series explains it."
        message += circumstances(run, largest, limit) + lead(run, largest, limit)
        return Finding("unexplained", message, measured, largest.peak_step)
    return Finding("noise", f"{facts}. No recorded series stands out there.", measured, largest.peak_step)


QUESTION = Question(
    code="D2.3",
    name="cause of a spike",
    asks="What else happened at the spike: in the gradient, the learning rate, the batch or the optimizer's state?",
    why="The usual causes leave different traces: a hard batch a huge gradient, a schedule bug a jump of the learning "
    "rate, a loader bug repeated batches, a resume a step counter that restarts.",
    needs=("loss", "grad_norm", "lr/*", "batch_hash", "step_count/*", "skipped", "update_ratio/*"),
    panel=3,
    thresholds=(
        Threshold(
            name="noise",
            value=6,
            unit="standard deviations",
            meaning="height that noise reaches",
            seed="",
            decision="healthy runs of 2,000 steps reach 3 to 5.4",
            of="sigmas",
        ),
        Threshold(
            name="gradient",
            value=30,
            unit="times the mean before",
            meaning="gradient norm of a batch of rare examples",
            seed="30 times",
            decision="the rule of thumb, unchanged",
            of="gradient_times",
        ),
        Threshold(
            name="gradient_with_class",
            value=5,
            unit="times the mean before",
            meaning="the same, if one class has most of the loss",
            seed="5 times with rare tokens",
            decision="the rule of thumb, unchanged",
        ),
        Threshold(
            name="class",
            value=2,
            unit="times the rise of the others",
            meaning="how far one class must rise above the others",
            seed="",
            decision="the classes of a healthy run rise together",
        ),
        Threshold(
            name="lr_jump",
            value=0.2,
            unit="fraction of the peak",
            meaning="rise of the learning rate in one step",
            seed="a jump",
            decision="the same as in C2.1",
            of="lr_jump",
        ),
        Threshold(
            name="lr_beyond",
            value=3,
            unit="times the declared peak",
            meaning="a learning rate in a sparse log that no schedule explains, whatever the loss did between its "
            "points",
            seed="",
            decision="no declared schedule exceeds its own peak",
        ),
        Threshold(
            name="recent",
            value=16,
            unit="steps",
            meaning="how far back a batch may be repeated",
            seed="a recent batch",
            decision="a stuck iterator repeats the last batch, workers that share a buffer repeat one of a few; "
            "longer distances are epochs",
        ),
        Threshold(
            name="repeats",
            value=10,
            unit="batches",
            meaning="how many batches around the spike must repeat",
            seed="",
            decision="hard examples are repeated a few times on purpose",
        ),
        Threshold(
            name="most",
            value=20,
            unit="spikes",
            meaning="how many are examined, the highest first",
            seed="",
            decision="lower ones are closer to noise",
        ),
        Threshold(
            name="near",
            value=3,
            unit="steps",
            meaning="how long before a spike its cause may lie",
            seed="",
            decision="an update affects the loss of the next steps",
        ),
        Threshold(
            name="before",
            value=10,
            unit="steps",
            meaning="how long before a spike the learning rate may have jumped or fp16 overflowed",
            seed="",
            decision="a high learning rate needs some steps to do harm",
        ),
        Threshold(
            name="window",
            value=100,
            unit="points",
            meaning="how many values before the spike are the reference",
            seed="",
            decision="the same as in D2.1",
        ),
        Threshold(
            name="fewest",
            value=10,
            unit="points",
            meaning="fewer values before do not give a mean",
            seed="",
            decision="the mean of fewer is noise",
        ),
        Threshold(
            name="on_plan",
            value=0.05,
            unit="of the declared peak",
            meaning="how close the learning rate must be to the declared schedule",
            seed="",
            decision="the same as in C2.1",
        ),
        Threshold(
            name="around",
            value=100,
            unit="steps",
            meaning="how far around a spike repeated batches are counted",
            seed="",
            decision="a stuck loader repeats for a while",
        ),
        Threshold(
            name="elsewhere",
            value=10,
            unit="times",
            meaning="how many times as many batches must repeat around the spike as in the rest of the run",
            seed="",
            decision="a small data set repeats batches everywhere",
        ),
        Threshold(
            name="lead",
            value=20,
            unit="steps",
            meaning="how long before a spike the update or the gradient may have risen",
            seed="",
            decision="it does not decide: the message mentions the rise",
        ),
        Threshold(
            name="clearly",
            value=5,
            unit="standard deviations",
            meaning="how high a value must be to have risen",
            seed="",
            decision="twenty steps of noise do not reach this",
        ),
        Threshold(
            name="slack",
            value=2,
            unit="logged points",
            meaning="how far from the jump the declared schedule may also jump",
            seed="",
            decision="a declared step may come a step earlier or later",
        ),
    ),
    outcomes=(
        Outcome(
            name="unexplained",
            answer=NOTE,
            meaning="the loss spiked far beyond noise, for an unknown reason",
            fix="No action is needed if the loss recovers; otherwise look at the batch of that step.",
            panel=1,
        ),
        Outcome(name="noise", answer=PASS, meaning="the spikes are within the noise of this run", panel=1),
        Outcome(
            name="long-tail-batch",
            answer=NOTE,
            meaning="the loss spiked on a batch with a huge gradient",
            fix="Look at that batch. Spread rare examples over all batches (steadyrun.data.StratifiedBatchSampler), or "
            "lower the clip threshold.",
        ),
        Outcome(
            name="fp16-overflow",
            answer=NOTE,
            meaning="fp16 overflowed at the spike",
            fix="See D3.2 for the loss scale. If overflows come with every spike, switch to bf16.",
        ),
        Outcome(
            name="lr-jump-undeclared",
            answer=NOTE,
            meaning="the learning rate jumped at the spike",
            fix="Check what changes the learning rate at that step; if it is intended, declare the schedule.",
            panel=2,
        ),
        Outcome(
            name="optimizer-begins-again",
            answer=NOTE,
            meaning="the optimizer's state restarts within the run",
            fix="Check whether the program builds the optimizer again at that step. No action is needed if it is "
            "intended.",
            panel=1,
        ),
        Outcome(
            name="lr-jump",
            answer=FAULT,
            meaning="the learning rate jumped although the declared schedule does not",
            fix="Check what changes the scheduler or the learning rate at that step, and follow the declared schedule.",
            panel=2,
        ),
        Outcome(
            name="duplicate-batch",
            answer=FAULT,
            meaning="the data loader repeated batches",
            fix="Check the sampler and the prefetching: an iterator that is created again, or a worker that returns "
            "the same buffer.",
            panel=1,
        ),
        Outcome(
            name="optimizer-reset",
            answer=FAULT,
            meaning="the run was resumed without the optimizer's state",
            fix="Save optimizer.state_dict() in the checkpoint and load it at the resume.",
            panel=1,
        ),
    ),
    find=find,
)
