"""C7.2: steps are small enough to keep what was learned."""

from __future__ import annotations

from steadyrun.questions.configuration.sizes import LEARNED, STEPS, fall_in_words, fallen, judged
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.vital_signs import v1_2_guess, v1_3_validation, v1_5_updates
from steadyrun.signals.adapters import is_adapter
from steadyrun.signals.facts import LEARNED as LEARNED_START
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.optimizer_settings import groups
from steadyrun.signals.policy_metrics import preferences
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.silent_units import died
from steadyrun.signals.step_sizes import growth, largest_growth, typical_move
from steadyrun.signals.success import trains_policy
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if (outlasts := _outlasts(run, limit)) is not None:
        return outlasts
    if (overwrites := _overwrites(run, limit)) is not None:
        return overwrites
    loss = judged(run, limit)
    move, times, memory = typical_move(run), growth(run), _memory(run)
    new = known_facts(run, limit).start != LEARNED_START  # adapters and new heads start near zero and must grow
    most = largest_growth(run) if new else times
    measured = {
        "move": move,
        "growth": times,
        "largest": most,
        "memory": memory,
        "fallen": fallen(run, limit),
        "lost": loss.lost,
        "died": died(run),
    }
    words = fall_in_words(run, limit)
    if measured["died"] > limit["died"] and times > limit["growth"]:
        facts = _sizes(move, times, most, typical=f" (limit {limit['growth']:g}x)")
        dead = f"{percent(measured['died'])} of the median layer's units died (limit {percent(limit['died'])})"
        return Finding("rate-too-high", f"{facts}. {dead}; {words}.", measured)
    if measured["fallen"] >= limit["learned"] and loss.lost <= limit["lost"]:
        return Finding("small-enough", f"{_sizes(move, times, most)}; {words}.", measured)
    if (move > limit["move"] and most > limit["growth"] and not _works(run, limit)) or times > limit["far"]:
        step, grown = f" (limit {percent(limit['move'])})", f" (limit {limit['growth']:g}x)"
        facts = _sizes(move, times, most, step=step, largest=grown)
        if times > limit["far"]:
            facts = _sizes(move, times, most, typical=f" (limit {limit['far']:g}x)")
        return Finding("rate-too-high", f"{facts}; {words}.", measured)
    return Finding("small-enough", f"{_sizes(move, times, most)}; {words}.", measured)


def _sizes(move: float, times: float, most: float, *, step: str = "", typical: str = "", largest: str = "") -> str:
    """In words: how far weights move and grow, each with its limit if that decided."""
    facts = f"The weights of a typical block move by {percent(move)} of their norm per step{step} and end at "
    if shown(times) == shown(most):
        return f"{facts}{shown(times)}x their initial norm{typical or largest}"
    return (
        f"{facts}{shown(times)}x their initial norm{typical}; the block that grew most ends at {shown(most)}x{largest}"
    )


def _outlasts(run: Signals, limit: Limits) -> Finding | None:
    """A momentum that averages over more than half of the run: a mistake, whatever the loss does."""
    loss, memory = levels(run, "loss", limit["losses"]), _memory(run)
    steps = max(loss.steps, run.declared("total_steps") or 0.0)
    if run.running or loss.steps < limit["steps"] or memory <= max(limit["memory"], limit["of_the_run"] * steps):
        return None
    message = f"Momentum {shown(1 - 1 / memory)} averages over about {shown(memory)} steps, but the run has {steps:.0f}"
    ends = f"The loss goes from {shown(loss.start)} to {shown(loss.end)}"
    message = f"{message}: its last steps still use its first gradients. {ends}."
    return Finding("momentum-too-long", message, {"memory": memory, "steps": steps})


def _overwrites(run: Signals, limit: Limits) -> Finding | None:
    """Steps that replace the weights that post-training begins with, whatever its loss does."""
    post = trains_policy(run) or preferences(run) or known_facts(run, limit).start == LEARNED_START
    weights = [str(each.get("name")) for each in run.listed("initial_weights")]
    if not (post or any(map(is_adapter, weights))):
        return None
    move = typical_move(run)
    if move <= limit["overwrites"]:
        return None
    message = f"The weights of a typical block move by {percent(move)} of their norm per step (limit "
    message += f"{percent(limit['overwrites'])}), although training begins with weights that have learned."
    return Finding("rate-too-high", message, {"move": move})


def _works(run: Signals, limit: Limits) -> bool:
    """Whether the model is far better than a guess, validation is near its best, and its units are active."""
    if limit.ask(v1_5_updates.QUESTION, run).outcome == "dead":
        return False
    guess, validated = limit.ask(v1_2_guess.QUESTION, run), limit.ask(v1_3_validation.QUESTION, run)
    if guess.kind != PASS or validated.kind != PASS:
        return False
    near = validated.measured["end"] <= (1 + limit["near_best"]) * validated.measured["best"]
    return near and guess.measured["ratio"] < limit["works"]


