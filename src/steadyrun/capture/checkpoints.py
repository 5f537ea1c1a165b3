"""Rolling checkpoints: copied between two steps, written by their own thread, the last two kept; and the way back."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.program import tensor_files
from steadyrun.program.packing import Packed, arrived
from steadyrun.program.random_state import RandomState, to_tensors
from steadyrun.program.snapshot import is_finite
from steadyrun.store.jsonio import dumps, replace_file

# Rolling checkpoints: copied between two steps, written by a thread of their own, the last two kept.


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
        self.checkpoints: list[Checkpoint] = []
        self.earlier: Checkpoint | None = None  # of the attempts before this one
        self._seam = 0  # the step after the last rollback
        self._origin: int | None = None
        self.abandoned = False

    def abandon(self) -> None:
        """The run has ended well and waits no longer for what is being written: it goes."""
        self.abandoned = True
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def went_back(self, seam: int, checkpoint: Checkpoint) -> None:
        """Training goes on at step `seam` with the state of a checkpoint: batches before it lead elsewhere."""
        self._seam, self._origin = seam, checkpoint.root

    def write(self, step: int, state: Packed, random: RandomState, facts: dict[str, Any]) -> Checkpoint:
        """Write the state before `step`; older ones go when it is complete."""
        if self.abandoned:
            raise OSError("the run has ended")
        arrived(state)
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < _ROOM * state.nbytes:
            raise OSError(f"{free / 2**20:.0f} MiB are free, a checkpoint has {state.nbytes / 2**20:.0f}")
        base = self.folder / f"step-{step:07d}"
        content = {"step": step, "attempt": self._attempt, "finite": is_finite(state), "state": state.tree}
        content |= {"lost": state.lost, **facts}
        tensor_files.save(base, {**state.tensors, **to_tensors([random])}, content)
        done = Checkpoint(step, base, content["finite"], self._origin if step == self._seam else None)
        self.checkpoints = [checkpoint for checkpoint in self.checkpoints if checkpoint.step != step] + [done]
        self._prune()
        return done

    def choose(self, step: int, margin: int) -> Checkpoint | None:
        """The last good one: finite, and (where there is one) at least `margin` steps before the incident."""
        first = self._seam if step >= self._seam else 0
        good = [checkpoint for checkpoint in self.checkpoints if checkpoint.finite and first <= checkpoint.step <= step]
        early = [checkpoint for checkpoint in good if checkpoint.step <= step - margin]
        return max(early or good, key=lambda checkpoint: checkpoint.step, default=None)

    def clear(self, keep: int) -> None:
        """Remove all but the last `keep` good ones: what incidents need they hold under names of their own."""
        good = [checkpoint for checkpoint in self.checkpoints if checkpoint.finite]
        self.checkpoints = good[len(good) - keep :] if keep else []
        self._prune()

    def _prune(self) -> None:
        """Keep the last two states; of those that are not finite none that would push out a good one."""
        bad = [checkpoint for checkpoint in self.checkpoints if not checkpoint.finite]
        latest = {checkpoint.root: checkpoint for checkpoint in self.checkpoints if checkpoint.finite}  # of copies
        good = sorted(latest.values(), key=lambda checkpoint: checkpoint.step)
        self.checkpoints = sorted(good[-KEPT:] + bad[-1:], key=lambda checkpoint: checkpoint.step)
        names = {path for checkpoint in self.checkpoints for path in checkpoint.files()}
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            if path not in names and not path.name.startswith(EARLIER) and not path.is_dir():  # of other ranks
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


def available_memory() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError):
        return None


# The last good checkpoint of the attempts before: a resumed run keeps it, so that the seam can be looked into.


SOON = 200  # steps after a resume in which an incident may come from it


def keep_earlier(folder: Path, attempt: int) -> Checkpoint | None:
    """Give the last good checkpoint found in `folder` the name `before-attempt-NNN`; None where there is none.

    Only the latest is kept. A process that is killed in between leaves it under its old name or under the new one.
    """
    latest = max(_good(folder), key=lambda good: (_number(good[1], "attempt"), _number(good[1], "step")), default=None)
    if latest is None:
        return None
    base, content = latest
    target = folder / f"{EARLIER}{attempt:03d}"
    if base != target:
        _rename(base, target, content)
    earlier = Checkpoint(_number(content, "step"), target, True)
    for path in folder.glob(f"{EARLIER}*"):
        if path not in earlier.files():
            path.unlink(missing_ok=True)
    return earlier


def _rename(base: Path, target: Path, content: dict[str, Any]) -> None:
    """The tensors change their name when the new JSON is there already: at any moment one of the two is whole."""
    old, new = (Checkpoint(0, path, True).files() for path in (base, target))
    named = {**content, "tensors": {**content["tensors"], "file": new[0].name}}
    replace_file(new[1], dumps(named))
    old[0].replace(new[0])
    old[1].unlink(missing_ok=True)


def _good(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Complete and finite checkpoints, with what they say of themselves."""
    for path in sorted(folder.glob("*.json")):
        try:
            content = tensor_files.load_json(path)
            size = path.with_suffix(".safetensors").stat().st_size
        except (RunDirectoryError, OSError):
            continue
        seal = content.get("tensors")
        if content.get("finite") is True and isinstance(seal, dict) and seal.get("bytes") == size:
            yield path.with_suffix(""), content


def _number(content: dict[str, Any], name: str) -> int:
    number = content.get(name, 0)
    return number if isinstance(number, int) else 0


# `run.rollback()`: which checkpoint training goes back to, so that it cannot go back to the same one for ever.


MOST = 3  # times that training may go back to one checkpoint


@dataclass(frozen=True)
class Rollback:
    """What was done: the state before step `to` is back, and `seam` is the next step. `skipped` counts batches."""

    to: int
    last: int
    seam: int
    skipped: int
    given_up: bool  # whether step `last` was begun and not recorded


class Returns:
    """Counts how often each state was gone back to. A copy of a state, taken where training went on, is the same."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def choose(self, checkpoints: Sequence[Checkpoint], until: int) -> Checkpoint:
        """The last good checkpoint up to step `until` that may still be used; a clear error where there is none."""
        good = sorted(
            (checkpoint for checkpoint in checkpoints if checkpoint.finite and checkpoint.step <= until),
            key=lambda checkpoint: -checkpoint.step,
        )
        if not good:
            raise UsageError(
                f"run.rollback: there is no good checkpoint of a step up to {until}; give a later before=, or have "
                'checkpoints taken more often: run.watch(…, capture={"every": 50})'
            )
        latest = next((checkpoint for checkpoint in good if self._times[checkpoint.root] < MOST), None)
        if latest is None:
            steps = ", ".join(str(checkpoint.root) for checkpoint in good)
            raise UsageError(
                f"training went back {MOST} times to each of its good checkpoints (before steps {steps}), and it went "
                "wrong again every time: it is not the batches. steadyrun check and steadyrun replay look for the cause"
            )
        return latest

    def used(self, checkpoint: Checkpoint) -> None:
        self._times[checkpoint.root] += 1
