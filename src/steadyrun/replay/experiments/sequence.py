"""Runs the experiments in their order, and stops when they have decided."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from steadyrun.replay.bad_examples import in_words
from steadyrun.replay.experiments.attempt import ExperimentRunner, plan
from steadyrun.replay.experiments.experiment_jobs import run_in_processes
from steadyrun.replay.experiments.factors import REPEAT, Factor, factors_for
from steadyrun.replay.experiments.isolation import isolate
from steadyrun.replay.experiments.judge import IncidentJudge
from steadyrun.replay.experiments.verdict import DATA, NOT_REPRODUCIBLE, UNDECIDED, FactorRow, TriedRows, Why, decide
from steadyrun.replay.rendering import as_json
from steadyrun.replay.result import Replay
from steadyrun.store.jsonio import dumps, replace_file

OnRow = Callable[[int, int, str], None]
"""Called before each experiment with its place, their number, and its words."""

FILE = "experiments.json"


def explain_incident(
    result: Replay,
    *,
    everything: bool = False,
    isolating: bool = False,
    jobs: int = 1,
    on_row: OnRow | None = None,
) -> Why:
    """Find the cause of a replayed incident by experiment; the table is left in its folder as experiments.json.

    It is in replay.json as well.
    With `everything` the experiments go on after they have decided; with `isolating` a smaller model and made-up data
    are tried, too. `jobs` processes share the experiments.
    """
    why = _explained(result, everything, jobs, on_row or (lambda *_: None))
    if isolating and why.baseline is not None:
        why = replace(why, isolation=isolate(result, why.moment, why.verdict))
    result.why = why
    replace_file(result.incident.folder / FILE, dumps(why.to_dict(), indent=1))
    replace_file(result.incident.folder / "replay.json", dumps(as_json(result), indent=1))
    return why


def _explained(result: Replay, everything: bool, jobs: int, on_row: OnRow) -> Why:
    incident = result.incident
    at: dict[str, Any] = {"step": incident.step, "kind": incident.kind}
    nowhere: dict[str, Any] = dict.fromkeys(("moment", "start", "until"), incident.step)
    if not result.proof.holds:
        differences = (
            "; ".join(difference.message for difference in result.proof.differences) or "what differs is not known"
        )
        why = f"the replay is not what was recorded: {differences}"
        return Why(**at, **nowhere, verdict=NOT_REPRODUCIBLE, why=why)
    judge = IncidentJudge(incident, result.first_bad, result.raised)
    if judge.cannot_tell:
        return Why(**at, **nowhere, verdict=UNDECIDED, why=judge.cannot_tell)
    steps = plan(result, judge)
    experiments = ExperimentRunner(result.session, judge, steps)
    at |= {"moment": steps.moment, "start": steps.start, "until": steps.until}
    baseline = experiments.run(REPEAT)
    if baseline.gone:
        why = "a plain repeat of the same steps does not show it"
        return Why(**at, verdict=NOT_REPRODUCIBLE, why=why, baseline=baseline)
    usable, unusable = factors_for(result.session, steps.start != steps.moment)
    experiments.on_start = lambda factor, start: on_row(
        usable.index(factor), len(usable), f"{factor.words}, from step {start} on"
    )
    run = run_in_processes(result, steps, usable, jobs) if jobs > 1 else map(experiments.run, usable)
    with closing(_closable(run)) as rows:
        why_table = _table(result, at, baseline, usable, unusable, rows, everything, on_row)
    return _with_examples(why_table, result, experiments) if why_table.verdict == DATA else why_table


def _with_examples(explanation: Why, result: Replay, experiments: ExperimentRunner) -> Why:
    """Which examples of the batch do it: those that are not finite, else those that do it alone."""
    if result.culprit is not None and result.culprit.examples:
        return replace(explanation, examples=result.culprit.examples)
    if not any(row.factor == "other-batch" and row.gone for row in explanation.table):
        return explanation
    alone = experiments.examples_alone()
    why = (
        f"{explanation.why}; alone, {in_words(alone)} {'do' if len(alone) > 1 else 'does'} it"
        if alone
        else explanation.why
    )
    return replace(explanation, examples=alone, why=why)


def _closable(rows: Iterator[FactorRow]) -> Generator[FactorRow, None, None]:
    yield from rows


def _table(
    result: Replay,
    at: dict[str, Any],
    baseline: FactorRow,
    usable: list[Factor],
    unusable: list[Factor],
    results: Iterator[FactorRow],
    everything: bool,
    on_row: OnRow,
) -> Why:
    structural = result.precision is None or result.precision.outcome == "structural"
    rows: list[FactorRow] = []
    decision = None
    for index, factor in enumerate(usable):
        left = [remaining.name for remaining in usable[index:]]
        decision = decision or decide(TriedRows(rows, left), result.culprit, structural)
        if decision is not None and not everything:
            break
        on_row(index, len(usable), factor.words)
        rows.append(next(results))
    decision = decision or decide(TriedRows(rows, []), result.culprit, structural)
    tried = {row.factor for row in rows}
    left_out = [factor.name for factor in (*usable, *unusable) if factor.name not in tried]
    verdict, why, interaction = decision or (UNDECIDED, _why_undecided(rows), None)
    return Why(
        **at, verdict=verdict, why=why, baseline=baseline, table=rows, interaction=interaction, left_out=left_out
    )


def _why_undecided(rows: list[FactorRow]) -> str:
    removing = [row.words for row in rows if row.gone]
    if removing:
        return f"the table does not separate: {', '.join(removing)} remove it"
    untested = [row.words for row in rows if row.gone is None]
    if not untested:
        return "no single change removes it"
    tested = (
        "none of the changes that could be tested removes it" if len(untested) < len(rows) else "nothing was tested"
    )
    return f"{tested}; not tested: {', '.join(untested)}"
