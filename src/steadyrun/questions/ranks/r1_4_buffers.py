"""R1.4: do all ranks validate with the same buffers?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.ranks import Group, Ranks, in_words
from steadyrun.signals.replicas import joined
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:  # noqa: ARG001  equal bits need no limit
    ranks = joined(run)
    groups = [group for name in ranks.classes for group in ranks.groups(name)] or ranks.data_parallel
    if not groups:
        raise NotApplicable("no ranks are known to be replicas")
    compared = {group: _by_step(ranks, group) for group in groups}
    steps = sorted({step for found in compared.values() for step in found})
    if not steps:
        raise _not_recorded(ranks)
    for group, found in compared.items():
        wrong = [step for step in sorted(found) if len(set(found[step].values())) > 1]
        if wrong:
            return _finding(ranks, group, found, wrong)
    many = len(steps)
    return Finding("pass", f"The buffers agree at {many} validations.", {"validations": float(many)})


def _by_step(ranks: Ranks, group: Group) -> dict[int, dict[int, str]]:
    """By step of a validation and rank: the digest of the buffers, of steps that two ranks or more have."""
    found: dict[int, dict[int, str]] = {}
    for rank in group:
        for step, digest in ranks.of(rank).buffers.items():
            if digest is not None:
                found.setdefault(step, {})[rank] = str(digest)
    return {step: digests for step, digests in found.items() if len(digests) > 1}


def _not_recorded(ranks: Ranks) -> Exception:
    if any(ranks.of(rank).validations for rank in ranks.present):
        return NotApplicable("the model has no buffers, or one rank alone validates")
    return MissingSignal("val_loss", "no validation was recorded")


def _finding(ranks: Ranks, group: Group, found: dict[int, dict[int, str]], wrong: list[int]) -> Finding:
    first = wrong[0]
    measured = {"differing": float(len(wrong)), "validations": float(len(found))}
    words = f"At {len(wrong)} of {len(found)} validations, first at step {first}, the buffers (such as running "
    words += f"statistics) of {in_words(group)} differ."
    broadcast = all(ranks.of(rank).structure.get("broadcast_buffers") is True for rank in group)
    if broadcast:
        return Finding(
            "own", f"{words} DDP copies rank 0's at the next forward pass.", measured, first, ranks=tuple(group)
        )
    return Finding("differ", words, measured, first, ranks=tuple(group))


QUESTION = Question(
    code="R1.4",
    name="equal buffers at validation",
    asks="Do all ranks validate with the same running statistics?",
    why="Batch normalisation keeps statistics of the data that its rank saw. If nothing copies them between ranks, "
    "each rank validates another model, and the checkpoint holds the statistics of one part of the data.",
    needs=("val_loss",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all ranks validate with the same buffers"),
        Outcome(
            name="differ",
            answer=SUSPECT,
            meaning="the buffers differ between ranks at validation, and nothing makes them equal",
            fix="Use torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or leave broadcast_buffers=True in "
            "DistributedDataParallel.",
            experiment="Validate once with rank 0's buffers on all ranks (torch.distributed.broadcast(buffer, 0)). If "
            "the validation loss changes, the buffers matter.",
            explains=("S1.3", "A2.4"),
        ),
        Outcome(
            name="own",
            answer=NOTE,
            meaning="each rank validates with its own running statistics",
            fix="Validate through the DDP model instead of model.module if the ranks' results are averaged.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
