"""Rolling checkpoints: copied between two steps, written by a thread of their own, the last two kept."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steadyrun.incidents import files
from steadyrun.incidents.packing import Packed, arrived
from steadyrun.incidents.randomness import RandomState, to_tensors
from steadyrun.incidents.state import is_finite

FOLDER = "rolling"
EARLIER = "before-attempt-"  # followed by the number of the attempt that found it
KEPT = 2
_ROOM = 3  # times its size must be free on the disk: the one being written, and some air


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: the state before `step`. After a rollback it may be that before an earlier one, `root`."""

    step: int
    base: Path
    finite: bool
    origin: int | None = None

    @property
    def root(self) -> int:
        return self.step if self.origin is None else self.origin

    def files(self) -> list[Path]:
        return [self.base.with_name(f"{self.base.name}{suffix}") for suffix in (".safetensors", ".json")]


class Rolling:
    """The checkpoints of one attempt. Everything here runs in the writing thread, or while that has nothing to do."""

    def __init__(self, folder: Path, attempt: int = 1) -> None:
        self.folder = folder
        self._attempt = attempt
        self.kept: list[Checkpoint] = []
        self.earlier: Checkpoint | None = None  # of the attempts before this one
        self._seam = 0  # the step after the last rollback
        self._origin: int | None = None

    def went_back(self, seam: int, checkpoint: Checkpoint) -> None:
        """Training goes on at step `seam` with the state of a checkpoint: batches before it lead elsewhere."""
        self._seam, self._origin = seam, checkpoint.root

    def write(self, step: int, state: Packed, random: RandomState, facts: dict[str, Any]) -> Checkpoint:
        """Write the state before `step`; older ones go when it is complete."""
        arrived(state)
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < _ROOM * state.nbytes:
            raise OSError(f"{free / 2**20:.0f} MiB are free, a checkpoint has {state.nbytes / 2**20:.0f}")
        base = self.folder / f"step-{step:07d}"
        content = {"step": step, "attempt": self._attempt, "finite": is_finite(state), "state": state.tree}
        content |= {"lost": state.lost, **facts}
        files.save(base, {**state.tensors, **to_tensors([random])}, content)
        done = Checkpoint(step, base, content["finite"], self._origin if step == self._seam else None)
        self.kept = [each for each in self.kept if each.step != step] + [done]
        self._prune()
        return done

    def choose(self, step: int, margin: int) -> Checkpoint | None:
        """The last good one: finite, and (where there is one) at least `margin` steps before the incident."""
        first = self._seam if step >= self._seam else 0
        good = [each for each in self.kept if each.finite and first <= each.step <= step]
        early = [each for each in good if each.step <= step - margin]
        return max(early or good, key=lambda each: each.step, default=None)

    def clear(self, keep: int) -> None:
        """Remove all but the last `keep` good ones: what incidents need they hold under names of their own."""
        good = [each for each in self.kept if each.finite]
        self.kept = good[len(good) - keep :] if keep else []
        self._prune()

    def _prune(self) -> None:
        """Keep the last two states; of those that are not finite none that would push out a good one."""
        bad = [each for each in self.kept if not each.finite]
        good = list({each.root: each for each in self.kept if each.finite}.values())  # of copies the last
        good.sort(key=lambda each: each.step)
        self.kept = sorted(good[-KEPT:] + bad[-1:], key=lambda each: each.step)
        names = {path for each in self.kept for path in each.files()}
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            if path not in names and not path.name.startswith(EARLIER):
                path.unlink(missing_ok=True)


def threads_and_flags() -> dict[str, Any]:
    """What of torch's settings decides the last bits of a result."""
    cuda = torch.backends.cuda.matmul
    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32": bool(cuda.allow_tf32),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def autocast_in_force(model: nn.Module) -> dict[str, Any] | None:
    """The autocast of this moment, None where there is none."""
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    if not torch.is_autocast_enabled(device):
        return None
    return {"device": device, "dtype": str(torch.get_autocast_dtype(device)).removeprefix("torch.")}
