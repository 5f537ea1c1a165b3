"""Buffers rows and flushes them to the store; the monitor reads what is there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from steadyrun.probes.problems import Problems, say
from steadyrun.probes.row_queue import PendingRows, ProbeRow
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from steadyrun.capture.capture import Capture
    from steadyrun.errors import FaultFound
    from steadyrun.forwarding.forwarding import Forwarding
    from steadyrun.monitor.monitor import Monitor, OnFault
    from steadyrun.probes.examples import ExampleProbe
    from steadyrun.records import Found


class Flusher:
    """Takes rows and validation examples, and writes them every so many steps or seconds."""

    def __init__(
        self, writer: RunWriter, problems: Problems, *, pad_id: Any, flush_steps: int, flush_seconds: float
    ) -> None:
        self._writer, self._problems, self._pad_id = writer, problems, pad_id
        self._flush_steps, self._flush_seconds = flush_steps, flush_seconds
        self._pending = PendingRows(self._store, problems.report)
        self._examples: ExampleProbe | None = None
        self._monitor: Monitor | None = None
        self.capture: Capture | None = None
        self._forwarding: Forwarding | None = None
        self._unflushed = 0
        self._flushed_at = time.perf_counter()

    @property
    def examples(self) -> ExampleProbe:
        """The probe that hashes examples; it exists once a batch was given."""
        if self._examples is None:
            from steadyrun.probes.examples import ExampleProbe

            self._examples = ExampleProbe(self._writer, self._pad_id, self._problems)
        return self._examples

    def take_stop(self) -> FaultFound | None:
        """What the monitor wants the run to end with, once: a loop that catches it has decided to go on."""
        if self._monitor is None:
            return None
        stop, self._monitor.stop = self._monitor.stop, None
        return stop

    def add(self, row: ProbeRow, *, last: bool = True) -> None:
        """Take a row; `last` marks the one that completes a step."""
        if "loss" in row.values:
            self._show(row)
        self._pending.add(row)
        self._unflushed += last

    def flush_if_due(self, now: float, step: int, turn: int) -> None:
        """After a step: write if it is time, and let the monitor look if it wants to."""
        self._pending.collect()
        look_due = self._monitor is not None and self._monitor.due(now, turn)
        if look_due or self._unflushed >= self._flush_steps or now - self._flushed_at >= self._flush_seconds:
            self._pending.start()
            self._write()
        if self._monitor is not None and (look_due or self._monitor.waiting(now)):
            with self._problems.contained("monitor", "failed"):
                self._monitor.look(step, turn) if look_due else self._monitor.hear()

    def flush(self) -> None:
        """Write everything; waits for the device."""
        self._pending.drain()
        self._write()

    def start_monitor(self, on_fault: OnFault | str | None, turn: int, on_suspect: OnFault | str | None = None) -> None:
        """One monitor for the run, on its first rank; started again it keeps what it has announced."""
        if self._writer.rank != 0:
            return
        if self._monitor is not None:
            self._monitor.on_fault, self._monitor.on_suspect = on_fault, on_suspect
            return
        from steadyrun.monitor.monitor import Monitor

        self._monitor = Monitor(
            self._writer,
            on_fault,
            turn=turn,
            say=say,
            problem=self._problems.report,
            on_finding=self._capture_finding,
            on_suspect=on_suspect,
        )

    def stop_monitor(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
        self._monitor = None

    def start_forwarding(self, forwarding: Forwarding | None, config: dict[str, Any]) -> None:
        """Let trackers and alerts follow the run's files, if any were asked for."""
        if forwarding is not None:
            with self._problems.contained("forwarding and alerts", "failed"):
                forwarding.start(self._writer, config)
                self._forwarding = forwarding

    def conclude(self, step: int, *, failed: bool) -> None:
        """The end state is on disk: the monitor's last look, what is left of incidents, then those who follow."""
        if self._monitor is not None:
            with self._problems.contained("monitor", "failed"):
                self._monitor.finish(step)
        if self.capture is not None:
            with self._problems.contained("incident capture"):
                self.capture.close(failed=failed)
        if self._forwarding is not None:
            with self._problems.contained("forwarding and alerts", "failed"):
                self._forwarding.close()

    def let_go(self) -> None:
        """After the end: keep nothing of the program alive."""
        self.stop_monitor()
        self.capture = self._forwarding = None

    def _store(self, row: ProbeRow) -> None:
        if not row.shown:
            self._show(row)
        put = self._writer.merge if row.table == "log" else self._writer.append
        put(row.table, row.step, row.values, row.at)

    def _show(self, row: ProbeRow) -> None:
        """Let others see a loss as soon as its value is here: at once on the CPU, else when it arrives."""
        row.shown = True
        if row.table != "steps":
            return
        if self._monitor is not None:
            self._monitor.saw(row.values)
        if self.capture is not None:
            try:
                self.capture.saw(row)
            except Exception as problem:
                self._problems.report("incident capture", problem)

    def _capture_finding(self, finding: Found) -> None:
        if self.capture is not None:
            with self._problems.contained("incident capture"):
                self.capture.found(finding)

    def _write(self) -> None:
        if self._examples is not None:
            self._examples.flush()
        self._writer.flush()
        self._unflushed, self._flushed_at = 0, time.perf_counter()
