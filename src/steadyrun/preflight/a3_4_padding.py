"""A3.4, before training: does the loss include padding?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.audits.a3_4_padding import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.token_positions import Pair


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.token_positions import pairs

    beside = [pair for pair in pairs(bench.first_pass().graph) if pair.tokens.numel() and _are_tokens(pair, limit)]
    if not beside:
        raise NotApplicable("no targets are tokens of their input text")
    pad = bench.token("pad_id")
    if pad is None:
        share, token = max(_constant_tails(pair, limit["tail"]) for pair in beside)
        measured = {"share": share}
        if share >= limit["before_share"]:
            message = (
                f"{percent(share)} of the targets in the loss repeat token {token} up to the end of the row "
                f"(limit {percent(limit['before_share'])}). No pad_id is known."
            )
            return Finding("constant-tails", message, measured)
        return Finding(
            "pass", f"{percent(share)} of the targets in the loss repeat one token up to the end of the row.", measured
        )
    share = max(_padding(pair, pad) for pair in beside)
    measured = {"share": share, "pad_id": float(pad)}
    facts = f"{percent(share)} of the targets in the loss are padding predicted from padding (id {pad})"
    if share >= limit["before_share"]:
        return Finding("supervised", f"{facts}, limit {percent(limit['before_share'])}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _are_tokens(pair: Pair, limit: Limits) -> bool:
    """Whether the targets are tokens of the input text, not tags or classes."""
    from steadyrun.probes.targets import alignment

    shares = alignment(pair.graph)
    return shares is not None and float(shares.max()) > limit["tokens"]


def _padding(pair: Pair, pad: int) -> float:
    """The fraction of targets that are padding at the start or end of a row; elsewhere the id may be a token."""
    tokens = pair.tokens[:, : pair.targets.shape[1]]
    is_pad = (tokens == pad).int()
    outside = is_pad.flip(1).cummin(1).values.flip(1) | is_pad.cummin(1).values
    wrong = pair.keep & (pair.targets == pad) & outside.bool()
    return float(wrong.sum() / pair.keep.sum().clamp(min=1))


def _constant_tails(pair: Pair, least: float) -> tuple[float, int]:
    """The fraction of targets in runs of one token that reach the end of the row, of at least `least` tokens."""
    tokens = pair.tokens[:, : pair.targets.shape[1]]
    last = tokens[:, -1:]
    tail = (tokens == last).int().flip(1).cummin(1).values.flip(1)
    length = tail.sum(1, keepdim=True)
    wrong = pair.keep & tail.bool() & (length >= least) & (length < tokens.shape[1]) & (pair.targets == last)
    token = int(tokens[wrong].mode().values) if wrong.any() else 0
    return float((wrong & (tokens == token)).sum() / pair.keep.sum().clamp(min=1)), token


QUESTION = probe_of(
    RECORDED,
    asks="Does the loss include padding predicted from padding?",
    needs=("pad_id", "loss_fn", "batches"),
    thresholds=(
        *same_limits(RECORDED, "tokens"),
        Threshold(
            name="before_share",
            value=0.05,
            unit="fraction of targets in the loss",
            meaning="padding predicted from padding",
            seed="",
            decision="programs that mask padding have none; those that do not mostly have 20% and more",
        ),
        Threshold(
            name="tail",
            value=4,
            unit="tokens",
            meaning="length of a run that looks like padding if no pad_id is known",
            seed="",
            decision="shorter runs of one token at the end of a row are common in text",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(
            name="constant-tails",
            answer=NOTE,
            meaning="rows end with repeated tokens that may be padding in the loss",
            fix="If the token is padding, set those labels to -100 and declare config={'pad_id': …}.",
        ),
        same(RECORDED, "supervised", ("C1", "C4", "S")),
    ),
    find=find,
)
