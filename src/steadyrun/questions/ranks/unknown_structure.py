"""Ranks whose structure no wrapper shows: what their gradients, parameters and collectives show of it."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.ranks import Group, Matrix, Ranks, in_words, matrix_of
from steadyrun.signals.replicas import BlockAgreement, Difference
from steadyrun.store.ranks import Column
from steadyrun.text import counted, listed, shown

_MOST_RANKS = 8  # whose gradients are added up here


def compared(ranks: Ranks, found: BlockAgreement | None, limit: Limits) -> Finding:
    """Blocks that agree show that somebody averages; a block that begins equal and differs was left out.

    Parts of a model that are split by hand begin different, and so do models that have nothing to do with each other.
    """
    if found is None or not found.unequal or (found.equal and not found.begin_equal):
        raise NotApplicable("no ranks are known to be replicas")
    who, when = in_words(found.ranks), f"At all {len(found.steps)} sampled steps"
    measured = {"samples": float(len(found.steps)), "blocks": float(len(found.unequal))}
    if not found.equal:
        words = f"{when} the gradients of {who} differ in all blocks"
        if not found.begin_equal:
            words += ", and no wrapper shows how the ranks work together."
            return Finding("not-compared", words, measured)
        words += ", although the parameters begin equal"
        return _never_averaged(ranks, found, limit, words, measured)
    blocks, count = listed(list(found.begin_equal)), len(found.equal)
    rest = f"those of {count} other {'block' if count == 1 else 'blocks'} agree"
    words = f"{when} the gradients of {blocks} differ on {who}, although the parameters begin equal; {rest}."
    return Finding("some-differ", words, measured, found.steps[0], ranks=found.ranks)


def _never_averaged(
    ranks: Ranks, found: BlockAgreement, limit: Limits, words: str, measured: dict[str, float]
) -> Finding:
    """Ranks that begin as replicas: some average parameters from time to time, instead of each gradient."""
    collectives = ranks.matrix("collectives").of(found.ranks)
    counts = np.nanmax(collectives.values, axis=1) if collectives.ranks else np.empty(0)
    measured |= {"collectives": float(np.sum(counts)), "agree_again": float(len(found.agree_again))}
    often = np.flatnonzero(counts >= max(1.0, np.min(counts, initial=0.0) + len(found.unequal)))
    if found.agree_again:
        words += f". At step {found.agree_again[0]} the parameters agree again, so the ranks average these instead."
        return Finding("periodic", words, measured)
    if limit["samples"] <= len(often) < limit["often"] * len(counts):
        words += f". Only at {len(often)} of {len(counts)} steps the ranks exchange as much as the parameters."
        return Finding("periodic", words, measured)
    if len(counts) and not np.any(counts):
        words += ". No collective runs in any step."
    elif len(counts):
        words += f". A step runs {counted(int(np.median(counts)), 'collective')} (median)."
    else:
        words += "."
    return Finding("perhaps-not-averaged", words, measured, found.steps[0], ranks=found.ranks)


def added_up(ranks: Ranks, found: list[Difference], limit: Limits) -> Finding | None:
    """A mean is never larger than the largest of what it is taken of; the sum of similar gradients is.

    Gradients of a loss that each rank divides by the number of examples of all ranks may be added up.
    """
    for group in dict.fromkeys(difference.group for difference in found):
        if len(group) > _MOST_RANKS:
            continue
        own = _norms_before(ranks, group)
        for name in ("clip_norm", "grad_norm_applied"):
            used = ranks.matrix(name).of(group)
            steps, mine, theirs = np.intersect1d(own.steps, used.steps, return_indices=True)
            before, after = own.values[mine], used.values[theirs]
            known = np.all(np.isfinite(before), axis=1) & np.any(np.isfinite(after), axis=1)
            if used.ranks != group or int(known.sum()) < limit["samples"] or not _of_a_mean(ranks, group, limit):
                continue
            apart = np.ptp(np.nan_to_num(after), axis=1) <= limit["norms"] * np.nanmax(after, axis=1, initial=0.0)
            ratio = np.nanmax(after, axis=1) / np.max(before, axis=1)
            wrong = known & apart & (ratio > limit["larger"])
            if int(wrong.sum()) >= limit["always"] * int(known.sum()):
                index = int(np.flatnonzero(wrong)[0])
                words = f"At {int(wrong.sum())} of {int(known.sum())} sampled steps, from step {int(steps[index])} on, "
                words += f"the gradient after the exchange (norm {shown(float(np.nanmax(after[index])))}) is larger "
                words += f"than that of every rank before it (at most {shown(float(before[index].max()))})."
                measured = {"ratio": float(np.median(ratio[wrong])), "samples": float(known.sum())}
                return Finding("perhaps-sum", words, measured, int(steps[index]), ranks=group)
    return None


def _norms_before(ranks: Ranks, group: Group) -> Matrix:
    """The gradient norm of each rank at the end of backward, at sampled steps."""
    totals: dict[int, Column] = {}
    for rank in group:
        blocks = list(ranks.block_columns(rank, "block_grad_norm/").values())
        if blocks:
            squares = matrix_of(dict(enumerate(blocks)))
            totals[rank] = squares.steps, np.sqrt(np.nansum(squares.values**2, axis=1))
    return matrix_of(totals)


def _of_a_mean(ranks: Ranks, group: Group, limit: Limits) -> bool:
    """Whether the ranks report the loss from which backward started, and not its sum over ranks."""
    loss, root = ranks.matrix("loss").of(group), ranks.matrix("backward_loss").of(group)
    steps, mine, theirs = np.intersect1d(loss.steps, root.steps, return_indices=True)
    if not len(steps) or loss.ranks != root.ranks:
        return False
    mean, began = np.nanmean(loss.values[mine], axis=1), np.nanmean(root.values[theirs], axis=1)
    return bool(np.median(np.abs(mean - began)) <= limit["reported"] * np.median(np.abs(mean)))
