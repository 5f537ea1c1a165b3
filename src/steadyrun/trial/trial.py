"""`steadyrun.trial`: train short twins of a program, each with one change, and decide what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.program.task import Factory, Task
from steadyrun.trial.result import Trial

BUDGET = 300.0  # seconds

OnTwin = Callable[[int, int, str, str], None]
"""Called with the numbers of finished and planned twins, the current twin, and the likely cause so far."""


@dataclass(frozen=True)
class Wanted:
    """The user's options of a trial."""

    only: tuple[str, ...] = ()  # names or groups of factors
    vary: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    seeds: int | None = None
    steps: int | None = None
    budget: float = BUDGET


def trial(
    task: Task | Factory | str,
    *,
    config: Mapping[str, Any] | None = None,
    run: str | os.PathLike[str] | None = None,
    checkpoint: int | None = None,
    only: Iterable[str] = (),
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    budget: float = BUDGET,
    on: str | Executor | None = None,
    on_twin: OnTwin | None = None,
    command: str = "",
) -> Trial:
    """Train short twins of a program from the same start, each with one change, and decide what is wrong with it.

    `task` is a `steadyrun.Task`, which is restored bit for bit, or a function that builds one (it gets `config` if it
    takes an argument), or its name as "module:function". `run` is a run directory: its config is used, `config`
    overrides single values, and the result is kept there. `checkpoint` starts from the checkpoint of the run's incident
    at that step instead of from new weights.

    `only` names the changes to try, by name or by group. `vary` holds config values to try:
    `{"lr": [1e-4, 1e-3], "model.dropout": [0, 0.1]}`. `seeds` is the number of seeds for each change; without `only`
    and `vary` the trial measures only the noise between seeds. `steps` is the length of a twin, `budget` the time in
    seconds. `on` chooses where twins train: "local", "ray", "slurm" or an executor; elsewhere, `task` must be a name.
    `on_twin` is called after each twin. `command` is kept with the result: what to type to repeat it. Ctrl-C ends the
    trial and keeps the finished twins.
    """
    wanted = Wanted(tuple(only), _values(vary), seeds, steps, float(budget))
    if wanted.budget <= 0:
        raise UsageError("the budget must be above 0 seconds")
    folder = None if run is None else Path(run).expanduser()
    settings = _config_of(folder) | dict(config or {})
    place = None if checkpoint is None else _place(folder, checkpoint)
    from steadyrun.trial.execution import run_trial
    from steadyrun.trial.program_source import Program

    result = run_trial(task, Program("", settings, place), wanted, on, on_twin or (lambda *_: None))
    result = replace(result, command=command)
    if folder is not None:
        _require_same_model(folder, result)
        result.save(folder)
    return result


def _require_same_model(folder: Path, result: Trial) -> None:
    """Refuse to save a trial of another model with the run."""
    from steadyrun.store.reader import open_run

    weights = open_run(folder).manifest.get("initial_weights")
    names = (
        {str(each.get("name")) for each in weights if isinstance(each, dict)} if isinstance(weights, list) else set()
    )
    if names and result.parameters and not names & set(result.parameters):
        raise UsageError(
            f"{folder} is a run of another model: it shares no parameter with {result.program}; give another run"
        )


def _values(vary: Mapping[str, Sequence[Any]] | None) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple((name, tuple(values)) for name, values in (vary or {}).items())


def _config_of(folder: Path | None) -> dict[str, Any]:
    from steadyrun.store.reader import open_run

    declared = {} if folder is None else open_run(folder).manifest.get("config")
    return dict(declared) if isinstance(declared, dict) else {}


def _place(folder: Path | None, step: int) -> tuple[str, int]:
    if folder is None:
        raise UsageError("a checkpoint belongs to a run's incident; also give the run")
    return str(folder.resolve()), step
