"""A5.1, before training: does a shuffling sampler change the order in every epoch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a5_1_order import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_MOST = 2_000_000  # indices: a longer order is not worth its memory


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.loader_trials import length, order, torch_loader, twin

    loader = torch_loader(bench.task.loader)
    sampler = loader.sampler if type(loader.batch_sampler).__module__.startswith("torch.") else loader.batch_sampler
    name = type(sampler).__name__
    if not _says_it_shuffles(sampler):
        raise NotApplicable(f"{name} does not shuffle")
    if (size := length(loader.dataset)) is not None and size > _MOST:
        raise NotApplicable(f"the dataset has {size:,} examples; preflight reads an order of at most {_MOST:,} twice")
    count = int(limit["places"])
    try:
        double = twin(sampler)
        first, second = order(double, count), order(double, count)
    except Exception as problem:
        why = f"{name} could not be read twice: {type(problem).__name__}: {problem}"
        raise MissingSignal("the sampler", why, "let the sampler be read again for every epoch") from problem
    measured = {"places": float(len(first)), "same": float(sum(a == b for a, b in zip(first, second, strict=False)))}
    if len(set(first)) < limit["before_different"]:
        raise NotApplicable(f"{name} gives {len(set(first))} different indices, too few to compare orders")
    facts = f"{name} gives indices {_shown(first)} … in the first epoch and {_shown(second)} … in the second"
    if first != second:
        return Finding("pass", f"{facts}.", measured)
    if hasattr(double, "epoch") or hasattr(double, "set_epoch"):
        double.set_epoch(1) if hasattr(double, "set_epoch") else setattr(double, "epoch", 1)
        if order(double, count) != first:
            return Finding("waits-for-set-epoch", f"{facts} unless the loop calls set_epoch.", measured)
    return Finding("not-reshuffled", f"{facts}: all {len(first)} indices agree.", measured)


def _says_it_shuffles(sampler: Any) -> bool:
    shuffles = getattr(sampler, "shuffle", None)
    if isinstance(shuffles, bool):
        return shuffles
    inner = getattr(sampler, "sampler", None)
    name = type(sampler).__name__.lower()
    return "random" in name or "shuffl" in name or (inner is not None and _says_it_shuffles(inner))


def _shown(places: list[int]) -> str:
    return ", ".join(map(str, places[:4]))


QUESTION = probe_of(
    RECORDED,
    asks="Does a shuffling sampler change the order in the second epoch?",
    needs=("a DataLoader",),
    thresholds=(
        Threshold(
            name="places",
            value=512,
            unit="indices",
            meaning="indices of each epoch that are compared",
            seed="",
            decision="eight different indices agree by chance once in 40,320 times, twelve once in 479 million",
        ),
        Threshold(
            name="before_different",
            value=12,
            unit="indices",
            meaning="different indices needed to compare two orders",
            seed="",
            decision="twelve indices come in the same order by chance once in 479 million times",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(
            name="waits-for-set-epoch",
            answer=NOTE,
            meaning="the order repeats in every epoch unless the loop calls set_epoch",
            fix="Call sampler.set_epoch(epoch) at the start of every epoch.",
        ),
        same(RECORDED, "not-reshuffled"),
    ),
    find=find,
)
