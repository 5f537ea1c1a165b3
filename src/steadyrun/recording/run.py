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

from steadyrun.errors import UsageError
from steadyrun.probes.problems import Problems, say
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.probes.scalars import scalar
from steadyrun.recording import close as closing
from steadyrun.recording.attachment import Attachment, Watched
from steadyrun.recording.declared_config import answer_config
from steadyrun.recording.environment import describe_environment
from steadyrun.recording.failures import describe_failure
from steadyrun.recording.flush import Flusher
from steadyrun.recording.process import own_world
from steadyrun.recording.step_counter import Steps, step_number
from steadyrun.recording.watchdog import Watchdog
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from torch import nn

    from steadyrun.forwarding.forwarding import Forwarding
    from steadyrun.monitor.monitor import OnFault
    from steadyrun.replay.result import Replay

_ALIASES = {"lr": "lr/0"}


class Run:
    """A run being recorded, as `steadyrun.record` returns it: a context manager, or call `close()` at the end."""

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
        stall_seconds: float | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        self.path = root
        self.config = config
        self._every = every
        self._pid = os.getpid()
        self._closed = False
        self._steps_are_called = False
        self._stepped_at = time.perf_counter()
        self._batches = 0
        self._problems = Problems(
            lambda kind, **fields: self._writer.event(kind, **({"step": self._steps.next} | fields))
        )
        self._writer = RunWriter(root, rank, lambda what, problem: self._problems.report(what, problem))
        self._steps = Steps(self._writer, last_step, first_step)
        self._flusher = Flusher(
            self._writer,
            self._problems,
            pad_id=config.get("pad_id"),
            flush_steps=flush_steps,
            flush_seconds=flush_seconds,
        )
        self._attachment = Attachment(self._writer, self._problems, self._steps, self._flusher, config, every)
        self._write_first_manifest({"steps": flush_steps, "seconds": flush_seconds}, forwarding)
        self._attachment.name_process()
        answer_config(config, self._writer, self._steps.next)
        self._flusher.start_forwarding(forwarding, config)
        self._stall_seconds = stall_seconds
        self._watchdog: Watchdog | None = None
        self._start_watchdog()
        atexit.register(self._at_exit)

    # -- what users call --------------------------------------------------------------------------

    @property
    def next_step(self) -> int:
        """Number of the next step."""
        return self._steps.next

    @property
    def closed(self) -> bool:
        """Whether the recording has ended."""
        return self._closed

    def step(
        self,
        loss: Any,
        *,
        batch: Any = None,
        class_losses: Mapping[str, Any] | None = None,
        token_losses: Any = None,
        step: int | None = None,
        batch_index: int | None = None,
    ) -> None:
        """Record one optimizer step, after `optimizer.step()`; it may come after `zero_grad`.

        `loss` is the undivided mean over the step's micro-batches: a number or a tensor on any device (no `.item()`
        needed), None if it is not known. `batch` gives the batch's hash and size, and is what replay executes; for an
        accumulated step it is the list of micro-batches. `class_losses` are named losses (`{"regular": …}`).
        `token_losses` is a tensor, or a list of tensors, with a loss per token, kept for incidents. `step` and
        `batch_index` override the counters. With `on_fault="stop"` it raises `steadyrun.FaultFound`.
        """
        if not self._usable():
            return
        if not self._steps_are_called:
            self._attachment.look_for_loaders(sys._getframe(1))
        try:
            self._record_step(loss, batch, class_losses, token_losses, step, batch_index)
        except Exception as problem:
            self._problems.report("run.step", problem)
        self._attachment.step_begins()
        if (stop := self._flusher.take_stop()) is not None:
            raise stop

    def val(
        self,
        loss: Any,
        *,
        batches: Any = None,
        class_losses: Mapping[str, Any] | None = None,
        step: int | None = None,
        **metrics: Any,
    ) -> None:
        """Record a validation result at the last recorded step, or at `step`.

        `batches` is a list of the validation batches, or a loader: with it, `check` finds examples shared with
        training. `class_losses` are named losses; any other keyword is a metric, such as `accuracy=0.9`.
        """
        if not self._usable():
            return
        with self._problems.contained("run.val"):
            if (at := self._numbered("run.val", step, self._steps.last)) is None:
                return
            values = {"val_loss": loss, **metrics}
            values.update({f"val_class_loss/{name}": value for name, value in (class_losses or {}).items()})
            shown: dict[str, float] = {}
            for name, value in values.items():
                with self._problems.contained(f"run.val {name}"):
                    if value is not None:
                        shown[name] = float(scalar(value, name))
            self._steps.begin(at)
            self._attachment.validated()
            modes: dict[str, Any] = {}
            if (watcher := self._attachment.watcher) is not None:
                with self._problems.contained("run.val inputs"):
                    shown.update(watcher.validation_inputs())
                with self._problems.contained("run.val calls"):
                    modes["calls"] = watcher.validation_calls()
                modes["modes"] = watcher.validated()
                if modes["modes"]["passes"]:  # a rank that leaves validation to another does not use its buffers
                    with self._problems.contained("run.val buffers"):
                        modes.update(watcher.validation_buffers())
            data = {}
            if batches is not None:
                with self._problems.contained("run.val batches"):
                    data = {"data": self._flusher.examples.validation(batches, at)}
            self._writer.event("validation", at, values=shown, **modes, **data)

    def log(self, step: int | None = None, **values: Any) -> None:
        """Record any scalars at the last recorded step, or at `step`; works without a framework.

        In a loop that never calls `run.step`, each call with a `loss` is a step. `val_loss=x` is `run.val(x)`.
        """
        if not self._usable():
            return
        with self._problems.contained("run.log"):
            if (at := self._numbered("run.log", step, self._log_step(values))) is None:
                return
            if "val_loss" in values:
                self.val(values.pop("val_loss"), step=at)
            if values:
                self._record_log(at, values)

    def note(self, text: str) -> None:
        """Add a note to the event log at the last recorded step."""
        if self._usable():
            with self._problems.contained("run.note"):
                self._writer.event("note", self._steps.last, message=str(text))

    def checkpoint(self, path: Any = None) -> None:
        """Record that the state after the last recorded step was saved, optionally at `path`."""
        if self._usable():
            with self._problems.contained("run.checkpoint"):
                self._writer.event("checkpoint", self._steps.last, path=None if path is None else str(path))

    def flush(self) -> None:
        """Write everything recorded so far to disk; this waits for the accelerator."""
        if self._usable():
            with self._problems.contained("flush"):
                self._flusher.flush()

    def close(self, failure: BaseException | None = None) -> None:
        """End the recording: state `finished`, or `crashed` with the `failure`. Safe to call twice."""
        if not self._usable():
            return
        with self._problems.contained("close"):
            if self._watchdog is not None and failure is not None and closing.is_crash(failure):
                facts = describe_failure(failure, self._watchdog.clock.now[1])
                self._writer.event("process-failed", self._watchdog.clock.now[0], **facts)
        with self._problems.contained("close"):
            if failure is None and self._attachment.watcher is not None and self._steps.begun:
                end = self._attachment.watcher.last_row(self._steps.last, time.time())
                if end.values or end.late:
                    self._flusher.add(end, last=False)
            self.unwatch()
            self._flusher.flush()
        with self._problems.contained("incident capture"):
            if self._flusher.capture is not None and failure is not None and closing.is_crash(failure):
                self._flusher.capture.raised(failure)
        with self._problems.contained("close"):
            self._closed = True
            atexit.unregister(self._at_exit)
            if self._watchdog is not None:
                self._watchdog.close(failed=failure is not None)
            closing.finish(
                self._writer,
                self._steps.last,
                failure,
                lambda: self._flusher.conclude(self._steps.last, failed=failure is not None),
            )
        with self._problems.contained("close"):
            self._attachment.let_go()
            self._flusher.let_go()

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
        monitor: bool = True,
        on_fault: OnFault | str | None = None,
        on_suspect: OnFault | str | None = None,
        capture: bool | Mapping[str, Any] = True,
        loader: Any | None = None,
        factory: str | None = None,
        preflight: bool | Sequence[Any] | Mapping[str, Any] = False,
    ) -> None:
        """Attach the probes to a torch model and its optimizer (or a list of optimizers; None if there is none).

        Call it before the first forward pass, and again after a resume or after rebuilding the optimizer. `scheduler`
        gives the learning rates to expect, `scaler` the loss scale. `blocks` names the modules to measure (patterns
        such as "encoder.layer.*") if the automatic choice does not suit. `collectives=True` sums the norms of sharded
        parameters (FSDP2, tensor parallel) over the ranks; then every rank must record.

        The monitor runs the checks of `steadyrun check` during training; it records and prints a certain fault in one
        line and calls `on_fault` with it (a `steadyrun.Found`). `on_fault="stop"`, or a function that returns "stop",
        ends the run: `run.step` raises `steadyrun.FaultFound`. Suspects are printed once each; `on_suspect` works in
        the same way. `monitor=False` turns the monitor off.

        With `loss_fn` (called as `loss_fn(model, batch)`) incidents are captured, with batches and checkpoints, so that
        `steadyrun replay` can re-run them: `capture` takes `{"every": 200, "batch_bytes": …}` or False. `tokenizer`
        decodes the batch in reports, and three examples of a language model are kept as text, unless `capture` is
        False. `loader` is the training loader; its `state_dict`, if it has one, is kept in the
        checkpoints. `factory`, such as "train:task", is suggested for replays.

        `preflight=True` tests model, loss and optimizer on the first batches of `loader` before training, restores
        everything bit for bit and keeps the answers with the run. It also takes a list of batches, or a dict with
        arguments of `steadyrun.preflight`: `{"deep": True, "val_loader": val_loader, "train_step": train_step}`.
        """
        from steadyrun.recording.capture_setup import check_options

        check_options(on_fault, monitor, factory, capture, on_suspect)
        watched = Watched(model, optimizer, scheduler, loss_fn, scaler, tokenizer)
        self._start_watchdog()
        self._attachment.try_before(watched, preflight, loader, on_fault)
        self._attachment.attach_probes(watched, blocks, collectives)
        self._attachment.attach_capture(watched, capture, loader, factory)
        with self._problems.contained("learned tokens"):
            self._attachment.look_for_tokens(tokenizer, text=capture is not False)
        with self._problems.contained("monitor", "failed"):
            if monitor:
                self._flusher.start_monitor(on_fault, self._attachment.turn, on_suspect)
            else:
                self._flusher.stop_monitor()

    def monitor(self, on_fault: OnFault | str | None = None, on_suspect: OnFault | str | None = None) -> None:
        """Run the checks of `steadyrun check` while the run continues; `watch` starts this by itself."""
        from steadyrun.recording.capture_setup import check_options

        check_options(on_fault, True, None, False, on_suspect)
        with self._problems.contained("monitor", "failed"):
            self._flusher.start_monitor(on_fault, self._steps.next, on_suspect)

    def infer(self, **facts: Any) -> None:
        """Record facts about a program that is not watched, such as the learning rates to expect (`expected_lr`)."""
        with self._problems.contained("manifest"):
            self._writer.save_manifest(inferred={**self._writer.manifest.get("inferred", {}), **facts})

    def _name_recorder(self, name: str) -> None:
        """Note what called us, if it was not the program itself: advice depends on it."""
        with self._problems.contained("manifest"):
            self._writer.save_manifest(recorded_by=name)

    def unwatch(self) -> None:
        """Remove every hook; `step`, `val` and `log` still record what they are given."""
        self._attachment.detach()

    def incident(self, why: str) -> None:
        """Capture an incident at the last recorded step, as for a NaN or a fault; `why` is shown in reports."""
        if self._usable():
            with self._problems.contained("run.incident"):
                self._attachment.incident(str(why))

    def rollback(self, before: int | None = None) -> int:
        """Restore the last good checkpoint and continue with the next batches; returns the checkpoint's step.

            if not torch.isfinite(loss):
                run.rollback()
                continue

        Model, optimizer, scheduler and scaler are restored bit for bit; gradients are cleared. The data loader and the
        random states keep their state, so the batches since then are skipped and the same dropout masks do not return.
        Step numbers continue, so nothing recorded is lost. `before` asks for a checkpoint at or before that step, for a
        loss that went wrong long before anyone noticed.

        It needs capture (`run.watch` with a `loss_fn`). After three rollbacks to one checkpoint it takes the previous
        one. Without a good checkpoint it raises `steadyrun.UsageError`.
        """
        if not self._usable():
            raise UsageError("run.rollback: the run is closed")
        self.flush()
        done = self._attachment.roll_back(before)
        self._batches += done.given_up
        self._stepped_at = time.perf_counter()
        return done.to

    def replay(self, step: int | None = None, **options: Any) -> Replay | None:
        """Re-run an incident (the gravest one, or the one at `step`) with the objects being watched.

        They are restored bit for bit. `train_step(task, batch)` is one whole optimizer step as the program writes it;
        other options are those of `steadyrun.replay`. Without an incident it prints one line and returns None.
        """
        self.flush()
        return self._attachment.replay(self.path, step, options)

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
        token_losses: Any,
        step: int | None,
        batch_index: int | None,
    ) -> None:
        now = time.perf_counter()
        self._steps_are_called = True
        if (at := self._numbered("run.step", step, self._steps.next)) is None:
            return
        row = ProbeRow("steps", at, time.time())
        if self._watchdog is not None:
            row.values.update(self._watchdog.clock.step_ends())
        row.values["batch_index"] = float(self._batches)
        if batch_index is not None:
            with self._problems.contained("batch_index"):
                row.put("batch_index", scalar(batch_index, "batch_index"))
        if self._steps.begun:
            row.values["step_time"] = now - self._stepped_at
        self._steps.begin(at)
        self._stepped_at = now
        self._batches += 1
        self._put_losses(row, loss, class_losses)
        self._put_parts(row, batch, token_losses)
        self._flusher.add(row)
        self._steps.next = at + 1
        self._attachment.turn += 1
        self._flusher.flush_if_due(now, at, self._attachment.turn)
        if self._attachment.watcher is not None:
            self._attachment.watcher.prepare(self._attachment.turn)

    def _put_parts(self, row: ProbeRow, batch: Any, token_losses: Any) -> None:
        """What probes and capture make of a step. One that fails is reported once, and the others go on.

        In every step `try` costs nothing, and a context manager three calls.
        """
        problems, flusher, kept = self._problems, self._flusher, None
        if self._attachment.watcher is not None:
            try:
                for sample in self._attachment.watcher.fill(row):
                    flusher.add(sample, last=False)
            except Exception as problem:
                problems.report("watched objects", problem)
        if flusher.capture is not None and not problems.failed("incident capture"):
            try:
                kept = flusher.capture.step_ended(row, batch, token_losses)
            except Exception as problem:
                problems.report("incident capture", problem)
        if batch is None:
            return
        if not problems.failed("batch"):
            try:
                flusher.examples.training(batch, row, kept)
            except Exception as problem:
                problems.report("batch", problem)
        tokens = self._attachment.learned_tokens
        if tokens is not None and tokens.looks and not problems.failed("learned tokens"):
            try:
                tokens.look(batch, row)
            except Exception as problem:
                problems.report("learned tokens", problem)

    def _record_past(self, losses: Sequence[Any]) -> None:
        """Record steps that are over: their numbers and losses. What the probes saw belongs to none of them alone."""
        with self._problems.contained("run.step"):
            for loss in losses:
                row = ProbeRow("steps", self._steps.next, time.time(), {"batch_index": float(self._batches)})
                self._steps.begin(row.step)
                self._batches += 1
                self._put_losses(row, loss, None)
                self._flusher.add(row)
                self._steps.next = row.step + 1
        if self._attachment.watcher is not None:
            with self._problems.contained("watched objects"):
                self._attachment.watcher.fill(ProbeRow("steps", self._steps.last, time.time()))
                self._attachment.watcher.prepare(self._attachment.turn)

    def _numbered(self, call: str, step: Any, otherwise: int) -> int | None:
        """The number of a step; None if what was given is not a number, and then only that row is left out."""
        if step is None:
            return otherwise
        try:
            return step_number(step)
        except Exception as problem:
            self._problems.report(f"a row of {call}", problem, "is left out")
            return None

    def _put_losses(self, row: ProbeRow, loss: Any, class_losses: Mapping[str, Any] | None) -> None:
        try:
            if loss is not None:
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
        row = ProbeRow("log", at, time.time())
        for name, value in values.items():
            if value is not None:
                with self._problems.contained(f"run.log {name}"):
                    row.put(_ALIASES.get(name, name), scalar(value, name))
        self._flusher.add(row)
        if not self._steps_are_called and ("loss" in values or at > self._steps.next):
            self._steps.next = at + 1
            self._attachment.step_begins()
        self._flusher.flush_if_due(time.perf_counter(), at, self._attachment.turn)

    def _write_first_manifest(self, flush: dict[str, float], forwarding: Forwarding | None) -> None:
        earlier = closing.earlier_attempts(self.path) if self._steps.resumed else []
        kept = closing.kept_of_the_beginning(self.path) if self._steps.resumed else {}
        description = {"config": self.config, **describe_environment()}
        self._writer.save_manifest(
            state="running",
            attempt=self._writer.attempt,
            earlier_attempts=earlier,
            every=dict(self._every),
            flush=flush,
            **kept,
            **(description if forwarding is None else forwarding.without_secrets(description)),
        )
        if self._steps.resumed:
            say(f"continuing {self.path} after step {self._steps.before} (attempt {self._writer.attempt})")

    def _start_watchdog(self) -> None:
        """With several processes, once; a process group may be set up after `record`."""
        if self._watchdog is None and (world := own_world()) > 1:
            with self._problems.contained("heartbeats"):
                report = self._problems.report
                self._watchdog = Watchdog(self._writer, world, self._steps.next, self._stall_seconds, report)
                self._attachment.clock = self._watchdog.clock

    def _usable(self) -> bool:
        """Not after close, and not in a forked child: a data loader's worker must not write our files."""
        return not self._closed and os.getpid() == self._pid

    def _at_exit(self) -> None:
        self.close(getattr(sys, "last_value", None))
