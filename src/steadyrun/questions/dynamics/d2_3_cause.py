"""D2.3: what happened in the step of a spike?"""

from __future__ import annotations

from dataclasses import replace

from steadyrun.questions.dynamics.run_spikes import find_spikes
from steadyrun.questions.dynamics.spike_causes import DIAGNOSES, beyond_plan, circumstances, lead, state_lost
from steadyrun.questions.form import FAULT, NOTE, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.spikes import Spike
from steadyrun.text import shown

_MOST = 20  # spikes looked into, the highest first


def find(run: Signals, limit: Limits) -> Finding:
    lost = state_lost(run)
    if lost is not None and _is_fault(lost):
        return lost
    beyond = beyond_plan(run, limit)
    if beyond is not None:
        return beyond
    spikes = find_spikes(run, limit)
    if not spikes and lost is None:
        raise NotApplicable("the loss does not spike")
    notes = [] if lost is None else [lost]
    for spike in sorted(spikes, key=lambda spike: -spike.sigmas)[:_MOST]:
        for diagnose in DIAGNOSES:
            cause = diagnose(run, spike, limit)
            if cause is None:
                continue
            finding = replace(cause, message=f"{cause.message}{lead(run, spike)}")
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
        message += circumstances(run, largest, limit) + lead(run, largest)
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
            "noise",
            6,
            "deviations",
            "height up to which a spike may be noise",
            "",
            "healthy runs of 2,000 steps reach 3 to 5.4",
            "sigmas",
        ),
        Threshold(
            "gradient",
            30,
            "times the mean before",
            "gradient of a long-tail batch",
            "30 times",
            "as specified",
            "gradient_times",
        ),
        Threshold(
            "gradient_with_class",
            5,
            "times the mean before",
            "the same, with the loss in one class",
            "5 times with rare tokens",
            "as specified",
        ),
        Threshold(
            "class",
            2,
            "times the others' rise",
            "how far one class must rise above the others",
            "",
            "the classes of a healthy run rise together",
        ),
        Threshold(
            "lr_jump",
            0.2,
            "share of the peak",
            "rise of the learning rate in one step",
            "a jump",
            "as for C2.1",
            "lr_jump",
        ),
        Threshold(
            "lr_beyond",
            3,
            "times the declared peak",
            "a learning rate in a sparse log that no schedule explains, whatever the loss did between its points",
            "",
            "no declared schedule leaves its own peak",
        ),
        Threshold(
            "recent",
            16,
            "steps",
            "how far back a batch may be repeated",
            "a recent batch",
            "a stuck iterator repeats the last batch, workers that share a buffer one of a few; longer distances are "
            "epochs",
        ),
        Threshold(
            "repeats",
            10,
            "batches",
            "repeated batches around the spike",
            "",
            "hard examples are replayed a few times on purpose",
        ),
    ),
    outcomes=(
        Outcome("unexplained", NOTE, "a spike far beyond noise without a cause in what was recorded", panel=1),
        Outcome("noise", NOTE, "within the noise of this run", panel=1),
        Outcome(
            "long-tail-batch",
            NOTE,
            "a batch with a huge gradient",
            "Look at that batch; mix rare examples into all batches (stratified batching), or lower the clip "
            "threshold.",
        ),
        Outcome(
            "fp16-overflow",
            NOTE,
            "half precision overflowed at the spike; section D3 says whether the loss scale copes",
            "Look at D3.2; where overflows come with every spike, switch to bf16.",
        ),
        Outcome(
            "lr-jump-undeclared", NOTE, "the learning rate jumped; no schedule is declared to compare with", panel=2
        ),
        Outcome(
            "optimizer-begins-again",
            NOTE,
            "the optimizer's state begins again within the run: meant, or lost",
            panel=1,
        ),
        Outcome(
            "lr-jump",
            FAULT,
            "the learning rate jumped where the declared schedule does not",
            "Follow the declared schedule: look at what happens to the scheduler at that step.",
            panel=2,
        ),
        Outcome(
            "duplicate-batch",
            FAULT,
            "the loader repeated batches",
            "Look at the sampler and at what prefetches: an iterator "
            "made anew, or a worker that returns the same buffer.",
            panel=1,
        ),
        Outcome(
            "optimizer-reset",
            FAULT,
            "the run was resumed without the optimizer's state",
            "Save and load optimizer.state_dict() with the checkpoint.",
            panel=1,
        ),
    ),
    find=find,
)
