"""The source of twins: a factory that builds the program per seed, here or in a worker, or a live task."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.program.snapshot import Objects, restore
from steadyrun.program.task import Factory, Task, build_task, load_factory
from steadyrun.trial.curve import Curve
from steadyrun.trial.twin import Twin, seed_all


@dataclass(frozen=True)
class Program:
    """All that a worker needs to build the program: the factory's name, the config, and the checkpoint."""

    factory: str  # "" for a live task or a function without a name
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: tuple[str, int] | None = None  # a run and the step of its incident

    @staticmethod
    def seeded(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """The config of a twin, with its own seed advanced, since the program may use it."""
        own = config.get("seed")
        if "seed" not in config:
            return dict(config)
        return {**config, "seed": own + seed - 1 if isinstance(own, int) else seed}

    def built(self, seed: int) -> Task:
        """Build the program with a seed, at its checkpoint if it has one."""
        seed_all(seed)
        task = build_task(load_factory(self.factory, "trial's argument"), self.seeded(self.config, seed), self.factory)
        if self.config and task.config is None:
            task.config = dict(self.config)
        self.restore(task)
        return task

    def restore(self, task: Task) -> None:
        """Restore the checkpoint into a built program."""
        if self.checkpoint is None:
            return
        from steadyrun.replay.incident import choose

        incident = choose(Path(self.checkpoint[0]), self.checkpoint[1])
        if incident.missing:
            raise UsageError(f"{incident.folder} has no usable checkpoint: {incident.missing}")
        objects = Objects(task.model, task.optimizers, task.scheduler, task.scaler, task.loader)
        restore(objects, *incident.state)

    def changed(self, changes: Mapping[str, Any]) -> Program:
        """The same program with other config values; model.dropout is `dropout` inside `model`."""
        config = copy.deepcopy(dict(self.config))
        for path, value in changes.items():
            *folders, name = path.split(".")
            inner = config
            for folder in folders:
                inner = inner.setdefault(folder, {})
                if not isinstance(inner, dict):
                    raise UsageError(f"{path}: {folder} is a single value in the config and has no {name}")
            inner[name] = value
        return replace(self, config=config)

    def as_json(self) -> dict[str, Any]:
        return {"factory": self.factory, "config": dict(self.config), "checkpoint": self.checkpoint}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Program:
        place = content["checkpoint"]
        return cls(content["factory"], content["config"], None if place is None else (str(place[0]), int(place[1])))


class Source:
    """Provides the program for every seed: built by a factory, or the same live task."""

    def __init__(
        self, program: Program, name: str, build: Callable[[Mapping[str, Any], int], Task], live: bool
    ) -> None:
        self.program, self.name, self._build, self.is_live = program, name, build, live
        self._last: tuple[Any, Twin] | None = None

    def twin(self, seed: int, steps: int, changes: Mapping[str, Any] | None = None) -> Twin:
        """The twin of a seed; only the last one stays in memory."""
        key = (1 if self.is_live else seed, steps, repr(changes))
        if self._last is None or self._last[0] != key:
            self._last = None
            program = self.program.changed(changes or {})
            task = self._build(program.config, seed)
            program.restore(task)
            self._last = (key, Twin(task, steps))
        return self._last[1]


def source_of(task: Task | Factory | str, program: Program) -> Source:
    """The source of twins for a task, a function or a named factory."""
    if isinstance(task, Task):
        given = task
        own = Program("", {**(given.config or {}), **program.config}, program.checkpoint)
        return Source(own, type(given.model).__name__, lambda _config, _seed: given, live=True)
    if isinstance(task, str):
        named = Program(task, program.config, program.checkpoint)
        return Source(named, task, lambda config, seed: Program(task, config).built(seed), live=False)
    factory = task
    name = getattr(factory, "__name__", "the factory")

    def build(config: Mapping[str, Any], seed: int) -> Task:
        seed_all(seed)
        return build_task(factory, Program.seeded(config, seed), name)

    return Source(program, name, build, live=False)


# -- in a worker -----------------------------------------------------------------------------------


def trained(
    program: dict[str, Any], seed: int, factor: str, steps: int, own: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Train one twin in a worker and return its curve. Twins of one seed share the built program."""
    twin = _twin(json.dumps(program, sort_keys=True), seed, steps)
    curve = twin.train(twin.factor(factor), seed, None if own is None else Curve.of(own))
    return curve.as_json()


@lru_cache(maxsize=1)
def _twin(program: str, seed: int, steps: int) -> Twin:
    return Twin(Program.of(json.loads(program)).built(seed), steps)
