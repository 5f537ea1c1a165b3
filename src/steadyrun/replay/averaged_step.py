"""A step of several ranks in one process: with the parts of all ranks, their gradients are averaged as in the run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.program.task import Task
from steadyrun.replay.incident import Incident
from steadyrun.replay.passes import Passes
from steadyrun.replay.step_execution import Stepper

_SHOWN = 4


def ranks_of(incident: Incident, task: Task) -> tuple[list[Incident], str]:
    """The parts of the other ranks whose gradients a step averages; or why they cannot be, in words.

    Both are empty if the run has one process. The incident begins with the latest checkpoint of its parts.
    """
    if incident.world <= 1:
        return [], ""
    others = incident.other_parts
    if not incident.averaged:
        return [], "DistributedDataParallel does not wrap the model, so how the ranks combine gradients is unknown"
    if missing := sorted(set(range(incident.world)) - {incident.rank, *(other.rank for other in others)}):
        return [], f"{rank_words(missing)} kept nothing of it"
    if task.train_step is not None:
        return [], "the task has a train_step, which runs the batch of one rank"
    starts = [part for part in (incident, *others) if part.checkpoint_step is not None]
    latest = max(starts, key=lambda part: part.checkpoint_step or 0, default=None)
    if latest is None:
        return [], "no rank kept a checkpoint from before it"
    needed = set(range(latest.checkpoint_step or 0, incident.step + (not incident.raised)))
    short = [part.rank for part in (incident, *others) if not needed <= set(part.steps)]
    if short:
        return [], f"{rank_words(short)} did not keep every batch since the checkpoint"
    incident.start_from(latest)
    return others, ""


def rank_words(ranks: list[int]) -> str:
    """`rank 3`, `ranks 1, 3`, or the first of many with their count."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"ranks {', '.join(map(str, ranks[:_SHOWN]))}{more}"


class AveragedStep:
    """One step of all ranks: each rank's forward and backward pass, the mean of the gradients, one update."""

    def __init__(self, stepper: Stepper, model: nn.Module, device: torch.device, others: list[Incident]) -> None:
        self._stepper, self._model = stepper, model
        self.losses: dict[int, dict[int, float]] = {part.rank: {} for part in others}
        self._others = [(Passes(part, model, device), Stepper(stepper.task, part)) for part in others]

    def run(self, step: int, batch: Any, own: Passes) -> Any:
        """The loss of the own rank. Its pass comes first: a hunt looks for what it does."""
        before = self._buffers()
        loss = own.run(step, batch, self._stepper.gradients)
        passed = {own.incident.rank: (self._gradients(), self._buffers())}
        for passes, stepper in self._others:
            self._put_buffers(before)  # DistributedDataParallel sends those of rank 0 before each forward pass
            self.losses[passes.incident.rank][step] = float(passes.run(step, None, stepper.gradients))
            passed[passes.incident.rank] = (self._gradients(), self._buffers())
        self._put_buffers(passed[min(passed)][1])
        self._put_mean([passed[rank][0] for rank in sorted(passed)])
        self._stepper.update(step)
        return loss

    def _gradients(self) -> list[Tensor | None]:
        taken = [parameter.grad for parameter in self._model.parameters()]
        for parameter in self._model.parameters():
            parameter.grad = None
        return taken

    def _put_mean(self, ranks: list[list[Tensor | None]]) -> None:
        """Divide, then add: so does DistributedDataParallel."""
        for parameter, *gradients in zip(self._model.parameters(), *ranks, strict=True):
            known = [gradient / len(ranks) for gradient in gradients if gradient is not None]
            parameter.grad = sum(known[1:], known[0]) if known else None

    def _buffers(self) -> list[Tensor]:
        return [buffer.detach().clone() for buffer in self._model.buffers()]

    def _put_buffers(self, kept: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, value in zip(self._model.buffers(), kept, strict=True):
                if not torch.equal(buffer, value):  # an expanded constant cannot be written, and need not be
                    buffer.copy_(value)
