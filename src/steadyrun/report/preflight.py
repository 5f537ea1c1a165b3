"""`steadyrun.preflight`: try a training program on its own batches before it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.errors import UsageError
from steadyrun.program.task import Task
from steadyrun.questions.aliases import ALIASES, codes_of, within
from steadyrun.renamed_arguments import renamed
from steadyrun.report.config_answers import noted_before
from steadyrun.report.limits import changes, hint
from steadyrun.report.report import Report
from steadyrun.signals.missing import MissingSignal

if TYPE_CHECKING:
    from steadyrun.preflight.rank_group import RankGroup
    from steadyrun.questions.form import Question

NEEDED = ("C1.1",)  # without the loss of a first batch nothing was tried
NEEDED_ON_RANKS = ("R1.1", "R5.1")  # without a step on all ranks nothing was compared


@renamed(val_batches="val_loader", progress="on_probe")
def preflight(
    model: Any,
    optimizer: Any = None,
    loss_fn: Callable[..., Any] | None = None,
    loader: Iterable[Any] | None = None,
    *,
    scheduler: Any | None = None,
    scaler: Any | None = None,
    train_step: Callable[[Task, Any], Any] | None = None,
    batches: Iterable[Any] | None = None,
    val_loader: Iterable[Any] | None = None,
    tokenizer: Any | None = None,
    config: Mapping[str, Any] | None = None,
    resumed: str | os.PathLike[str] | None = None,
    deep: bool = False,
    only: Iterable[str] = (),
    on_probe: Callable[[int, int, str], None] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Test a model, its optimizer and its loss on its own batches before training.

    Everything is restored bit for bit afterwards. `model` may be a `steadyrun.Task`, which holds all the rest.
    `loss_fn(model, batch)` returns the loss. `loader` and `val_loader` are data loaders or lists of batches; `batches`
    are tried instead of the first batches of `loader`. `train_step(task, batch)` is one whole optimizer step as the
    program writes it: clip order, zero_grad and resume are tested only with it. `tokenizer` shows what tokens are.
    `config` declares intent, as in `steadyrun.record`. `resumed` is the run directory that is being continued.

    `deep` adds the probes that train for a while; `only` names the probes to run, such as `["P1", "A3.1"]`.
    `on_probe(done, total, name)` is called before each probe. `thresholds` changes limits, as in `steadyrun.check`.
    """
    given = [] if optimizer is None else optimizer
    task = model if isinstance(model, Task) else Task(model, given, loss_fn or _no_loss, scheduler, scaler, train_step)
    more: dict[str, Any] = {"tokenizer": tokenizer, "config": config, "val_loader": val_loader}
    more["loader"] = loader if loader is not None else batches
    task = replace(task, **{name: argument for name, argument in more.items() if argument is not None})
    return run(task, batches=batches, resumed=resumed, deep=deep, only=only, on_probe=on_probe, thresholds=thresholds)


def run(
    task: Task,
    *,
    name: str = "preflight",
    again: str = "",
    batches: Iterable[Any] | None = None,
    resumed: str | os.PathLike[str] | None = None,
    deep: bool = False,
    only: Iterable[str] = (),
    on_probe: Callable[[int, int, str], None] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Preflight of a task. `name` and `again` are for the report: what was tried, and what to type to try it again."""
    from steadyrun.preflight.runner import tried
    from steadyrun.store.reader import open_run

    chosen = _chosen(deep, list(only))
    walked = tried(
        task,
        chosen,
        changes(thresholds or {}, Path.cwd(), tried=True),
        batches=task.loader if batches is None else batches,
        deep=deep,
        resumed=None if resumed is None else open_run(resumed),
        progress=on_probe or (lambda _done, _all, _name: None),
    )
    walked = replace(walked, path=(*walked.path, *noted_before(task.config)))
    return Report(name, walked, "before training", needed=NEEDED if not only else (), command="preflight", again=again)


def run_on_ranks(
    task: Task,
    group: RankGroup,
    *,
    name: str = "preflight",
    again: str = "",
    only: Iterable[str] = (),
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Preflight of a task on several ranks; every rank calls it and gets the same report."""
    from steadyrun.preflight import ON_RANKS
    from steadyrun.preflight.rank_runner import tried_on_ranks

    wanted = known_probes(list(only), ON_RANKS) if only else set(ON_RANKS)
    chosen = {code: probe for code, probe in ON_RANKS.items() if code in wanted}
    walked = tried_on_ranks(task, group, chosen, changes(thresholds or {}, Path.cwd(), tried=True))
    walked = replace(walked, path=(*walked.path, *noted_before(task.config)))
    needed = NEEDED_ON_RANKS if not only else ()
    state = f"before training, on {group.world} ranks"
    return Report(name, walked, state, needed=needed, command="preflight", again=again)


def _no_loss(*_: Any) -> Any:
    how = "give preflight loss_fn, called as loss_fn(model, batch)"
    raise MissingSignal("loss_fn", "there is no loss_fn", how)


def _chosen(deep: bool, only: list[str]) -> dict[str, Question]:
    from steadyrun.preflight import DEEP, PROBES

    if not only:
        return {code: probe for code, probe in PROBES.items() if deep or code not in DEEP}
    wanted = known_probes(only)
    return {code: probe for code, probe in PROBES.items() if code in wanted}


def known_probes(only: list[str], among: Mapping[str, Question] | None = None) -> set[str]:
    """The codes of the probes that these codes or sections name, former ones included; an unknown one is an error."""
    from steadyrun.preflight import PROBES

    probes = PROBES if among is None else among
    wanted: set[str] = set()
    for name in (code.upper() for code in only):
        named = {code for former in (*probes, *ALIASES) if within(former, name) for code in codes_of(former)}
        if not named & set(probes):
            raise UsageError(f"there is no probe {name!r}; {hint(name, probes)}")
        wanted |= named
    return wanted
