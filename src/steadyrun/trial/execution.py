"""Run a trial: choose steps and changes, and train the twins here or with a crew."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from steadyrun.errors import SteadyrunError, UsageError
from steadyrun.program.model_parts import clean
from steadyrun.program.task import Factory, Task
from steadyrun.trial.curve import Curve
from steadyrun.trial.decision import so_far
from steadyrun.trial.factor import OWN_TWIN, Factor, NotVaried, user_factor
from steadyrun.trial.factors import factors_for
from steadyrun.trial.fix_values import optimizer_settings
from steadyrun.trial.kept_twins import KeptTwins
from steadyrun.trial.part_changes import compares
from steadyrun.trial.program_source import Program, Source, source_of
from steadyrun.trial.result import Trial
from steadyrun.trial.rounds import SEEDS, Request, Rounds
from steadyrun.trial.trial import OnTwin, Wanted
from steadyrun.trial.twin import MARKS, Twin
from steadyrun.trial.twin_table import Table
from steadyrun.workers import Crew, Job, open_crew
from steadyrun.workers.job_execution import in_one_line

MOST_STEPS, FEWEST_STEPS = 200, 40  # of a twin, unless the user gives a number
_TWINS = 45  # of most trials
_USED = 0.8  # fraction of the budget for training; the rest is for building and delays
_SHOWN = 12  # config names in a message
_TIMED = 3  # steps timed to choose the number of steps


def run_trial(
    task: Task | Factory | str, program: Program, wanted: Wanted, on: str | Executor | None, on_twin: OnTwin
) -> Trial:
    """Run the whole trial of a program."""
    began = time.monotonic()
    source = source_of(task, program)
    with _named(source.name):
        first = source.twin(1, _steps_at_first(wanted))
        steps = wanted.steps or _affordable(first, wanted, _workers(on))
        if steps != first.steps:
            first = source.twin(1, steps)
        factors, left = _chosen(first, wanted, source)
        names = {factor.name: factor for factor in (OWN_TWIN, *factors)}
        table = Table(first.data.measured_on, names, compares(first), first.moves_freely)
    with ExitStack() as stack:
        crew = None
        if on is not None and on != "here":
            if not source.program.factory:
                raise UsageError("other workers must build the program; give its factory as module:function")
            crew = stack.enter_context(open_crew(on))
        kept = KeptTwins.of(source.program, first)
        train = _Training(source, steps, crew, kept, began + wanted.budget, on_twin, table)
        rounds = Rounds(
            table, factors, train, began + wanted.budget, wanted.seeds or SEEDS, racing=wanted.seeds is None
        )
        interrupted = False
        try:
            rounds.run()
        except KeyboardInterrupt:
            interrupted = True
    return Trial(
        program=source.name,
        config=dict(program.config),
        start="the first weights"
        if program.checkpoint is None
        else f"the checkpoint before step {program.checkpoint[1]}",
        steps=steps,
        table=table,
        not_varied=tuple(left),
        untried=tuple(dict.fromkeys(rounds.untried)),
        seconds=time.monotonic() - began,
        kept=train.kept_count,
        interrupted=interrupted,
        asks_about_noise=wanted.seeds is not None,
        parameters=tuple(clean(name) for name, _ in first.model.named_parameters()),
        settings=optimizer_settings(first),
    )


@contextmanager
def _named(program: str) -> Iterator[None]:
    """Add the program's name to errors."""
    try:
        yield
    except SteadyrunError as problem:
        if program in str(problem):
            raise
        raise UsageError(f"{program}: {problem}") from problem
    except Exception as problem:
        raise UsageError(f"{program}: its training step or its loss raised {in_one_line(problem)}") from problem


# -- how many steps --------------------------------------------------------------------------------


def _steps_at_first(wanted: Wanted) -> int:
    return wanted.steps or MOST_STEPS


def _workers(on: str | Executor | None) -> int:
    """The number of twins that train at once, if known before the crew opens."""
    if not isinstance(on, str) or not on.startswith("local"):
        return 1
    detail = on.partition(":")[2]
    return int(detail) if detail.isdecimal() else os.cpu_count() or 1


def _affordable(twin: Twin, wanted: Wanted, workers: int) -> int:
    """The number of steps that lets the usual number of twins fit the budget."""
    return affordable_steps(twin, _USED * wanted.budget * workers / _TWINS)


def affordable_steps(twin: Twin, seconds: float) -> int:
    """The number of steps that a twin trains and measures in this time, between 40 and 200."""
    total = twin.config.get("total_steps")
    most = min(MOST_STEPS, total) if isinstance(total, int) and total > 0 else MOST_STEPS
    step, look = twin.timed(_TIMED)
    return max(min(FEWEST_STEPS, most), min(most, int((seconds - len(MARKS) * look) / max(step, 1e-6))))


# -- what is tried ---------------------------------------------------------------------------------