def _memory(run: Signals) -> float:
    """The longest average of any optimizer, in steps."""
    try:
        return max(group.memory for group in groups(run))
    except MissingSignal:
        return 1.0


QUESTION = Question(
    code="C7.2",
    name="steps are small enough",
    asks="Do weights keep their size, and does each step change only a small part of them?",
    why="Steps that are too large overwrite what earlier steps learned: weights drift from their start and grow many "
    "times, and the loss stays high or swings without diverging.",
    needs=("update_ratio/*", "block_param_norm/*", "loss"),
    panel=2,
    thresholds=(
        LOSSES,
        Threshold(
            name="works",
            value=0.8,
            unit="of the loss of a guess",
            meaning="if the model is this much better than a guess and validation agrees, its steps work",
            seed="",
            decision="embedding tables of a healthy recommender grow five times",
        ),
        Threshold(
            name="near_best",
            value=0.1,
            unit="of the best validation loss",
            meaning="how far above its best validation may end",
            seed="",
            decision="steps that overwrite what was learned make validation swing by more",
        ),
        Threshold(
            name="move",
            value=0.025,
            unit="of the norm of the median block's weights per step",
            meaning="larger steps overwrite what was learned, if weights also grow",
            seed="",
            decision="healthy runs whose loss falls by less than half reach 0.02, and one 0.06 without growth",
        ),
        Threshold(
            name="overwrites",
            value=0.05,
            unit="of the norm of the median block's weights per step",
            meaning="larger steps replace what a pretrained model, a policy or an adapter has learned",
            seed="",
            decision="healthy post-training and policies reach 0.014; learning rates a hundred times too high give "
            "0.066 to 0.27",
        ),
        Threshold(
            name="growth",
            value=3,
            unit="times the initial norm, of the block that grew most",
            meaning="weights that grow more drift away",
            seed="",
            decision="healthy runs from a random start whose loss falls by less than half reach 1.8",
        ),
        Threshold(
            name="died",
            value=0.45,
            unit="of the median layer's units, from the first sample to the last",
            meaning="if more units die and the median block also grows beyond its limit, large steps caused it",
            seed="",
            decision="healthy runs reach 0.31, and their weights do not grow; learning rates 25 to 60 times too high "
            "give 0.5 to 1",
            of="died",
        ),
        Threshold(
            name="far",
            value=8,
            unit="times the initial norm of the median block",
            meaning="weights that grow more have drifted away, whatever their last steps were",
            seed="",
            decision="healthy runs reach 6.8",
        ),
        LEARNED,
        STEPS,
        Threshold(
            name="lost",
            value=0.3,
            unit="fraction of the descent, in logarithms",
            meaning="how much of the descent may be lost again",
            seed="",
            decision="the same as in V1.1",
        ),
        Threshold(
            name="memory",
            value=50,
            unit="steps",
            meaning="a shorter average is usual",
            seed="",
            decision="momentum 0.98; the usual 0.9 to 0.95 averages over 10 to 20 steps",
        ),
        Threshold(
            name="of_the_run",
            value=0.5,
            unit="of the run's steps",
            meaning="a longer average still contains the first gradients at the end",
            seed="",
            decision="momentum 0.99 works in runs of a few hundred steps; no recipe uses a longer average in so short "
            "a run, so it is suspect even if the loss falls",
        ),
    ),
    outcomes=(
        Outcome(name="small-enough", answer=PASS, meaning="steps are small enough, or the run learned anyway"),
        Outcome(
            name="rate-too-high",
            answer=SUSPECT,
            meaning="the learning rate is too high",
            fix="Divide the learning rate by 10 and start again from fresh weights.",
            experiment="Train 200 steps from fresh weights with a tenth of the learning rate. If the loss at step 200 "
            "is lower than in this run at step 200, the rate was too high.",
            may_pass=True,
            explains=("V1", "C3", "C4.1", "S1.4:unrelated", "S1.5", "S3", "S4", "S5", "S6", "G1", "G2"),
        ),
        Outcome(
            name="momentum-too-long",
            answer=SUSPECT,
            meaning="momentum is too close to 1 for such a short run",
            fix="Use momentum=0.9 (Adam: betas=(0.9, 0.999)).",
            experiment="Train 200 steps with momentum 0.9. If the loss at step 200 is lower than in this run at step "
            "200, momentum was too close to 1.",
            may_pass=True,
            explains=("V1", "C3", "C4.1", "C7.1", "S1.4:unrelated", "S1.5", "S4", "S5"),
        ),
    ),
    find=find,
)
