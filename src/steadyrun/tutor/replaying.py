"""The grammar tutor as a task for `steadyrun replay`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from torch import nn

from steadyrun import Task
from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch, on_device
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.faults.ranks import load_rank_recipe
from steadyrun.tutor.recipe import Recipe
from steadyrun.tutor.train import start, train_step


def task(config: dict[str, Any]) -> Task:
    """The program of a tutor run, from its declared config."""
    return task_of(recipe_of(config))


def recipe_of(config: dict[str, Any]) -> Recipe:
    settings = _settings(config)
    # Some faults change the config, and the declared config already contains that change.
    recipe = load_recipe(config["program"], remedied=bool(config.get("remedied")), **settings)
    return replace(recipe, config=TutorConfig(**settings))


def rank_task(config: dict[str, Any]) -> Task:
    """The program of one rank without DistributedDataParallel: replay averages the gradients of all ranks."""
    settings = _settings(config)
    recipe = replace(load_rank_recipe(config["program"], **settings), config=TutorConfig(**settings))
    state = start(recipe)
    return Task(state.model, state.optimizer, recipe.loss, state.scheduler)


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(TutorConfig)}
    return {name: value for name, value in config.items() if name in names} | {"steps": config["total_steps"]}


def task_of(recipe: Recipe) -> Task:
    """A task from a recipe's objects and its step."""
    state = start(recipe)

    def step(task: Task, batch: Batch | list[Batch]) -> Any:
        state.step = task.step
        done = train_step(recipe, state, batch if isinstance(batch, list) else [batch])
        task.optimizer = state.optimizer
        return done.loss

    scaler = state.scaler if state.scaler.is_enabled() else None
    loader, validation = Batches(recipe, state.model), Validation(recipe, state.model)
    return Task(
        *(state.model, state.optimizer, recipe.loss, state.scheduler, scaler, step, loader), val_loader=validation
    )


class Batches:
    """The batches of a run in their order."""

    def __init__(self, recipe: Recipe, model: nn.Module) -> None:
        self._recipe, self._model = recipe, model

    def __iter__(self) -> Iterator[Batch | list[Batch]]:
        config = self._recipe.config
        data = self._recipe.load_data(config)
        order = self._recipe.batch_order(data, config)
        for _ in range(config.steps):
            rows = [on_device(data.train_batch(next(order)), config) for _ in range(config.accumulation)]
            batches = [self._recipe.prepare(self._model, batch) for batch in rows]
            yield batches[0] if len(batches) == 1 else batches


class Validation:
    """The validation sentences as one batch."""

    def __init__(self, recipe: Recipe, model: nn.Module) -> None:
        self._recipe, self._model = recipe, model

    def __iter__(self) -> Iterator[Batch]:
        batch = self._recipe.load_data(self._recipe.config).val_batch()
        yield self._recipe.prepare(self._model, on_device(batch, self._recipe.config))
