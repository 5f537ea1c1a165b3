"""A8.1, before training: does padding change the model's outputs for real tokens?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.preflight.same_cause import probe_of
from steadyrun.questions.audits.a8_1_attended_padding import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import counted, shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    if not bench.first_pass().graph.tokens:
        raise NotApplicable("the model embeds no rows of tokens")
    pad = bench.token("pad_id")
    if pad is None:
        raise MissingSignal("pad_id", "the id of the padding token is not known", 'declare config={"pad_id": …}')
    quiet = bench.quiet()
    from steadyrun.preflight.input_edits import moved

    masks: list[Tensor] = []
    index = _padded_batch(bench, pad)
    if index is None:
        raise NotApplicable(f"no row of the first batches begins or ends with padding (id {pad})")
    before = quiet.scores if index == 0 else bench.quiet_scores(bench.batch(index))
    attends: list[bool] = []
    after = _disturbed(bench, index, pad, masks, attends)
    if not masks:
        raise MissingSignal(
            "an embedding", "the model embeds the padding without torch's embedding", "use torch.nn.Embedding"
        )
    if before.shape != after.shape:
        raise NotApplicable("the shape of the outputs depends on the padding")
    real, bound = _real(before, masks), quiet.limit(limit["moved"])
    far = moved(before, after)
    if bool((far[real] > bound).any()):  # torch takes a fast path without hooks: compare like with like
        far = moved(_disturbed(bench, index, None, [], []), after)
    measured = {"moved": float(far[real].max()) if bool(real.any()) else 0.0, "padding": float(masks[0].sum())}
    facts = f"Perturbing {counted(int(masks[0].sum()), 'padding position')} (id {pad})"
    if measured["moved"] <= bound:
        return Finding("pass", f"{facts} leaves the outputs at real positions unchanged.", measured)
    message = f"{facts} changes outputs at real positions by {shown(measured['moved'])} (limit {shown(bound)})."
    return Finding("attended" if attends else "read", message, measured)


def _ends_text(bench: Bench, pad: int) -> bool:
    tokenizer = bench.task.tokenizer
    others = [bench.token("eos_id"), bench.token("bos_id"), getattr(tokenizer, "bos_token_id", None)]
    return pad in others


def _padded_batch(bench: Bench, pad: int) -> int | None:
    """The index of the first batch with padding at the ends of its rows, among the first eight."""
    from steadyrun.probes.targets import padding

    ends = _ends_text(bench, pad)
    for index in range(min(8, len(bench.batches))):
        if any(bool(padding(tokens, pad, ends_text=ends).any()) for tokens in _tokens(bench, index)):
            return index
    return None


def _tokens(bench: Bench, index: int) -> list[Tensor]:
    """Rows of ids in a batch, without masks and segments, which have only two values."""
    from steadyrun.preflight.input_edits import tensors_in

    whole = [tensor for tensor in tensors_in(bench.batch(index)) if tensor.dim() == 2 and tensor.numel()]
    return [
        tensor
        for tensor in whole
        if not tensor.is_floating_point() and tensor.dtype.itemsize > 1 and int(tensor.max()) > 1
    ]


def _among(ids: Tensor, tokens: list[Tensor]) -> bool:
    """Whether these ids are the batch's own, perhaps without the first or the last column.

    Positions, segments and relative distances are also embedded, and may equal the padding's id.
    """
    import torch

    for rows in tokens:
        for part in (rows, rows[:, :-1], rows[:, 1:]):
            if part.shape == ids.shape and torch.equal(part.to(ids.device), ids):
                return True
    return False


def _disturbed(bench: Bench, index: int, pad: int | None, masks: list[Tensor], attends: list[bool]) -> Tensor:
    """The scores with perturbed padding (None: unchanged); records its positions and whether there is attention."""
    import torch

    from steadyrun.preflight.token_positions import embedding, noting
    from steadyrun.probes.targets import padding

    ends = pad is not None and _ends_text(bench, pad)
    tokens = _tokens(bench, index)

    def change(ids: Tensor, vectors: Tensor) -> Tensor:
        if pad is None or vectors.shape[:2] != ids.shape or not _among(ids, tokens):
            return vectors
        mask = padding(ids, pad, ends_text=ends)
        if not bool(mask.any()):
            return vectors
        masks.append(mask)
        size = float(vectors[~mask].float().std()) or 1.0
        noise = torch.linspace(-2, 2, vectors.shape[-1], device=vectors.device).mul(size).to(vectors.dtype)
        return torch.where(mask[..., None], vectors + noise, vectors)

    def note(function: Any, args: Any, _kwargs: Any) -> None:
        name = getattr(function, "__name__", "")
        scores = args[0] if name == "softmax" and args and isinstance(args[0], torch.Tensor) else None
        if scores is not None and any(scores.shape[-1:] == mask.shape[1:] for mask in masks):
            attends.append(True)  # attention written by hand: weights over as many positions as the padded text has
        if name in {"scaled_dot_product_attention", "multi_head_attention_forward", "_transformer_encoder_layer_fwd"}:
            attends.append(True)

    with noting(note), embedding(change):
        disturbed = bench.quiet_scores(bench.batch(index))
    if any("attention" in type(module).__name__.lower() for module in bench.model.modules()):
        attends.append(True)
    return disturbed


def _real(scores: Tensor, masks: list[Tensor]) -> Tensor:
    """A mask of outputs at real tokens; all outputs if each belongs to a whole row."""
    import torch

    real = torch.ones_like(scores, dtype=torch.bool)
    for mask in masks:
        length = min(scores.shape[1], mask.shape[1]) if scores.dim() >= 3 else 0
        if length and scores.shape[0] == mask.shape[0] and abs(scores.shape[1] - mask.shape[1]) <= 2:
            real[:, :length] &= ~mask[:, :length].to(scores.device).reshape(
                mask.shape[0], length, *[1] * (scores.dim() - 2)
            )
    return real


_FIX = (
    "Pass the padding mask (attention_mask, src_key_padding_mask) to every layer and to pooling, or pad on the "
    "right under a causal mask."
)

QUESTION = probe_of(
    RECORDED,
    asks="Does perturbing the embedded padding change outputs at real positions?",
    needs=("loss_fn", "batches", "pad_id"),
    thresholds=(
        Threshold(
            name="moved",
            value=1e-5,
            unit="fraction of the largest output",
            meaning="a larger change at a real position shows that the model reads the padding",
            seed="",
            decision="masked attention changes nothing; unmasked attention over a quarter of padding changes outputs "
            "by 1e-2 and more",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="padding does not affect the outputs"),
        Outcome(
            name="attended",
            answer=FAULT,
            meaning="attention does not mask the padding",
            fix=_FIX,
            explains=("C1", "C4", "S", "P6"),
        ),
        Outcome(
            name="read",
            answer=NOTE,
            meaning="a model without attention reads its padding",
            fix=_FIX,
        ),
    ),
    find=find,
)
