"""R5.1: is the gradient of a step on several ranks that of one process with the joined batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import percent, shown

if TYPE_CHECKING:
    from steadyrun.preflight.rank_gradients import Floats
    from steadyrun.preflight.rank_trial import RankTrial


def find(trial: RankTrial, limit: Limits) -> Finding:
    from steadyrun.preflight.rank_gradients import JOINED, JOINED_BY_PART, RANKS, STEP, fit, row

    products = _products(trial)
    step, mean = row(products, STEP), row(products, *range(RANKS, len(products)))
    by_joined = [(fit(products, step, row(products, joined)), joined) for joined in (JOINED, JOINED_BY_PART)]
    (times, rest), _ = min(by_joined, key=lambda fitted: fitted[0][1])
    if rest <= limit["near"]:
        return _scaled(trial, times, rest, limit)
    mean_times, mean_rest = fit(products, step, mean)
    if mean_rest <= limit["near"]:
        return _mean_of_means(products, mean_times, min(by_joined, key=lambda fitted: fitted[0][1])[1], limit)
    if _is_local(trial, limit["near"]):
        message = (
            f"The gradient of each rank is that of its own batch; it misses {percent(rest)} of the joined batch's."
        )
        return Finding("local", message, {"unexplained": rest})
    return _other(products, rest, limit)


def _products(trial: RankTrial) -> Floats:
    """The Gram matrices of all ranks added up: each has its own shards, or a replica."""
    if len(trial.ranks[0].layout.data_ranks) < 2:
        raise NotApplicable("all ranks compute one batch together (tensor parallel)")
    gathered = [facts.products for facts in trial.ranks if facts.products is not None]
    if trial.why_not or len(gathered) < trial.world:
        how = "give preflight batches of one shape, and a loss that is a mean over examples and draws nothing"
        raise MissingSignal("a joined batch", trial.why_not or "a rank has no gradient", how)
    total = sum(gathered[1:], start=gathered[0])
    if not total[0, 0] > 0:
        raise MissingSignal("a gradient", "the step has no gradient", "let train_step call backward and step")
    return total


def _scaled(trial: RankTrial, times: float, rest: float, limit: Limits) -> Finding:
    """The direction is right: compare the size, without what clipping took away."""
    times *= _clipped(trial)
    world, near = len(trial.ranks[0].layout.data_ranks), limit["near"]
    measured = {"times": times, "unexplained": rest, "ranks": float(world)}
    facts = f"The gradient of a step on {world} ranks is {shown(times)} times that of one process with the joined batch"
    if abs(times - 1) <= near:
        message = f"The gradient of a step on {world} ranks equals that of one process with the joined batch"
        return Finding("pass", f"{message} (they differ by {percent(rest)}).", measured)
    once, twice = trial.ranks[0].losses
    sums = abs(twice - 2 * once) < abs(twice - once)
    if abs(times / world - 1) <= near:
        return Finding("sum", f"{facts}: it is summed over the ranks.", measured)
    if abs(times * world - 1) <= near and sums:
        if trial.config.get("reduction") == "sum":
            return Finding("pass", f"{facts}: the loss is a sum, as declared.", measured)
        return Finding("sum-loss", f"{facts}: the loss is a sum over examples, and the ranks average it.", measured)
    if abs(times * world - 1) <= near:
        return Finding("divided-twice", f"{facts}.", measured)
    return Finding("scaled", f"{facts}.", measured)


def _clipped(trial: RankTrial) -> float:
    """By how much the clip call of the step divided the gradient."""
    clips = trial.ranks[0].clips
    threshold, norm = clips[-1] if clips else (1.0, 0.0)
    return max(1.0, norm / threshold) if threshold > 0 else 1.0


def _mean_of_means(products: Floats, times: float, joined: int, limit: Limits) -> Finding:
    """The ranks' mean gradients count alike, although their batches count different numbers."""
    from steadyrun.preflight.rank_gradients import RANKS, fit, row, weights_of_ranks

    weights, unexplained = weights_of_ranks(products, joined)
    if unexplained > limit["near"] or min(weights) < 0:
        why = "the loss of the joined batch is not a weighted mean of the ranks' losses"
        raise MissingSignal("a joined batch", why, "use a loss that is a mean over examples or tokens")
    mean = row(products, *range(RANKS, len(products)))
    _, apart = fit(products, mean, row(products, joined))
    by_rank = ", ".join(f"{shown(float(weight))} of rank {rank}" for rank, weight in enumerate(weights[:8]))
    measured = {"unexplained": apart, "times": times, "smallest": float(min(weights)), "largest": float(max(weights))}
    message = (
        f"The step gives each rank's mean the same weight. In the joined batch the weights are {by_rank}: the ranks' "
        f"batches count different numbers of targets. The gradients differ by {percent(apart)}."
    )
    return Finding("mean-of-means", message, measured)


