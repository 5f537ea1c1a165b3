"""A whole replay: run the window again, then find the operation that broke."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from steadyrun.errors import UsageError
from steadyrun.program import snapshot as training
from steadyrun.program.task import Factory, build_task, load_factory
from steadyrun.replay.bad_examples import in_words, not_finite
from steadyrun.replay.hunt import Culprit, fp32, hunt
from steadyrun.replay.hunt.float32_rerun import as_float32
from steadyrun.replay.incident import Incident, choose
from steadyrun.replay.rendering import as_json
from steadyrun.replay.repetitions import OnStep
from steadyrun.replay.result import Precision, Replay
from steadyrun.replay.session import Record, Session
from steadyrun.replay.window import execute_window
from steadyrun.store.jsonio import dumps, replace_file
from steadyrun.text import shown

_TUTORS = ("steadyrun.tutor.replaying:task", "steadyrun.tutor.replaying:rank_task")  # parts of steadyrun itself


def execute(
    run: str | os.PathLike[str],
    factory: Factory | str | None,
    *,
    step: int | None,
    threads: int | None,
    until: int | None,
    on_step: OnStep | None,
    hunting: bool,
    times: int,
    rank: int | None,
    record: Record,
) -> Replay:
    """Run a replay as `steadyrun.replay` does."""
    incident = choose(Path(run).expanduser(), step, rank)
    session, build = session_of(incident, factory, record, threads)
    result = investigate(session, until=until, on_step=on_step, hunting=hunting, times=times)
    result.factory = build
    result.factory_name = factory if isinstance(factory, str) else f"{build.__module__}:{build.__name__}"
    return result


TIMES = 3  # how often a window runs: always, sometimes or never


def checked_times(times: object) -> int:
    """A clear error for a number of repetitions that is not one."""
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise UsageError(f"repeat must be a whole number of at least 1, not {times!r}")
    return times


def session_of(
    incident: Incident, factory: Factory | str | None, record: Record, threads: int | None = None
) -> tuple[Session, Factory]:
    """The program of an incident's run at its checkpoint, and the factory that built it."""
    build = factory_for(incident, factory)
    task = build_task(build, incident.view.manifest.get("config") or {}, getattr(build, "__name__", "the factory"))
    return Session(incident, task, record, threads), build


def factory_for(incident: Incident, factory: Factory | str | None) -> Factory:
    """The factory of an incident's run. Code is imported only if the user names it."""
    manifest = incident.view.manifest
    suggested = manifest.get("factory")
    if factory is None and suggested in _TUTORS:
        factory = suggested
    if factory is None:
        hint = f". The run suggests {suggested!r}: use it if you trust the run" if isinstance(suggested, str) else ""
        raise UsageError(
            "name the function that builds the program and returns a steadyrun.Task: --factory module:function" + hint
        )
    return load_factory(factory) if isinstance(factory, str) else factory


def investigate(
    session: Session,
    *,
    until: int | None = None,
    on_step: OnStep | None = None,
    hunting: bool = True,
    times: int = 1,
) -> Replay:
    """Replay an incident; if something became non-finite, find the first operation responsible.

    The result is written to the incident's folder as replay.json, beside the measurements of every step.
    """
    result = execute_window(session, until=until, on_step=on_step, times=times)
    if hunting and result.before_bad is not None and result.happened and result.began_on is None:
        _hunt(session, result)
    replace_file(session.incident.folder / "replay.json", dumps(as_json(result), indent=1))
    return result


def _hunt(session: Session, result: Replay) -> None:
    step, before = result.first_bad, result.before_bad
    assert step is not None
    assert before is not None

    def restore() -> None:
        training.restore(session.objects, before.tree, before.tensors)

    restore()
    batch = session.incident.batch(step, session.device)
    with suppress(*([Exception] if result.raised else [])):  # the step raises again, as in the run
        culprit = hunt(session.task, lambda: session.execute(step, batch), batch)
        result.culprit = culprit and _with_examples(culprit, batch, session.incident.recorded("backwards").get(step, 1))
    restore()
    if not result.raised:
        result.precision = _in_float32(session, step)
        restore()


def _with_examples(culprit: Culprit, batch: Any, parts: float) -> Culprit:
    """Add the examples that contain NaN or infinity, if the batch came in with one."""
    examples = not_finite(batch, culprit.module, int(parts)) if culprit.stage == "data" else ()
    if not examples:
        return culprit
    return replace(culprit, examples=examples, message=f"{culprit.message} Affected: {in_words(examples)}.")


def _in_float32(session: Session, step: int) -> Precision:
    """The test that decides: the same step and data in float32."""
    incident, task = session.incident, session.task
    kinds = {parameter.dtype for parameter in task.model.parameters() if parameter.is_floating_point()}
    autocast = incident.checkpoint.get("autocast")
    kind = str(autocast["dtype"]) if autocast else ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
    if not autocast and kinds <= {torch.float32, torch.float64}:
        return Precision(kind, "structural", f"the step already runs in {kind}, so precision is not the cause")
    try:
        with fp32(task):
            loss = session.execute(step, as_float32(incident.batch(step, session.device)))
            fine = math.isfinite(float(loss)) and training.all_finite(list(task.model.parameters()))
    except Exception as problem:
        return Precision(kind, "not-told", f"the same step in float32 raised {type(problem).__name__}: {problem}")
    if fine:
        return Precision(
            kind, "overflow", f"the same step in float32 is finite (loss {shown(float(loss))}), so {kind} overflowed"
        )
    return Precision(
        kind,
        "structural",
        f"the same step in float32 also fails (loss {shown(float(loss))}), so {kind} is not the cause",
    )
