"""P1.9: does the tokenizer fit the model and the run being resumed?"""

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
        raise NotApplicable("the task has no tokenizer")
    summary = _described(tokenizer)
    before = _before(bench)
    if before is not None and before.get("fingerprint") != summary["fingerprint"]:
        message = (
            f"The tokenizer ({summary['class']}, {summary['vocab_size']} tokens, {summary['fingerprint'][:8]}) differs "
            f"from that of the resumed run ({before.get('vocab_size')} tokens, {str(before.get('fingerprint'))[:8]})."
        )
        return Finding("another-tokenizer", message, {"tokens": float(summary["vocab_size"])})
    table, rows = _table(bench)
    last, token = _largest(tokenizer, summary["vocab_size"])
    measured = {"largest_id": float(last), "rows": float(rows), "tokens": float(summary["vocab_size"])}
    if last >= rows:
        message = f"The tokenizer's largest id is {last} ({token!r}), but {table} has {rows} rows (0 to {rows - 1})."
        return Finding("larger-than-the-table", message, measured)
    same = "" if before is None else " It equals the resumed run's tokenizer."
    return Finding("pass", f"The tokenizer's largest id is {last}, {table} has {rows} rows.{same}", measured)


def _described(tokenizer: Any) -> dict[str, Any]:
    from steadyrun.probes.description import describe_tokenizer

    try:
        return describe_tokenizer(tokenizer)
    except Exception as problem:
        how = "give a tokenizer with get_vocab() (transformers, tokenizers)"
        raise MissingSignal("tokenizer", f"the tokenizer's vocabulary cannot be read: {problem}", how) from problem


def _before(bench: Bench) -> Mapping[str, Any] | None:
    """The tokenizer in the manifest of the resumed run."""
    manifest = getattr(bench.resumed, "manifest", None) or {}
    recorded = manifest.get("tokenizer") or (manifest.get("inferred") or {}).get("tokenizer")
    return recorded if isinstance(recorded, Mapping) and recorded.get("fingerprint") else None


def _table(bench: Bench) -> tuple[str, int]:
    """The largest table in which the model looks up ids of a batch."""
    from steadyrun.preflight.batch_arrays import integers, source_of

    passes = bench.guarded_passes()
    lookups = passes[-1].lookups if passes else []
    arrays = integers(bench.batches[len(passes) - 1]) if passes else {}
    token_lookups = [lookup for lookup in lookups if source_of(lookup.ids, arrays) is not None]
    if not token_lookups:
        raise NotApplicable("the model looks up no ids of the batch in an embedding")
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
    name="tokenizer fits the model",
    asks="Does every id of the tokenizer have a row in the model, and is it the tokenizer of the resumed run?",
    why="A token added to the tokenizer but not to the model stops training at its first batch. A different tokenizer "
    "changes the meaning of every id without an error.",
    needs=("tokenizer", "batches", "loss_fn"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every id of the tokenizer has a row in the model"),
        Outcome(
            name="larger-than-the-table",
            answer=FAULT,
            meaning="the tokenizer has more ids than the model has rows",
            fix="Resize the table after adding tokens: model.resize_token_embeddings(len(tokenizer)).",
        ),
        Outcome(
            name="another-tokenizer",
            answer=FAULT,
            meaning="the tokenizer differs from that of the resumed run",
            fix="Load the tokenizer that was saved with the checkpoint.",
            explains=("C1", "C4", "P3.3", "S1"),
        ),
    ),
    find=find,
    tried=True,
)
