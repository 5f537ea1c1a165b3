"""P1.1: does every id have a row in its embedding table?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steadyrun.preflight.batch_arrays import ArraySource, integers, source_of
from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.guarded_pass import GuardedPass, Lookup

_TRIED = 3  # suspicious batches that are run


def find(bench: Bench, _limit: Limits) -> Finding:
    passes = bench.guarded_passes()
    for index, guarded in enumerate(passes):
        if guarded.problem is not None and guarded.problem.kind == "id":
            return _beyond(index, guarded, bench)
    if not passes or not passes[-1].lookups:
        raise NotApplicable("the model looks up no ids in an embedding")
    lookups = passes[-1].lookups
    arrays = integers(bench.batches[len(passes) - 1])
    sources = [(lookup, source) for lookup in lookups if (source := source_of(lookup.ids, arrays)) is not None]
    for index in _suspicious(bench, sources, lookups)[:_TRIED]:
        guarded = bench.guarded_pass(index)
        if guarded.problem is not None and guarded.problem.kind == "id":
            return _beyond(index, guarded, bench)
    widest = max((lookup for lookup, _ in sources), key=lambda lookup: lookup.rows, default=lookups[0])
    of = f"all {len(bench.batches)} batches" if sources and len(bench.batches) > 1 else "the tried batch"
    top = max(int(lookup.ids.max()) for lookup in lookups if lookup.table == widest.table)
    return Finding(
        "pass",
        f"Every id of {of} has a row: the largest of the first batch is {top}, {widest.table} has {widest.rows} rows.",
        {"largest_id": float(top), "rows": float(widest.rows)},
    )


def _suspicious(bench: Bench, sources: list[tuple[Lookup, ArraySource]], lookups: list[Lookup]) -> list[int]:
    """Batches with an id beyond its table, or with more positions than the position table has."""
    positions = min((lookup.rows for lookup in lookups if _counts_up(lookup)), default=None)
    suspicious = []
    for index, batch in enumerate(bench.batches):
        arrays = integers(batch)
        for lookup, source in sources:
            ids = source.of(arrays)
            if ids is None or not ids.size:
                continue
            width = ids.shape[0] if source.turned else ids.shape[-1]
            if ids.min() < 0 or ids.max() >= lookup.rows or (positions is not None and width > positions):
                suspicious.append(index)
                break
    return suspicious


def _counts_up(lookup: Lookup) -> bool:
    """Whether these ids are positions: 0, 1, 2 and so on in every row."""
    ids = lookup.ids.reshape(-1, lookup.ids.shape[-1]) if lookup.ids.ndim else lookup.ids.reshape(1, 1)
    return ids.shape[1] > 1 and bool((ids == np.arange(ids.shape[1])).all())


def _beyond(index: int, guarded: GuardedPass, bench: Bench) -> Finding:
    problem, ids = guarded.problem, guarded.lookups[-1].ids
    assert problem is not None
    wrong = int(((ids < 0) | (ids >= problem.size)).sum())
    source = source_of(ids, integers(bench.batches[index]))
    where = f" ({source.words})" if source is not None else ""
    return Finding(
        "beyond-the-table",
        f"Batch {index}{where} looks up id {problem.value} in {problem.name}, which has {problem.size} rows "
        f"(0 to {problem.size - 1}). Ids without a row: {wrong} of {ids.size}.",
        {"id": float(problem.value), "rows": float(problem.size), "without_row": float(wrong)},
    )


QUESTION = Question(
    code="P1.1",
    name="ids within their embedding tables",
    asks="Does every id of the batches have a row in its embedding table?",
    why="An id beyond its table stops training at its batch, with an IndexError on the CPU or a device-side assert on "
    "a GPU.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every id has a row"),
        Outcome(
            name="beyond-the-table",
            answer=FAULT,
            meaning="an id is too large for its embedding table",
            fix="Enlarge the table to the vocabulary with its added tokens (model.resize_token_embeddings, "
            "num_embeddings), a position table to the longest text, or correct the ids.",
            explains=("P1.2", "P1.9", "P3.3", "D1"),
        ),
    ),
    find=find,
    tried=True,
)
