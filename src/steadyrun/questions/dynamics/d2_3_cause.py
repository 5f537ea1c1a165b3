"""D2.3: what happened in the step of a spike?"""

from __future__ import annotations

from dataclasses import replace

from steadyrun.questions.dynamics.run_spikes import find_spikes
from steadyrun.questions.dynamics.spike_causes import DIAGNOSES, beyond_plan, circumstances, lead, state_lost
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.spikes import Spike
from steadyrun.text import shown


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
    facts = f"the largest of {len(spikes)}, at step {largest.peak_step}, is {shown(largest.sigmas)} deviations high"
    measured = {"sigmas": largest.sigmas}
    if largest.sigmas > limit["noise"]:
        message = f"{facts} (noise: up to {limit['noise']:g}), and nothing recorded explains it."
        message += circumstances(run, largest, limit) + lead(run, largest, limit)
        return Finding("unexplained", message, measured, largest.peak_step)
    message = f"nothing recorded stands out at any spike; {facts}: within the noise of this run."
    return Finding("noise", message, measured, largest.peak_step)


QUESTION = Question(
    code="D2.3",
    name="cause of a spike",
    asks="What else happened at the spike: in the gradient, the learning rate, the batch, the optimizer's state?",
    why="The four usual causes leave different traces: a hard batch a huge gradient, a schedule bug a jump of the "
    "rate, a "
    "loader bug repeated batches, a resume a step counter that starts again.",
    needs=("loss", "grad_norm", "lr/*", "batch_hash", "step_count/*", "skipped", "update_ratio/*"),
    panel=3,
    thresholds=(
        Threshold(
            name="noise",
            value=6,
            unit="deviations",
            meaning="height up to which a spike may be noise",
            seed="",
            decision="healthy runs of 2,000 steps reach 3 to 5.4",
            of="sigmas",
        ),
        Threshold(
            name="gradient",
            value=30,
            unit="times the mean before",
            meaning="gradient of a long-tail batch",
            seed="30 times",
            decision="as specified",
            of="gradient_times",
        ),
        Threshold(
            name="gradient_with_class",
            value=5,
            unit="times the mean before",
            meaning="the same, with the loss in one class",
            seed="5 times with rare tokens",
            decision="as specified",
        ),
        Threshold(
            name="class",
            value=2,
            unit="times the others' rise",
            meaning="how far one class must rise above the others",
            seed="",
            decision="the classes of a healthy run rise together",
        ),
        Threshold(
            name="lr_jump",
            value=0.2,
            unit="share of the peak",
            meaning="rise of the learning rate in one step",
            seed="a jump",
            decision="as for C2.1",
            of="lr_jump",
        ),
        Threshold(
            name="lr_beyond",
            value=3,
            unit="times the declared peak",
            meaning="a learning rate in a sparse log that no schedule explains, whatever the loss did between "
            "its points",
            seed="",
            decision="no declared schedule leaves its own peak",
        ),
        Threshold(
            name="recent",
            value=16,
            unit="steps",
            meaning="how far back a batch may be repeated",
            seed="a recent batch",
            decision="a stuck iterator repeats the last batch, workers that share a buffer one of a few; longer "
            "distances are "
            "epochs",
        ),
        Threshold(
            name="repeats",
            value=10,
            unit="batches",
            meaning="repeated batches around the spike",
            seed="",
            decision="hard examples are replayed a few times on purpose",
        ),
        Threshold(
            name="most",
            value=20,
            unit="spikes",
            meaning="how many are looked into, the highest first",
            seed="",
            decision="lower ones are closer to noise",
        ),
        Threshold(
            name="near",
            value=3,
            unit="steps",
            meaning="how long before a spike its cause may lie",
            seed="",
            decision="an update shows in the loss of the next steps",
        ),
        Threshold(
            name="before",
            value=10,
            unit="steps",
            meaning="how long before a spike the learning rate may have jumped, or half precision overflowed",
            seed="",
            decision="a high rate needs some steps to do harm",
        ),
        Threshold(
            name="window",
            value=100,
            unit="points",
            meaning="the values before, with which those of the spike are compared",
            seed="",
            decision="as for D2.1",
        ),
        Threshold(
            name="fewest",
            value=10,
            unit="points",
            meaning="fewer values before give no mean",
            seed="",
            decision="the mean of fewer is noise",
        ),
        Threshold(
            name="on_plan",
            value=0.05,
            unit="of the declared peak",
            meaning="how close the learning rate must be to its plan",
            seed="",
            decision="as for C2.1",
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
            meaning="how many times as many batches must be repeated around the spike as in the rest of the run",
            seed="",
            decision="a small data set repeats batches everywhere",
        ),
        Threshold(
            name="lead",
            value=20,
            unit="steps",
            meaning="how long before a spike the update or the gradient may have risen",
            seed="",
            decision="it decides nothing: the rise is mentioned with the spike",
        ),
        Threshold(
            name="clearly",
            value=5,
            unit="standard deviations",
            meaning="how high a value must be to have risen",
            seed="",
            decision="in twenty steps of noise none is this high",
        ),
        Threshold(
            name="slack",
            value=2,
            unit="logged points",
            meaning="how far from the jump the declared curve may jump as well",
            seed="",
            decision="a declared step may come a step earlier or later",
        ),
    ),
    outcomes=(
        Outcome(
            name="unexplained",
            answer=NOTE,
            meaning="a spike far beyond noise without a cause in what was recorded",
            panel=1,
        ),
        Outcome(name="noise", answer=PASS, meaning="within the noise of this run", panel=1),
        Outcome(
            name="long-tail-batch",
            answer=NOTE,
            meaning="a batch with a huge gradient",
            fix="Look at that batch; mix rare examples into all batches (stratified batching), or lower the clip "
            "threshold.",
        ),
        Outcome(
            name="fp16-overflow",
            answer=NOTE,
            meaning="half precision overflowed at the spike; section D3 says whether the loss scale copes",
            fix="Look at D3.2; where overflows come with every spike, switch to bf16.",
        ),
        Outcome(
            name="lr-jump-undeclared",
            answer=NOTE,
            meaning="the learning rate jumped; no schedule is declared to compare with",
            panel=2,
        ),
        Outcome(
            name="optimizer-begins-again",
            answer=NOTE,
            meaning="the optimizer's state begins again within the run: meant, or lost",
            panel=1,
        ),
        Outcome(
            name="lr-jump",
            answer=FAULT,
            meaning="the learning rate jumped where the declared schedule does not",
            fix="Follow the declared schedule: look at what happens to the scheduler at that step.",
            panel=2,
        ),
        Outcome(
            name="duplicate-batch",
            answer=FAULT,
            meaning="the loader repeated batches",
            fix="Look at the sampler and at what prefetches: an iterator "
            "made anew, or a worker that returns the same buffer.",
            panel=1,
        ),
        Outcome(
            name="optimizer-reset",
            answer=FAULT,
            meaning="the run was resumed without the optimizer's state",
            fix="Save and load optimizer.state_dict() with the checkpoint.",
            panel=1,
        ),
    ),
    find=find,
)
