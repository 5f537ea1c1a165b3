"""One whole optimizer step: the task's own, or one assembled from the recording."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from steadyrun.capture.step_boundary import Again, Boundary
from steadyrun.errors import UsageError
from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.program.model_parts import unwrapped
from steadyrun.program.task import Task
from steadyrun.replay.export_script import Step
from steadyrun.replay.incident import Incident


class Stepper:
    """Runs steps of a task; `incident` provides what the task does not specify."""

    def __init__(self, task: Task, incident: Incident) -> None:
        self.task = task
        self._incident = incident
        self._autocast: dict[str, Any] = incident.checkpoint.get("autocast") or {}
        self._wrap: bool | None = None if self._autocast else False
        if task.train_step is None:
            self._refuse_what_cannot_be_guessed()

    def run(self, step: int, batch: Any) -> Any:
        """Run one step and return its loss, or raise `Again` if it must start over."""
        self.task.step = step
        if self.task.train_step is not None:
            return self.task.train_step(self.task, batch)
        loss = self.gradients(step, batch)
        self.update(step)
        return loss

    def gradients(self, step: int, batch: Any) -> Any:
        """Forward and backward passes of one step; the loss."""
        self.task.step = step
        self._set_rates(step)
        parts = self._micro_batches(step, batch)
        losses = [self._backward(part, len(parts), step) for part in parts]
        return torch.stack([loss.detach() for loss in losses]).mean() if len(losses) > 1 else losses[0].detach()

    def update(self, step: int) -> None:
        """Clip, step, schedule and clear the gradients, as far as the run did at this step."""
        skipped = self.task.scaler is not None and self._recorded(
            "skipped", step, 0.0
        )  # by the scaler: the scale changes
        if self._recorded("optimizer_steps", step, 1.0) or skipped:
            self._update(step)

    def spelled_out(self, step: int, batch: Any) -> Step | None:
        """How `run` runs a step, for a script; None if the task has its own train_step."""
        if self.task.train_step is not None:
            return None
        parts = self._micro_batches(step, batch)
        return Step(
            autocast=self._autocast if self._wrap else None,
            clip=self._incident.recorded("clip_threshold").get(step),
            clip_first=bool(self._incident.events("clip-before-unscale")),
            micro=len(parts) > 1,
            divided=self._divided(step, len(parts)),
            scaled=self.task.scaler is not None,
        )

    def _refuse_what_cannot_be_guessed(self) -> None:
        if len(self.task.optimizers) > 1:
            raise UsageError(
                "a task with several optimizers needs a train_step: the order in which they step is not recorded"
            )
        if self.task.scaler is None and self._incident.recorded("loss_scale"):
            raise UsageError("the run used a loss scaler: give it to the task, as in steadyrun.Task(…, scaler=scaler)")

    def _recorded(self, name: str, step: int, default: float) -> float:
        return self._incident.recorded(name).get(step, default)

    def _set_rates(self, step: int) -> None:
        """Set the learning rates that the run used, whether a scheduler or the program set them."""
        for index, group in enumerate(self.task.optimizers[0].param_groups):
            rate = self._incident.recorded(f"lr/{index}").get(step)
            if rate is None:
                continue
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _micro_batches(self, step: int, batch: Any) -> list[Any]:
        count = int(self._recorded("backwards", step, 1.0))
        if is_list_of_batches(batch) and len(batch) == count:
            return list(batch)
        if count > 1:
            raise UsageError(
                f"step {step} had {count} backward passes but only one recorded batch: give run.step the list of "
                "micro-batches, or give the task a train_step"
            )
        return [batch]

    def _backward(self, batch: Any, parts: int, step: int) -> Any:
        task = self.task
        loss = self._loss(batch)
        divided = loss / parts if parts > 1 and self._divided(step, parts) else loss
        (divided if task.scaler is None else task.scaler.scale(divided)).backward()
        return loss

    def _divided(self, step: int, parts: int) -> bool:
        """Whether the losses of the micro-batches were divided by their number, according to the recorded loss."""
        root, loss = self._recorded("backward_loss", step, 0.0), self._recorded("loss", step, 0.0)
        return not (loss and abs(root / loss - parts) < 0.01 * parts)

    def _loss(self, batch: Any) -> Any:
        if self._wrap is not None:
            with self._autocasting(self._wrap):
                return self.task.loss_fn(self.task.model, batch)
        return self._learn_about_autocast(batch)

    def _learn_about_autocast(self, batch: Any) -> Any:
        """Find out whether the loss function or the loop enters the autocast that the run used."""
        model, device = unwrapped(self.task.model), self._autocast["device"]

        def look(_args: Any) -> None:
            self._wrap = not torch.is_autocast_enabled(device)
            if self._wrap:
                raise Again

        boundary = Boundary(model, look)
        boundary.arm()
        try:
            loss = self.task.loss_fn(self.task.model, batch)
        finally:
            boundary.disarm()
        self._wrap = bool(self._wrap)
        return loss

    def _autocasting(self, wanted: bool) -> AbstractContextManager[Any]:
        if not wanted:
            return nullcontext()
        return torch.autocast(self._autocast["device"], dtype=getattr(torch, self._autocast["dtype"]))

    def _update(self, step: int) -> None:
        task, optimizer = self.task, self.task.optimizers[0]
        threshold = self._incident.recorded("clip_threshold").get(step)
        before_unscale = bool(self._incident.events("clip-before-unscale"))
        if task.scaler is not None and not before_unscale:
            task.scaler.unscale_(optimizer)
        if threshold is not None:
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), threshold)
        if task.scaler is None:
            optimizer.step()
        else:
            task.scaler.step(optimizer)
            task.scaler.update()
        if task.scheduler is not None and self._schedules(step) and not _waits_for_a_metric(task.scheduler):
            task.scheduler.step()
        optimizer.zero_grad()

    def _schedules(self, step: int) -> bool:
        """Whether the scheduler was stepped; the rates are set anyway, but some schedulers change more than that."""
        counts = self._incident.recorded("scheduler_steps")
        return step not in counts or counts[step] > counts.get(step - 1, counts[step] - 1)


def _waits_for_a_metric(scheduler: Any) -> bool:
    """Whether `step` needs an unrecorded argument, as ReduceLROnPlateau does; the rates are set anyway."""
    try:
        parameters = inspect.signature(scheduler.step).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        for parameter in parameters
    )
