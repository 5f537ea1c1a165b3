"""What the callback reads off Lightning's Trainer and its outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadyrun.probes.batches import arrays_of


def undivided(loss: Any, accumulated: int) -> Any:
    """A micro-batch's own loss: Lightning hands on what it differentiates, divided by `accumulate_grad_batches`."""
    return loss * accumulated if isinstance(loss, Tensor) and accumulated > 1 else loss


def unscaled(loss: Tensor, precision: Any) -> Tensor:
    """A loss on its way into backward, without the scale of a GradScaler; nothing waits for the device."""
    scale = getattr(getattr(precision, "scaler", None), "_scale", None)
    found = loss.detach()
    return found / scale.to(found.device) if isinstance(scale, Tensor) else found.clone()


def mean(losses: list[Any]) -> Any:
    """The mean over the micro-batches of a step, where they are; None where none has a loss."""
    if len(losses) < 2:
        return losses[0] if losses else None
    return torch.stack([torch.as_tensor(loss).detach().float().reshape(()) for loss in losses]).mean()


def scheduler_of(trainer: Any) -> Any | None:
    """The scheduler, where there is one alone, of the first optimizer: its curve can be held against the rates."""
    found = [each.scheduler for each in trainer.lr_scheduler_configs]
    first = next(iter(trainer.optimizers), None)
    return found[0] if len(found) == 1 and getattr(found[0], "optimizer", None) is first else None


def checkpoints_of(trainer: Any) -> dict[int, str]:
    """Where each checkpoint callback has saved last."""
    callbacks = enumerate(trainer.checkpoint_callbacks)
    return {place: path for place, each in callbacks if (path := getattr(each, "_last_checkpoint_saved", ""))}


class KeptBatches:
    """Batches that wait for their step, or for the end of a validation; too many would be held in memory for long."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: list[Any] = []
        self._bytes = 0
        self._full = False

    def add(self, batch: Any, *, whole: bool = True) -> None:
        """Keep one more; where there is no room, all are let go (`whole`) or the rest is left out."""
        if self._full or batch is None:
            return
        self._bytes += sum(int(array.nbytes) for array in arrays_of(batch)) if whole or self._bytes < self._most else 0
        if self._bytes > self._most and (self._held or not whole):
            self._full = True
            self._held = [] if whole else self._held
            return
        self._held.append(batch)

    def take_list(self) -> list[Any]:
        held, self._held, self._bytes, self._full = self._held, [], 0, False
        return held

    def take(self) -> Any:
        """One batch as it is, several as a list of micro-batches, None where there is none."""
        held = self.take_list()
        if len(held) < 2:
            return held[0] if held else None
        return [batch if isinstance(batch, list | tuple | dict) else (batch,) for batch in held]
