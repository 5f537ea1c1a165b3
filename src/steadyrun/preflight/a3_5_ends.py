"""A3.5, before training: is the end of a text ever a target?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a3_5_ends import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import counted

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    graph = bench.first_pass().graph
    if not graph.labels or not graph.tokens:
        raise NotApplicable("no targets belong to rows of token ids")
    eos = bench.token("eos_id")
    if eos is None:
        how = "declare config={'eos_id': …}, or give preflight the tokenizer"
        raise MissingSignal("eos_id", "the id of the end-of-text token is not known", how)
    masked, learned = _ends(bench, eos)
    measured = {"masked": float(masked), "learned": float(learned), "eos_id": float(eos)}
    if not masked and not learned:
        raise NotApplicable(f"no text in this batch ends with the eos token ({eos})")
    if masked >= limit["before_ends"] and not learned:
        pad = bench.token("pad_id")
        why = f" Padding has the same id ({pad}), so masking the padding also masks the ends." if pad == eos else ""
        message = f"{masked} texts end in this batch, and the loss includes none of their eos tokens ({eos}).{why}"
        return Finding("never-asked", message, measured)
    return Finding(
        "pass",
        f"The loss includes the eos token ({eos}) at {learned} of {counted(masked + learned, 'text end')}.",
        measured,
    )


def _ends(bench: Bench, eos: int) -> tuple[int, int]:
    """Ends of texts whose last token is a target: those with a masked eos token, and those with a learned one."""
    from steadyrun.preflight.token_positions import pairs

    beside = pairs(bench.first_pass().graph)
    counts = [_counted(pair.tokens, pair.targets, pair.ignored, eos) for pair in beside]
    return max((count for count in counts if count is not None), key=sum, default=(0, 0))


def _counted(tokens: Tensor, targets: Tensor, ignored: int, eos: int) -> tuple[int, int] | None:
    """The two counts of one pair, if its targets are the next tokens; the next input shows a masked target."""
    width = min(targets.shape[1], tokens.shape[1] - 1)
    if width < 2:
        return None
    following, targets = tokens[:, 1 : width + 1], targets[:, :width]
    keep = targets != ignored
    if not keep.any() or float((targets == following)[keep].float().mean()) < 1:
        return None
    here = tokens[:, 1:width]  # the last token of a text, whose own target is its end
    end = (following[:, 1:] == eos) & (here != eos) & keep[:, :-1]
    return int((end & ~keep[:, 1:]).sum()), int((end & keep[:, 1:]).sum())


QUESTION = probe_of(
    RECORDED,
    asks="Does the loss include the token that ends a text?",
    needs=("eos_id", "loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="before_ends",
            value=3,
            unit="text ends",
            meaning="masked ends while no end is a target",
            seed="",
            decision="a truncated text has no end; three texts learned up to their last token but not their end "
            "are not chance",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "never-asked"),
    ),
    find=find,
)
