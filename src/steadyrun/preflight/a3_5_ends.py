"""A3.5, before training: is the end of a text ever a target?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a3_5_ends import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    graph = bench.first_pass().graph
    if not graph.labels or not graph.tokens:
        raise NotApplicable("no targets lie beside token ids")
    eos = bench.token("eos_id")
    if eos is None:
        how = "declare config={'eos_id': …}, or give preflight the tokenizer"
        raise MissingSignal("eos_id", "which token ends a text is not known", how)
    masked, learned = _ends(bench, eos)
    measured = {"masked": float(masked), "learned": float(learned), "eos_id": float(eos)}
    if not masked and not learned:
        raise NotApplicable(f"no text that is learned ends in this batch (eos {eos})")
    if masked >= limit["before_ends"] and not learned:
        pad = bench.token("pad_id")
        why = f"; padding is the same token ({pad}), and masking it masks the ends, too" if pad == eos else ""
        message = f"{masked} texts are learned up to their end, and at none of them the end itself ({eos}) counts{why}."
        return Finding("never-asked", message, measured)
    return Finding("pass", f"the end of a text ({eos}) counts at {learned} of {masked + learned} ends.", measured)


def _ends(bench: Bench, eos: int) -> tuple[int, int]:
    """Ends of texts whose last token counts as a target: those at which the end does not count, and does."""
    from steadyrun.preflight.token_positions import pairs

    beside = pairs(bench.first_pass().graph)
    counts = [_counted(pair.tokens, pair.targets, pair.ignored, eos) for pair in beside]
    return max((count for count in counts if count is not None), key=sum, default=(0, 0))


def _counted(tokens: Tensor, targets: Tensor, ignored: int, eos: int) -> tuple[int, int] | None:
    """Only where targets are the next tokens; a target that is masked is known from the input that follows."""
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
    asks="Where texts end in the data, is the end a target that counts?",
    needs=("eos_id", "loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="before_ends",
            value=3,
            unit="ends of texts",
            meaning="ends that do not count, while none does",
            seed="",
            decision="a text that is cut off has no end; three that are learned to their last token and not to "
            "their end are "
            "no chance",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "never-asked"),
    ),
    find=find,
)