def _is_local(trial: RankTrial, near: float) -> bool:
    """Whether each rank's gradient is that of its own batch."""
    from steadyrun.preflight.rank_gradients import RANKS, STEP, fit, row

    for facts in trial.ranks:
        for index, rank in enumerate(facts.layout.data_ranks):
            if trial.ranks[rank] is facts:
                assert facts.products is not None
                own = row(facts.products, RANKS + index)
                if fit(facts.products, row(facts.products, STEP), own)[1] > near:
                    return False
    return True


def _other(products: Floats, rest: float, limit: Limits) -> Finding:
    from steadyrun.preflight.rank_gradients import JOINED, STEP, STEP_ON_JOINED, fit, row

    step, control = row(products, STEP), row(products, STEP_ON_JOINED)
    times, by_control = fit(products, step, control)
    measured = {"unexplained": rest}
    if by_control <= limit["near"] and abs(times - 1) <= limit["near"]:
        message = (
            f"If every rank gets the joined batch, the gradient is the same (they differ by {percent(by_control)})."
        )
        return Finding("pass", message, measured)
    if fit(products, control, row(products, JOINED))[1] > limit["near"]:
        why = "on one joined batch the gradient of train_step is not that of loss_fn"
        raise MissingSignal("loss_fn", why, "let loss_fn return the loss that train_step differentiates")
    message = f"The gradient of a step differs by {percent(rest)} from that of one process with the joined batch."
    return Finding("other", message, measured)


QUESTION = Question(
    code="R5.1",
    name="one step as one process",
    asks="Is the gradient of a step on several ranks that of one process with the joined batch?",
    why="A sum instead of a mean, or a mean over unequal counts, trains on another loss; no rank's record shows it.",
    needs=("several ranks", "loss_fn", "optimizer", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="near",
            value=0.05,
            unit="relative",
            meaning="gradients that differ by less are equal",
            seed="",
            decision="the same passes differ by 1e-6 in float32 and by 1e-2 under autocast",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the step equals that of one process with the joined batch"),
        Outcome(
            name="local",
            answer=FAULT,
            meaning="each rank steps with the gradient of its own batch",
            fix="Average gradients over the ranks: call the DistributedDataParallel model itself, not model.module.",
        ),
        Outcome(
            name="sum",
            answer=FAULT,
            meaning="gradients are summed over the ranks instead of averaged",
            fix="Divide the gradients by the number of ranks after the all-reduce.",
            explains=("C3", "C6", "S"),
        ),
        Outcome(
            name="divided-twice",
            answer=FAULT,
            meaning="gradients are divided by the number of ranks twice",
            fix="Divide by the number of ranks once: DistributedDataParallel and FSDP2 already average.",
            explains=("C4", "S"),
        ),
        Outcome(
            name="sum-loss",
            answer=SUSPECT,
            meaning="the loss is a sum over examples, and its gradient is averaged over the ranks",
            fix='Use a mean over examples, or declare config={"reduction": "sum"} and set the learning rate for it.',
            experiment="Train with twice the ranks and half the batch per rank: the curves should agree.",
        ),
        Outcome(
            name="mean-of-means",
            answer=SUSPECT,
            meaning="each rank's mean counts alike, although the ranks count different numbers of targets",
            fix="Sum the loss, multiply it by the number of ranks, and divide by the number of targets of all ranks.",
            experiment="Run preflight again with that loss: the gradients should agree.",
        ),
        Outcome(name="scaled", answer=NOTE, meaning="the gradient is a multiple of that of the joined batch"),
        Outcome(
            name="other",
            answer=SUSPECT,
            meaning="the gradient is another one than that of the joined batch",
            fix="Compare one step on one rank with the joined batch to one step on all ranks.",
            experiment="Run the program with one rank and the joined batch, and compare the gradients.",
        ),
    ),
    find=find,
    tried=True,
)
