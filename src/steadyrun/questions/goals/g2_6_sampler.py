"""G2.6: do sampler and trainer agree?"""

from __future__ import annotations

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ROWS, of_a_policy
from steadyrun.signals.policy_metrics import SAMPLER_GAP, last_level
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    gap = last_level(of_a_policy(run, SAMPLER_GAP, limit))
    words = f"Sampler and trainer differ by {shown(gap)} in the log-probability of a token"
    if gap > limit["gap"]:
        return Finding("differ", f"{words} (limit {shown(limit['gap'])}).", {"gap": gap})
    return Finding("agree", f"{words}.", {"gap": gap})


QUESTION = Question(
    code="G2.6",
    name="sampler and trainer agree",
    asks="Does the engine that samples answers compute the same probabilities as the model that is trained?",
    why="Policy gradients assume that the answers come from the policy. If the sampler computes other probabilities "
    "(old weights, another precision, another template), the updates point the wrong way.",
    needs=("sampling/sampling_logp_difference/mean",),
    panel=1,
    thresholds=(
        ROWS,
        Threshold(
            name="gap",
            value=0.1,
            unit="mean absolute difference per token",
            meaning="a larger difference is not rounding",
            seed="",
            decision="chosen: bf16 engines differ by 0.01 to 0.03; ratios of e^0.1 are half of PPO's clip range",
        ),
    ),
    outcomes=(
        Outcome(name="agree", answer=PASS, meaning="sampler and trainer agree"),
        Outcome(
            name="differ",
            answer=SUSPECT,
            meaning="answers are sampled from another policy than the one that is trained",
            fix="Send the weights to the sampler after every update, use the same precision and the same temperature "
            "on both sides, or correct with importance sampling.",
            experiment="Compute the log-probabilities of one batch with both right after a weight update. If they "
            "still differ, precision or template differ; if not, the weights were old.",
            may_pass=True,
            explains=("V1.8", "G2.3"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
