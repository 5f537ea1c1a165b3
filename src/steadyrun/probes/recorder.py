"""The `Run` that `steadyrun.record` returns: what a training loop calls."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from steadyrun.probes import ending
from steadyrun.probes.cadence import Cadence
from steadyrun.probes.environment import describe_environment
from steadyrun.probes.pending import PendingRows, Row
from steadyrun.probes.problems import Problems, say
from steadyrun.probes.scalars import scalar
from steadyrun.probes.steps import Steps
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from torch import nn

    from steadyrun.probes.examples import ExampleProbe
    from steadyrun.probes.watcher import Watcher

_ALIASES = {"lr": "lr/0"}


class Run:
    """A run being recorded. Use it as a context manager, or call `close()` at the end."""

    def __init__(
        self,
        root: Path,
        config: dict[str, Any],
        every: Mapping[str, int],
        *,
        flush_steps: int,
        flush_seconds: float,
        last_step: int | None,
        first_step: int | None,
        rank: int,
    ) -> None:
        self.path = root
        self.config = config
        self._every = every
        self._flush_steps, self._flush_seconds = flush_steps, flush_seconds
        self._pid = os.getpid()
        self._closed = False
        self._steps_are_called = False
        self._turn = 0  # counts calls of `step`, so that probes keep their cadence when steps are numbered in strides
        self._unflushed = 0
        self._flushed_at = self._stepped_at = time.perf_counter()
        self._batches = 0
        self._watcher: Watcher | None = None
        self._examples: ExampleProbe | None = None
        self._problems = Problems(lambda kind, **fields: self._writer.event(kind, self._steps.next, **fields))
        self._writer = RunWriter(root, rank, lambda what, problem: self._problems.report(what, problem))
        self._steps = Steps(self._writer, last_step, first_step)
        self._pending = PendingRows(self._store, self._problems.report)
        self._write_first_manifest()
        atexit.register(self._at_exit)

    # -- what users call --------------------------------------------------------------------------

    def watch(
        self,
        model: nn.Module,
        optimizer: Any = None,
        *,
        scheduler: Any | None = None,
        loss_fn: Any | None = None,
        scaler: Any | None = None,
        tokenizer: Any | None = None,
        blocks: Sequence[str] | None = None,
        collectives: bool = False,
    ) -> None:
        """Attach the probes to a torch model and its optimizer (or a list of optimizers; None if there is none).

        Call it before the first forward pass, and again after a resume or when the optimizer was rebuilt.
        `blocks` names the modules to follow (patterns such as "encoder.layer.*") where the automatic choice
        does not suit. `collectives=True` lets the norms of sharded parameters (FSDP2, tensor parallel) be added
        up over the ranks: every rank must record then.
        """
        from steadyrun.probes.watching import begin_watching

        if self._watcher is not None:
            self._watcher.detach()
            self._watcher = None
        with self._problems.contained("first step after resume"):
            self._steps.infer_from(optimizer)
        self._watcher = begin_watching(
            self._writer,
            model,
            optimizer,
            scheduler=scheduler,
            loss_fn=loss_fn,
            scaler=scaler,
            tokenizer=tokenizer,
            blocks=blocks,
            collectives=collectives,
            config=self.config,
            cadence=Cadence(self._every, self._steps.next),
            problems=self._problems,
        )
        self._turn = self._steps.next
        if self._watcher is not None:
            self._watcher.attach(self._turn)

    def unwatch(self) -> None:
        """Take every hook off again; recording of what is handed to `step`, `val` and `log` goes on."""
        if self._watcher is not None:
            self._watcher.detach()
            self._watcher = None

    def step(
        self,
        loss: Any,
        *,
        batch: Any = None,
        class_losses: Mapping[str, Any] | None = None,
        step: int | None = None,
        batch_index: int | None = None,
    ) -> None:
        """Record one optimizer step. `loss` is the undivided mean over the step's micro-batches.

        It may be a tensor on any device (no `.item()` needed). It may come after `zero_grad`. `batch` gives
        the batch's hash and size; `class_losses` any named losses ({"regular": …}).
        """
        if not self._usable():
            return
        try:
            self._record_step(loss, batch, class_losses, step, batch_index)
        except Exception as problem:
            self._problems.report("run.step", problem)

    def val(
        self,
        loss: Any,
        *,
        batches: Any = None,
        class_losses: Mapping[str, Any] | None = None,
        step: int | None = None,
        **metrics: Any,
    ) -> None:
        """Record a validation result at the last recorded step.

        `batches` (a list of the validation batches, or a loader) let examples shared with training be found.
        """
        if not self._usable():
            return
        with self._problems.contained("run.val"):
            at = self._steps.last if step is None else int(step)
            values = {"val_loss": loss, **metrics}
            values.update({f"val_class_loss/{name}": value for name, value in (class_losses or {}).items()})
            shown: dict[str, float] = {}
            for name, value in values.items():
                with self._problems.contained(f"run.val {name}"):
                    if value is not None:
                        shown[name] = float(scalar(value, name))
            self._steps.begin(at)
            self._writer.event("validation", at, values=shown)
            if batches is not None:
                self._example_probe().validation(batches, at)

    def log(self, step: int | None = None, **values: Any) -> None:
        """Record any scalars at the last recorded step, or at `step`. Needs no framework at all.

        In a loop that never calls `run.step`, a call with a `loss` in it is a step of its own.
        """
        if not self._usable():
            return
        with self._problems.contained("run.log"):
            at = self._log_step(values) if step is None else int(step)
            if "val_loss" in values:
                self.val(values.pop("val_loss"), step=at)
            if values:
                self._record_log(at, values)

    def note(self, text: str) -> None:
        """Add a remark to the event log at the last recorded step."""
        if self._usable():
            with self._problems.contained("run.note"):
                self._writer.event("note", self._steps.last, message=str(text))

    def flush(self) -> None:
        """Write everything recorded so far to disk now; on an accelerator this waits for it."""
        if self._usable():
            with self._problems.contained("flush"):
                self._pending.drain()
                self._write()

    def close(self, failure: BaseException | None = None) -> None:
        """End the recording: state `finished`, or `crashed` with the failure. Safe to call twice."""
        if not self._usable():
            return
        with self._problems.contained("close"):
            self.unwatch()
            self._pending.drain()
            if self._examples is not None:
                self._examples.flush()
        with self._problems.contained("close"):
            self._closed = True
            atexit.unregister(self._at_exit)
            ending.finish(self._writer, self._steps.last, failure)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, failure: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close(failure)

    # -- inside -----------------------------------------------------------------------------------

    def _record_step(
        self,
        loss: Any,
        batch: Any,
        class_losses: Mapping[str, Any] | None,
        step: int | None,
        batch_index: int | None,
    ) -> None:
        now = time.perf_counter()
        self._steps_are_called = True
        at = self._steps.next if step is None else int(step)
        row = Row("steps", at, time.time())
        row.values["batch_index"] = float(self._batches if batch_index is None else batch_index)
        if self._steps.begun:
            row.values["step_time"] = now - self._stepped_at
        self._steps.begin(at)
        self._stepped_at = now
        self._batches += 1
        self._put_losses(row, loss, class_losses)
        if batch is not None and not self._problems.failed("batch"):
            with self._problems.contained("batch"):
                self._example_probe().training(batch, row)
        if self._watcher is not None:
            with self._problems.contained("watched objects"):
                for sample in self._watcher.fill(row):
                    self._pending.add(sample)
        self._pending.add(row)
        self._steps.next = at + 1
        self._unflushed += 1
        self._turn += 1
        self._flush_if_due(now)
        if self._watcher is not None:
            self._watcher.prepare(self._turn)

    def _put_losses(self, row: Row, loss: Any, class_losses: Mapping[str, Any] | None) -> None:
        try:
            row.put("loss", scalar(loss, "loss"))
            for name, value in (class_losses or {}).items():
                if value is not None:
                    row.put(f"class_loss/{name}", scalar(value, name))
        except Exception as problem:
            self._problems.report("loss", problem)

    def _log_step(self, values: dict[str, Any]) -> int:
        return self._steps.next if "loss" in values and not self._steps_are_called else self._steps.last

    def _record_log(self, at: int, values: dict[str, Any]) -> None:
        self._steps.begin(at)
        row = Row("log", at, time.time())
        for name, value in values.items():
            if value is not None:
                with self._problems.contained(f"run.log {name}"):
                    row.put(_ALIASES.get(name, name), scalar(value, name))
        self._pending.add(row)
        if not self._steps_are_called and ("loss" in values or at > self._steps.next):
            self._steps.next = at + 1
        self._unflushed += 1
        self._flush_if_due(time.perf_counter())

    def _store(self, row: Row) -> None:
        put = self._writer.merge if row.table == "log" else self._writer.append
        put(row.table, row.step, row.values, row.at)

    def _flush_if_due(self, now: float) -> None:
        self._pending.collect()
        if self._unflushed >= self._flush_steps or now - self._flushed_at >= self._flush_seconds:
            self._pending.start()
            self._write()

    def _write(self) -> None:
        if self._examples is not None:
            self._examples.flush()
        self._writer.flush()
        self._unflushed, self._flushed_at = 0, time.perf_counter()

    def _write_first_manifest(self) -> None:
        earlier = ending.earlier_attempts(self.path) if self._steps.resumed else []
        self._writer.save_manifest(
            state="running",
            attempt=self._writer.attempt,
            earlier_attempts=earlier,
            config=self.config,
            every=dict(self._every),
            flush={"steps": self._flush_steps, "seconds": self._flush_seconds},
            **describe_environment(),
        )
        if self._steps.resumed:
            say(f"continuing {self.path} after step {self._steps.before} (attempt {self._writer.attempt})")

    def _example_probe(self) -> ExampleProbe:
        if self._examples is None:
            from steadyrun.probes.examples import ExampleProbe

            self._examples = ExampleProbe(self._writer, self.config.get("pad_id"), self._problems)
        return self._examples

    def _usable(self) -> bool:
        """Not after close, and not in a forked child: a data loader's worker must not write our files."""
        return not self._closed and os.getpid() == self._pid

    def _at_exit(self) -> None:
        self.close(getattr(sys, "last_value", None))
