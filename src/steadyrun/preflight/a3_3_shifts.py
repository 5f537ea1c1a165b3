"""A3.3, before training: are the targets the next tokens, not the same tokens and not the ones after the next?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a3_3_shifts import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.token_positions import pairs
    from steadyrun.probes.targets import alignment

    beside = [shares for pair in pairs(bench.first_pass().graph) if (shares := alignment(pair.graph)) is not None]
    if not beside:
        raise NotApplicable("no targets belong to rows of token ids")
    same, following, after = (max(float(shares[offset]) for shares in beside) for offset in range(3))
    measured = {"same": same, "next": following, "after_next": after}
    facts = (
        f"Of the targets in the loss, {percent(same)} are the same token as the input, {percent(following)} the next, "
        f"{percent(after)} the one after the next (limit {percent(limit['before_share'])})"
    )
    if same >= limit["before_share"] and following < limit["before_other"]:
        return _equal(bench, facts, measured)
    if after >= limit["before_share"] and max(same, following) < limit["before_other"]:
        return Finding("shifted-twice", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _equal(bench: Bench, facts: str, measured: dict[str, float]) -> Finding:
    """The finding for targets equal to the inputs: right for an autoencoder, a fault if the model is causal."""
    declared = bench.config.get("causal")
    if declared is True:
        return Finding("not-shifted", f"{facts}. The config declares the model causal.", measured)
    if declared is None and _looks_back_only(bench):
        return Finding("not-shifted", f"{facts}. Later tokens do not change earlier outputs.", measured)
    return Finding("same-tokens", f"{facts}. The model may attend to later tokens.", measured)


def _looks_back_only(bench: Bench) -> bool:
    """Whether later tokens change later outputs only."""
    from steadyrun.preflight.input_edits import later_tokens
    from steadyrun.preflight.token_positions import pairs

    batch = bench.batch()
    for tokens in [pair.tokens for pair in pairs(bench.first_pass().graph)]:
        half = tokens.shape[1] // 2
        try:
            before, after = bench.quiet_scores(batch), bench.quiet_scores(batch, later_tokens(tokens, half))
        except MissingSignal:
            return False
        if before.shape != after.shape or before.dim() < 3 or tuple(before.shape[:2]) != tuple(tokens.shape):
            continue
        moved = (before - after).abs().flatten(2).amax((0, 2))
        if float(moved[half:].max()) > 0:
            return float(moved[:half].max()) <= 1e-5 * float(before.abs().max())
    return False


QUESTION = probe_of(
    RECORDED,
    asks="Are the targets of a language model the next tokens, shifted exactly once?",
    needs=("loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="before_share",
            value=0.999,
            unit="fraction of targets",
            meaning="targets that equal the token at one offset",
            seed="",
            decision="a real shift affects every target (100%); models that correct text reach up to 99%",
        ),
        Threshold(
            name="before_other",
            value=0.9,
            unit="fraction of targets",
            meaning="targets that also equal the token at the right offset",
            seed="",
            decision="padding and runs of one token agree at every offset; a program that shifts once has 100% here",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(
            name="same-tokens",
            answer=NOTE,
            meaning="the targets equal the inputs, as in an autoencoder or a masked LM",
        ),
        same(RECORDED, "not-shifted", ("C1", "C4", "S", "P3", "P6")),
        same(RECORDED, "shifted-twice", ("C4", "S", "P6")),
    ),
    find=find,
)
