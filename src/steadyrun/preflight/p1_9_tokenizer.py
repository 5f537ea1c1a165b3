"""P1.9: does the tokenizer belong to this model, and to the run that is continued?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal, NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    tokenizer = bench.task.tokenizer
    if tokenizer is None:
        raise NotApplicable("there is no tokenizer")
    summary = _described(tokenizer)
    before = _before(bench)
    if before is not None and before.get("fingerprint") != summary["fingerprint"]:
        message = (
            f"the tokenizer ({summary['class']}, {summary['vocab_size']} tokens, {summary['fingerprint'][:8]}) is not "
            "that of the run being continued "
            f"({before.get('vocab_size')} tokens, {str(before.get('fingerprint'))[:8]})."
        )
        return Finding("another-tokenizer", message, {"tokens": float(summary["vocab_size"])})
    table, rows = _table(bench)
    last, token = _largest(tokenizer, summary["vocab_size"])
    measured = {"largest_id": float(last), "rows": float(rows), "tokens": float(summary["vocab_size"])}
    if last >= rows:
        message = f"the tokenizer's largest id is {last} ({token!r}); {table} has {rows} rows (0 to {rows - 1})."
        return Finding("larger-than-the-table", message, measured)
    same = "" if before is None else "; the tokenizer is that of the run being continued"
    return Finding("pass", f"the tokenizer's largest id is {last}, {table} has {rows} rows{same}.", measured)


def _described(tokenizer: Any) -> dict[str, Any]:
    from steadyrun.probes.description import describe_tokenizer

    try:
        return describe_tokenizer(tokenizer)
    except Exception as problem:
        how = "give a tokenizer with get_vocab() (transformers, tokenizers)"
        raise MissingSignal("tokenizer", f"the tokenizer does not tell its vocabulary: {problem}", how) from problem


def _before(bench: Bench) -> Mapping[str, Any] | None:
    """The tokenizer in the manifest of the run that is continued."""
    manifest = getattr(bench.resumed, "manifest", None) or {}
    recorded = manifest.get("tokenizer") or (manifest.get("inferred") or {}).get("tokenizer")
    return recorded if isinstance(recorded, Mapping) and recorded.get("fingerprint") else None


def _table(bench: Bench) -> tuple[str, int]:
    """The table in which the ids of a batch are looked up; of several the largest."""
    from steadyrun.preflight.batch_arrays import integers, source_of

    passes = bench.guarded_passes()
    lookups = passes[-1].lookups if passes else []
    arrays = integers(bench.batches[len(passes) - 1]) if passes else {}
    token_lookups = [lookup for lookup in lookups if source_of(lookup.ids, arrays) is not None]
    if not token_lookups:
        raise NotApplicable("no ids of the batch are seen to go through an embedding")
    largest = max(token_lookups, key=lambda lookup: lookup.rows)
    return largest.table, largest.rows


def _largest(tokenizer: Any, size: int) -> tuple[int, str]:
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    if not isinstance(vocabulary, Mapping) or not vocabulary:
        return size - 1, ""
    token = max(vocabulary, key=lambda token: vocabulary[token])
    return int(vocabulary[token]), str(token)


QUESTION = Question(
    code="P1.9",
    name="tokenizer and model",
    asks="Has every id of the tokenizer a row in the model, and is it the tokenizer of the run that is continued?",
    why="A token that was added to the tokenizer and not to the model ends training when it first comes. Another "
    "tokenizer than before gives every id another meaning, without an error.",
    needs=("tokenizer", "batches", "loss_fn"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the tokenizer belongs to the model; a table may have more rows"),
        Outcome(
            name="larger-than-the-table",
            answer=FAULT,
            meaning="the tokenizer has ids without a row",
            fix="Resize the table after adding tokens: model.resize_token_embeddings(len(tokenizer)).",
        ),
        Outcome(
            name="another-tokenizer",
            answer=FAULT,
            meaning="the tokenizer is not that of the run being continued",
            fix="Load the tokenizer that was saved with the checkpoint.",
            explains=("C1", "C4", "P3.3", "S1"),
        ),
    ),
    find=find,
    tried=True,
)
