"""Keeps what is needed to execute a moment again, and leaves an incident folder when there is one.

Between two steps it notes the random states and, when due, copies the training state; after a step it keeps the batch.
A thread writes. Nothing here changes training, and nothing waits for a device except when an incident is written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import Any

import torch

from steadyrun.incidents import callers, folder, tokens
from steadyrun.incidents import state as training
from steadyrun.incidents.accounts import Accounts
from steadyrun.incidents.boundary import Boundary
from steadyrun.incidents.checkpointing import Checkpointing
from steadyrun.incidents.packing import Packed, pack
from steadyrun.incidents.randomness import RandomState, take
from steadyrun.incidents.ring import Kept, Ring
from steadyrun.incidents.rolling import FOLDER, Rolling, threads_and_flags
from steadyrun.incidents.settings import Settings
from steadyrun.incidents.spotting import Spotter
from steadyrun.incidents.working import Worker
from steadyrun.probes.batches import input_hash
from steadyrun.probes.pending import Row
from steadyrun.probes.problems import Problems
from steadyrun.records import Found
from steadyrun.store.writer import RunWriter

Watched = Callable[[], training.Objects]


class Capture:
    """The capture of one run. It is shown the program's objects, every step, and every fault that is found."""

    def __init__(
        self, writer: RunWriter, problems: Problems, settings: Settings, loss_fn: Any, tokenizer: Any | None
    ) -> None:
        self._problems = problems
        self._ring = Ring(settings.batch_bytes)
        self._rolling = Rolling(writer.root / folder.INCIDENTS / FOLDER)
        self._worker = Worker(lambda problem: problems.report("an incident", problem))
        self._checkpointing = Checkpointing(settings, problems)
        self._counts = tokens.TokenCounts(tokenizer) if tokenizer is not None else None
        self._accounts = Accounts(writer, settings, self._worker, self._rolling, self._counts)
        self._finder = callers.BatchFinder(loss_fn)
        self._spotter = Spotter()
        self._watched: Watched | None = None
        self._boundary: Boundary | None = None
        self._devices: list[int] = []
        self._random: RandomState | None = None  # when the last step ended
        self._forward: RandomState | None = None  # when the forward pass of this step began
        self._inputs: list[Any] = []
        self._last_batch: list[weakref.ref[Any]] = []
        self._next = 0
        self._out_of_memory = ""

    # -- what the recorder calls -------------------------------------------------------------------

    def watch(self, objects: Watched, step: int, *, compiled: bool) -> None:
        """Follow these objects from `step` on; called again when they were replaced."""
        self.unwatch()
        if self._watched is not None:
            self._begin_anew()
            self._worker.wait()
        self._watched, self._next = objects, step
        self._checkpointing.restart()
        self._spotter = Spotter()
        model = objects().model
        self._devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
        self._boundary = None if compiled else Boundary(model, self._crossed)
        self._begin_step()

    def unwatch(self) -> None:
        if self._boundary is not None:
            self._boundary.disarm()

    def pause(self) -> None:
        """Let go of the model, and have everything on disk."""
        self.unwatch()
        self._worker.wait()

    def go_on(self) -> None:
        """After a pause, between two steps."""
        self._begin_step()

    def step_ended(self, row: Row, batch: Any, token_losses: Any) -> None:
        """Keep a step. Its numbers are read from `row` when they are written: some arrive later."""
        if row.step < self._next:
            self._begin_anew()
        self._next = row.step + 1
        crossed = self._boundary is not None and not self._boundary.disarm()
        kept = Kept(row.step, self._random or take(), self._forward, values=row.values)
        if batch is not None:
            self._keep_batch(kept, batch, self._inputs if crossed else [])
        if token_losses is not None:
            kept.token_losses = pack(token_losses)
        self._inputs = []
        self._ring.add(kept)
        self._accounts.passed(row.step, self._ring)
        if self._out_of_memory:
            why, self._out_of_memory = self._out_of_memory, ""
            self.open("out-of-memory", why, row.step)
        self._begin_step()

    def _keep_batch(self, kept: Kept, batch: Any, inputs: list[Any]) -> None:
        kept.batch = pack(batch)
        given = pack(inputs, copy=False)
        if not given.storages <= kept.batch.storages:  # the model got something else than parts of the batch
            kept.input_hash = input_hash(inputs)
        self._finder.learn(callers.training_frame(), batch)
        self._last_batch = callers.references(batch)
        if self._counts is not None:
            on_cpu = not kept.batch.tensors or not self._devices
            self._counts.add(tokens.tokens_in(kept.batch.tensors if on_cpu else pack(batch, copy=False).tensors))

    def saw(self, row: Row) -> None:
        """A step's loss is known: open an incident where it is not finite, or jumped."""
        for kind, step, why, severity in self._spotter.saw(row.step, row.values):
            self.open(kind, why, step, severity=severity)

    def found(self, found: Found) -> None:
        """The monitor found a fault."""
        step = found.step if found.step is not None else found.noticed
        self.open("fault", f"{found.code} {found.outcome}: {found.message}", step, found=asdict(found))

    def ran_out_of_memory(self, why: str) -> None:
        """Called inside the allocator, where nothing may be done: the next step tells."""
        self._out_of_memory = why

    def raised(self, failure: BaseException) -> None:
        """The training loop ended with an exception; the step it was in was never handed over."""
        batch = self._finder.find(failure.__traceback__)
        begun = self._forward is not None  # since the last step that was handed over
        if batch is not None and (begun or not callers.is_made_of(batch, self._last_batch)):
            self._ring.add(Kept(self._next, self._random or take(), self._forward, pack(batch)))
        kind = "out-of-memory" if "OutOfMemory" in type(failure).__name__ else "exception"
        words = str(failure).splitlines() or [""]
        self.open(kind, f"{type(failure).__name__}: {words[0][:500]}", self._next, trace=failure.__traceback__)

    def open(
        self,
        kind: str,
        why: str,
        step: int,
        *,
        severity: float = float("inf"),
        found: dict[str, Any] | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Leave a folder for what happened at `step`."""
        facts: dict[str, Any] = {"code": callers.code_location(callers.training_frame(), trace)}
        if found is not None:
            facts["found"] = found
        self._accounts.open(folder.Account(step, kind, why, self._next - 1, severity, facts), self._ring)

    def close(self, *, failed: bool) -> None:
        """Write what is open; of the rolling checkpoints all stay after a failure, else the last good one."""
        self.unwatch()
        for kind, step, why, severity in self._spotter.spikes():
            self.open(kind, why, step, severity=severity)
        self._accounts.passed(None, self._ring)
        if not failed:
            self._worker.do(lambda: self._rolling.clear(keep=1))
        self._worker.finish()

    def _begin_anew(self) -> None:
        """The program went back to an earlier step, or has other objects: what was kept does not lead to what comes."""
        self._accounts.passed(None, self._ring)
        self._ring.clear()
        self._checkpointing.restart()
        self._worker.do(lambda: self._rolling.clear(keep=0))

    # -- between two steps -------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._random, self._forward = take(self._random, self._devices), None
        if self._boundary is not None:
            self._boundary.arm()
        else:
            self._take_checkpoint(self._random)

    def _crossed(self, args: Any) -> None:
        with self._problems.contained("incident capture"):
            self._forward = take(self._random, self._devices)
            self._take_checkpoint(self._forward)
            self._inputs = list(args) if isinstance(args, tuple) else []

    def _take_checkpoint(self, random: RandomState) -> None:
        if self._watched is None or self._worker.busy or not self._checkpointing.due(self._next, self._ring):
            return
        step, objects = self._next, self._watched()
        state = self._checkpointing.take(step, objects)
        if state is not None:
            facts = {"position": {"batches": step}, "autocast": _autocast(objects), "flags": threads_and_flags()}
            self._worker.do(lambda: self._write_checkpoint(step, state, random, facts))

    def _write_checkpoint(self, step: int, state: Packed, random: RandomState, facts: dict[str, Any]) -> None:
        try:
            self._rolling.write(step, state, random, facts)
        except OSError as problem:
            self._problems.report("a rolling checkpoint", problem, "could not be written; replay does without it")


def _autocast(objects: training.Objects) -> dict[str, Any] | None:
    """The autocast in force now, None where there is none."""
    device = next((parameter.device.type for parameter in objects.model.parameters()), "cpu")
    if not torch.is_autocast_enabled(device):
        return None
    return {"device": device, "dtype": str(torch.get_autocast_dtype(device)).removeprefix("torch.")}
