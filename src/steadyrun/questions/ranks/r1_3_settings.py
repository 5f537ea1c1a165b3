"""R1.3: do all ranks step with the same settings?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.ranks import r1_1_averaged
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rank_optimizers import unequal_settings, unequal_sizes
from steadyrun.signals.ranks import GRADIENT, OUTSIDE, PARAMETER, Group, Matrix, Ranks, in_words
from steadyrun.signals.replicas import differences, joined
from steadyrun.signals.run_signals import Signals
from steadyrun.text import apart, counted, shown

_NAMES = {"loss_scale": "loss scale", "skipped": "skipped steps", "clip_threshold": "clip threshold"}


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    if not ranks.together:
        raise NotApplicable("it is not known which ranks train one model")
    names = [name for name in ranks.names if name.startswith("lr/")]
    if not names and not ranks.matrix("loss_scale").ranks and not ranks.matrix("skipped").ranks:
        raise MissingSignal("lr/*")
    for group in ranks.together:
        for found in (
            *(_differs(ranks, group, name, "rate", limit) for name in names),
            _differs(ranks, group, "loss_scale", "loss-scale", limit),
            _differs(ranks, group, "skipped", "skips", limit),
            _optimizers(run, ranks, group),
            _modes(ranks, group, limit),
            _clips(run, ranks, group, limit),
        ):
            if found is not None:
                return found
    steps = max(int(ranks.matrix(name).compared.sum()) for name in (*names, "loss_scale", "skipped"))
    return Finding("pass", f"All ranks have the same settings at {counted(steps, 'step')}.", {"steps": float(steps)})


def _differs(ranks: Ranks, group: Group, name: str, outcome: str, limit: Limits) -> Finding | None:
    """A setting that differs at several steps that two ranks or more have."""
    matrix = ranks.matrix(name).of(group)
    wrong = np.flatnonzero(matrix.apart() > limit["relative"])
    if len(wrong) < min(limit["steps"], max(1, int(matrix.compared.sum()))):
        return None
    measured = {"differing": float(len(wrong)), "steps": float(matrix.compared.sum())}
    index = int(wrong[0])
    what = _NAMES.get(name, f"learning rate of group {name.partition('/')[2]}")
    at = f"at {counted(len(wrong), 'step')} of {int(matrix.compared.sum())}, first at step {int(matrix.steps[index])}"
    return Finding(
        outcome,
        f"The {what} differs {at}: {_values(matrix, index)}.",
        measured,
        int(matrix.steps[index]),
        ranks=matrix.odd(index),
    )


def _values(matrix: Matrix, index: int) -> str:
    """The value of an odd rank beside that of another."""
    row, odd = matrix.values[index], matrix.odd(index)
    mine = row[matrix.ranks.index(odd[-1])]
    other = next(
        rank for rank, value in zip(matrix.ranks, row.tolist(), strict=True) if value != mine and not np.isnan(value)
    )
    texts = apart(float(row[matrix.ranks.index(other)]), float(mine))
    return f"{texts[0]} on rank {other}, {texts[1]} on {in_words(odd[-1:] if len(odd) == len(matrix.ranks) else odd)}"


def _optimizers(run: Signals, ranks: Ranks, group: Group) -> Finding | None:
    """Settings of the optimizers that differ; if replicas part, also how many parameters these step."""
    step = min((int(ranks.matrix(name).steps[0]) for name in ranks.names if name.startswith("lr/")), default=0)
    unequal = list(unequal_settings(ranks, group))
    if unequal:
        (name, values), rest = unequal[0], len(unequal) - 1
        words = f"The {name} differs: {_by_rank(values)}{f', and so do {rest} other settings' if rest else ''}."
        return Finding("optimizer", words, {"settings": float(len(unequal))}, step, ranks=_odd(values))
    if not _all_replicas(ranks) or not any(each.steps for each in differences(run, PARAMETER)):
        return None
    for _, values in unequal_sizes(ranks, group):
        words = f"The number of parameters that the optimizer steps differs: {_by_rank(values)}."
        return Finding("optimizer", words, {"settings": 1.0}, step, ranks=_odd(values))
    return None


def _modes(ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """Ranks whose model is in evaluation mode when the optimizer steps, while others train."""
    matrix = ranks.matrix("training").of(group)
    wrong = np.flatnonzero(matrix.differs)
    if len(wrong) < limit["steps"]:
        return None
    step, row = int(matrix.steps[wrong[0]]), matrix.values[wrong[0]]
    still, training = (tuple(rank for rank, flag in zip(group, row, strict=True) if flag == value) for value in (0, 1))
    words = (
        f"At {counted(len(wrong), 'step')}, first at step {step}, the model of {in_words(still)} is in evaluation mode "
    )
    words += f"and that of {in_words(training)} in training mode."
    return Finding("mode", words, {"differing": float(len(wrong))}, step, ranks=still)


def _all_replicas(ranks: Ranks) -> bool:
    """Whether every parameter is known to have replicas: what one rank alone holds, only its optimizer steps."""
    return OUTSIDE not in ranks.classes and all(ranks.groups(name) and not ranks.shards(name) for name in ranks.classes)


def _odd(values: Mapping[int, Any]) -> Group:
    """The ranks with another value than most; all of them if there is no majority."""
    counts = Counter(map(str, values.values()))
    usual, most = counts.most_common(1)[0]
    return tuple(rank for rank, value in values.items() if 2 * most <= len(values) or str(value) != usual)


def _by_rank(values: Mapping[int, Any]) -> str:
    """Two values that differ, the one of an odd rank last."""
    last = _odd(values)[-1]
    other = next(rank for rank, value in values.items() if value != values[last])
    return f"{values[other]} on rank {other}, {values[last]} on rank {last}"


def _clips(run: Signals, ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """Clipping by another threshold, on some ranks only, or by another factor."""
    if (found := _differs(ranks, group, "clip_threshold", "clip", limit)) is not None:
        return found
    clipped = ranks.matrix("clipped").of(group)
    alike = _same_norm(ranks, group, clipped, limit.of(r1_1_averaged.QUESTION)["norms"])
    wrong = np.flatnonzero(clipped.differs & alike)
    if len(wrong) >= limit["steps"]:
        step, row = int(clipped.steps[wrong[0]]), clipped.values[wrong[0]]
        did, did_not = ([clipped.ranks[index] for index in np.flatnonzero(row == flag)] for flag in (1, 0))
        words = f"At {counted(len(wrong), 'step')}, first at step {step}, {in_words(did)} clipped the gradient and "
        return Finding(
            "clip",
            f"{words}{in_words(did_not)} did not.",
            {"differing": float(len(wrong))},
            step,
            ranks=tuple(did if len(did) <= len(did_not) else did_not),
        )
    looks = (_only_some_clip(ranks, group, limit), _after_the_norm(run, ranks, group, limit))
    return next((found for found in looks if found is not None), _before_the_average(run, ranks, group, limit))


def _same_norm(ranks: Ranks, group: Group, like: Matrix, norms: float) -> np.ndarray:
    """At each step of a matrix: whether the gradient norms before clipping agree."""
    before = ranks.matrix("grad_norm").of(group)
    same = before.steps[before.compared & (before.apart() <= norms)]
    return np.isin(like.steps, same)


def _only_some_clip(ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """A threshold that some ranks have at a step and others, which recorded the step, do not."""
    clips, losses = ranks.matrix("clip_threshold").of(group), ranks.matrix("loss").of(group)
    without = [rank for rank in losses.ranks if rank not in clips.ranks]
    if not clips.ranks or not without:
        return None
    common = np.isin(clips.steps, losses.steps[np.any(~np.isnan(losses.of(without).values), axis=1)])
    if int(common.sum()) < limit["steps"]:
        return None
    step = int(clips.steps[common][0])
    words = f"{in_words(clips.ranks)} {'clips' if len(clips.ranks) == 1 else 'clip'} the gradients, "
    words = f"{words}{in_words(without)} {'does' if len(without) == 1 else 'do'} not, from step {step} on."
    return Finding("clip", words[0].upper() + words[1:], {"differing": float(common.sum())}, step, ranks=tuple(without))


def _after_the_norm(run: Signals, ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """Gradients that had the same norm before clipping and differ at the step."""
    clipped = ranks.matrix("clipped").of(group)
    for difference in differences(run, GRADIENT):
        if not set(difference.group) <= set(group):
            continue
        alike = _same_norm(ranks, group, difference.digests, limit.of(r1_1_averaged.QUESTION)["norms"])
        touched = np.isin(difference.digests.steps, clipped.steps[np.nansum(clipped.values, axis=1) > 0])
        wrong = np.flatnonzero(difference.digests.differs & alike & touched)
        if len(wrong) >= limit["steps"]:
            step = int(difference.digests.steps[wrong[0]])
            words = f"At {len(wrong)} of {difference.compared} sampled steps, first at step {step}, replicas had the "
            words += (
                f"same gradient norm before clipping and different gradients after it ({in_words(difference.group)})."
            )
            return Finding("clip", words, {"differing": float(len(wrong))}, step, ranks=difference.group)
    return None


def _before_the_average(run: Signals, ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """Each replica clips by a norm of its own at nearly all steps, yet the gradients agree: averaged afterwards."""
    norms = ranks.matrix("clip_norm").of(group)
    clipped = ranks.matrix("clipped").of(group)
    touched = clipped.steps[np.nansum(clipped.values, axis=1) > 0] if clipped.ranks else np.empty(0, np.int64)
    judged = norms.compared & np.isin(norms.steps, touched)
    own = np.flatnonzero(judged & (norms.apart() > limit["own_norm"]))
    if len(own) < max(limit["steps"], limit["always"] * int(judged.sum())):
        return None
    for difference in differences(run, GRADIENT):
        digests = difference.digests
        sampled = digests.compared & np.isin(digests.steps, touched)
        agree = int(np.sum(sampled & ~digests.differs))
        if set(difference.group) <= set(group) and agree >= max(limit["steps"], limit["always"] * int(sampled.sum())):
            step, row = int(norms.steps[own[0]]), norms.values[own[0]]
            words = f"At {len(own)} of {counted(int(judged.sum()), 'step')} with clipping, first at step {step}, each "
            words += f"of {in_words(difference.group)} clipped by a norm of its own ({shown(float(np.nanmin(row)))} to "
            words += f"{shown(float(np.nanmax(row)))}), and the gradients were averaged after it."
            return Finding("clip-early", words, {"differing": float(len(own))}, step, ranks=difference.group)
    return None


QUESTION = Question(
    code="R1.3",
    name="the same settings on all ranks",
    asks="Do all ranks step with the same learning rate, optimizer settings, loss scale and clipping?",
    why="Replicas with the same gradients part as soon as one of them steps by another rule. Schedulers that count "
    "other steps, optimizers built from local values, a GradScaler per rank and local decisions are the usual causes.",
    needs=("lr/*",),
    panel=2,
    thresholds=(
        Threshold(
            name="relative",
            value=1e-6,
            unit="relative difference",
            meaning="settings that are nearer to each other are the same",
            seed="",
            decision="ranks compute a setting by the same formula in double precision",
        ),
        Threshold(
            name="steps",
            value=2,
            unit="steps",
            meaning="how many steps must differ, unless fewer were compared",
            seed="",
            decision="one step may be read while a run is resumed",
        ),
        Threshold(
            name="own_norm",
            value=1e-3,
            unit="relative difference",
            meaning="norms used for clipping that differ more are each rank's own",
            seed="",
            decision="one average has norms that differ by about 1e-7; gradients of other data differ by percents",
        ),
        Threshold(
            name="always",
            value=0.9,
            unit="fraction of the steps with clipping",
            meaning="at how many the norms must differ, and at how many sampled ones the gradients must agree",
            seed="",
            decision="the order of clipping and averaging is the same at every step",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all ranks step with the same settings"),
        Outcome(
            name="rate",
            answer=FAULT,
            meaning="the learning rate differs between ranks",
            fix="Build the scheduler from the same numbers on every rank, and step it once per optimizer step on all "
            "of them; do not derive it from local values such as len(loader) of one rank.",
            explains=("R1.2", "R2.4", "C2"),
            proved=True,
        ),
        Outcome(
            name="loss-scale",
            answer=FAULT,
            meaning="the loss scale differs between ranks",
            fix="Let all ranks skip and rescale together: unscale after the gradients are averaged. With sharded "
            "parameters use ShardedGradScaler, which shares the overflow.",
            explains=("R1.1", "R1.1:not-averaged", "R1.1:sometimes", "R1.2", "D3"),
            proved=True,
        ),
        Outcome(
            name="skips",
            answer=FAULT,
            meaning="some ranks skip steps that others take",
            fix="Decide to skip a step on all ranks together: torch.distributed.all_reduce(flag, op=MAX) before the "
            "decision.",
            explains=("R1.1", "R1.1:sometimes", "R1.2"),
            proved=True,
        ),
        Outcome(
            name="mode",
            answer=FAULT,
            meaning="the model trains in evaluation mode on some ranks",
            fix="Call model.train() on every rank after a validation, not only on the rank that validates.",
            explains=("R1.4", "R2.4", "C4.2"),
            proved=True,
        ),
        Outcome(
            name="optimizer",
            answer=FAULT,
            meaning="the optimizers of the ranks are set differently",
            fix="Build the optimizer from the same numbers and the same parameters on every rank, and load its state "
            "on all of them.",
            explains=("R1.2", "R2.4"),
            proved=True,
        ),
        Outcome(
            name="clip",
            answer=FAULT,
            meaning="gradients are clipped differently on different ranks",
            fix="Clip on every rank with the same threshold, after the gradients are averaged.",
            explains=("R1.2", "R2.4"),
            proved=True,
        ),
        Outcome(
            name="clip-early",
            answer=SUSPECT,
            meaning="each rank clips its own gradient before the average",
            fix="Average the gradients first, then call clip_grad_norm_ on the mean.",
            experiment="Move clip_grad_norm_ below the average and train 50 steps: all ranks then use one norm. No "
            "action is needed if each rank's part of the gradient is to be limited.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
