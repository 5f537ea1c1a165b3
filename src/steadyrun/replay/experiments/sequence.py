"""Run the experiments in order, and stop when they have decided."""

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
"""Called before each experiment with its index, the number of experiments, and a description."""

FILE = "experiments.json"


def explain_incident(
    result: Replay,
    *,
    everything: bool = False,
    isolating: bool = False,
    jobs: int = 1,
    on_row: OnRow | None = None,
) -> Why:
    """Find the cause of a replayed incident by experiment; write experiments.json and replay.json to its folder.

    With `everything` the experiments continue after they have decided; `isolating` also tests a smaller model and
    synthetic data. `jobs` processes share the experiments.
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
            "; ".join(difference.message for difference in result.proof.differences) or "the difference is unknown"
        )
        why = f"the replay differs from the recording: {differences}"
        if result.hardware is not None and result.hardware.blames_hardware:
            why = (
                f"experiments on the program do not decide it: the verdict on the hardware is {result.hardware.verdict}"
            )
        return Why(**at, **nowhere, verdict=NOT_REPRODUCIBLE, why=why)
    judge = IncidentJudge(incident, result.first_bad, result.raised)
    if judge.cannot_tell:
        return Why(**at, **nowhere, verdict=UNDECIDED, why=judge.cannot_tell)
    steps = plan(result, judge)
    experiments = ExperimentRunner(result.session, judge, steps)
    at |= {"moment": steps.moment, "start": steps.start, "until": steps.until}
    baseline = experiments.run(REPEAT)
    if baseline.gone:
        why = "repeating the same steps unchanged does not reproduce the incident"
        return Why(**at, verdict=NOT_REPRODUCIBLE, why=why, baseline=baseline)
    usable, unusable = factors_for(result.session, steps.start != steps.moment)
    experiments.on_start = lambda factor, start: on_row(
        usable.index(factor), len(usable), f"{factor.words}, from step {start}"
    )
    run = run_in_processes(result, steps, usable, jobs) if jobs > 1 else map(experiments.run, usable)
    with closing(_closable(run)) as rows:
        why_table = _table(result, at, baseline, usable, unusable, rows, everything, on_row)
    return _with_examples(why_table, result, experiments) if why_table.verdict == DATA else why_table


def _with_examples(explanation: Why, result: Replay, experiments: ExperimentRunner) -> Why:
    """Add the examples that cause the incident: those with NaN or infinity, else those that cause it alone."""
    if result.culprit is not None and result.culprit.examples:
        return replace(explanation, examples=result.culprit.examples)
    if not any(row.factor == "other-batch" and row.gone for row in explanation.table):
        return explanation
    alone = experiments.examples_alone()
    why = (
        f"{explanation.why}; {in_words(alone)} alone {'cause' if len(alone) > 1 else 'causes'} it"
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
        return f"several changes remove the incident ({'; '.join(removing)}), so they do not single out a cause"
    untested = [row.words for row in rows if row.gone is None]
    if not untested:
        return "no single change removes the incident"
    tested = (
        "none of the tested changes removes the incident" if len(untested) < len(rows) else "no change could be tested"
    )
    return f"{tested}; not tested: {', '.join(untested)}"