def _chosen(twin: Twin, wanted: Wanted, source: Source) -> tuple[list[Factor], list[NotVaried]]:
    mine = [user_factor(name, value) for name, values in wanted.vary for value in values]
    if mine and source.is_live:
        raise UsageError("config values reach a program through its factory; give the function instead of a Task")
    _require_known([name for name, _ in wanted.vary], {**source.program.config, **twin.config})
    if not wanted.only and (mine or wanted.seeds is not None):
        return mine, []
    factors, left = factors_for(twin)
    if not wanted.only:
        return factors, left
    chosen = [factor for factor in factors if _is_named(factor, wanted.only)]
    unknown = next((word for word in wanted.only if not any(_is_named(factor, (word,)) for factor in factors)), None)
    if unknown is not None:
        why = next((f": {each.why}" for each in left if unknown in (each.name, each.group)), "")
        names = ", ".join(dict.fromkeys(factor.group for factor in factors))
        raise UsageError(f"{unknown!r} cannot be varied{why}; this program has: {names}")
    return [*(replace(factor, invasive=False) for factor in chosen), *mine], left


def _require_known(names: list[str], config: Mapping[str, Any]) -> None:
    """Raise for a value to vary that the config does not have; a program without a config may read any."""
    known = list(_paths(config))
    for name in names:
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"it has: {', '.join(known[:_SHOWN])}."
            raise UsageError(
                f"the config has no {name!r} to vary; {meant} If the program has a default for it, also give the "
                f"present value: --config '{{\"{name}\": …}}'"
            )


def _paths(config: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in config.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{name}.")


def _is_named(factor: Factor, words: Iterable[str]) -> bool:
    return any(word in (factor.name, factor.group, factor.name.partition(":")[0]) for word in words)


# -- training --------------------------------------------------------------------------------------


class _Training:
    """Trains the twins of a round, here or with a crew, and reuses kept twins."""

    def __init__(
        self,
        source: Source,
        steps: int,
        crew: Crew | None,
        kept: KeptTwins,
        deadline: float,
        on_twin: OnTwin,
        table: Table,
    ) -> None:
        self._source, self._steps, self._crew, self._kept = source, steps, crew, kept
        self._deadline, self._on_twin, self._table = deadline, on_twin, table
        self._done = self._planned = self.kept_count = 0

    def __call__(self, requests: Iterable[Request]) -> Iterator[Curve]:
        wanted = sorted(requests, key=lambda request: request.seed)  # builds the program of a seed once
        self._planned += len(wanted)
        todo = []
        for request in wanted:
            curve = self._kept.get(request.factor, request.seed)
            if curve is None:
                todo.append(request)
                continue
            self.kept_count += 1
            yield self._ended(curve)
        for curve in self._with_crew(todo) if self._crew is not None else self._here(todo):
            self._kept.add(curve)
            yield self._ended(curve)

    def _ended(self, curve: Curve) -> Curve:
        self._done += 1
        return curve

    def _show(self, request: Request) -> None:
        words = self._table.factor(request.factor).words
        self._on_twin(self._done, self._planned, f"{words}, seed {request.seed}", so_far(self._table))

    def _here(self, requests: list[Request]) -> Iterator[Curve]:
        for index, request in enumerate(requests):
            if time.monotonic() > self._deadline and (index or self._done):
                self._planned -= len(requests) - index
                return
            self._show(request)
            factor = self._table.factor(request.factor)
            twin = self._source.twin(request.seed, self._steps, factor.changes)
            yield twin.train(self._source_factor(factor, twin), request.seed, request.own)

    def _source_factor(self, factor: Factor, twin: Twin) -> Factor:
        """The change for this build of the program, found in its own objects."""
        return factor if self._source.is_live or factor.changes else twin.factor(factor.name)

    def _with_crew(self, requests: list[Request]) -> Iterator[Curve]:
        assert self._crew is not None
        by_key = {f"{request.factor} (seed {request.seed})": request for request in requests}
        for key, request in by_key.items():
            self._crew.start(Job(key, "steadyrun.trial.program_source:trained", self._arguments(request)))
        waiting = list(by_key)
        if requests:
            self._show(requests[0])
        for done in self._crew.finished():
            request = by_key[done.job.key]
            waiting.remove(done.job.key)
            curve = Curve.of(done.result) if not done.failure else self._failed(request, done.failure)
            yield curve
            if waiting:
                self._show(by_key[waiting[0]])
            if time.monotonic() > self._deadline:
                dropped = [key for key in waiting if self._crew.drop(key)]
                waiting = [key for key in waiting if key not in dropped]
                self._planned -= len(dropped)

    def _arguments(self, request: Request) -> dict[str, Any]:
        program = self._source.program.changed(self._table.factor(request.factor).changes)
        own = None if request.own is None else request.own.as_json()
        arguments = {"program": program.as_json(), "factor": request.factor, "seed": request.seed}
        return arguments | {"steps": self._steps, "own": own}

    def _failed(self, request: Request, failure: str) -> Curve:
        return Curve(request.factor, request.seed, self._steps, [], {}, raised=failure)
