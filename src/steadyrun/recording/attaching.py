"""The part of a `Run` that attaches the probes: what `run.watch` does, and undoes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steadyrun.probes.cadence import Cadence
from steadyrun.recording.moments import Moments

if TYPE_CHECKING:
    from torch import nn

    from steadyrun.errors import FaultFound
    from steadyrun.monitor.monitor import OnFault


class Attaching(Moments):
    """The part of `Run` that knows the model."""

    config: dict[str, Any]
    _every: Mapping[str, int]

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
        capture: bool | Mapping[str, Any] = True,
        loader: Any | None = None,
        factory: str | None = None,
        preflight: bool | Sequence[Any] = False,
    ) -> None:
        """Attach the probes to a torch model and its optimizer (or a list of optimizers; None if there is none).

        Call it before the first forward pass, and again after a resume or when the optimizer was rebuilt.
        `blocks` names the modules to follow (patterns such as "encoder.layer.*") where the automatic choice
        does not suit. `collectives=True` lets the norms of sharded parameters (FSDP2, tensor parallel) be added
        up over the ranks: every rank must record then.

        The monitor asks the questions of `steadyrun check` while training: a certain fault is recorded and printed
        in one line. `on_fault` is called with it (a `steadyrun.Found`); `on_fault="stop"`, or a function that
        returns "stop", ends the run: `run.step` raises `steadyrun.FaultFound`.

        With `loss_fn` (called as `loss_fn(model, batch)`) incidents are captured, so that `steadyrun replay` can
        execute them again: `capture` takes {"every": 200, "batch_bytes": …} or False. `tokenizer` shows what was in
        the batch. `loader` is a data loader with a `state_dict`, kept in the checkpoints. `factory`, such as
        "train:task", is suggested to whoever replays.

        `preflight=True` tries model, loss and optimizer on the first batches of `loader` before training (or on those
        given: `preflight=[batch, …]`), puts everything back bit for bit, and keeps what it found with the run.
        """
        from steadyrun.probes.watch_setup import begin_watching
        from steadyrun.recording.capture_setup import check_options

        check_options(on_fault, monitor, factory, capture)
        stop = None
        batches = self._batches_to_try(preflight, loss_fn, loader)
        if self._watcher is not None:
            self._watcher.detach()
            self._watcher = None
        if batches is not None:
            with self._problems.contained("preflight", "failed"):
                objects = {"model": model, "optimizer": optimizer, "loss_fn": loss_fn, "scheduler": scheduler}
                objects |= {"scaler": scaler, "tokenizer": tokenizer, "config": self.config}
                stop = self._try(objects, batches, on_fault)
            if stop is not None:
                raise stop
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
            fresh=not (self._steps.begun or self._steps.resumed),
        )
        self._turn = self._steps.next
        if self._watcher is not None:
            self._watcher.attach(self._turn)
            self._begin_capture(capture, loss_fn, tokenizer, loader, factory)
        with self._problems.contained("monitor", "failed"):
            if monitor:
                self._outbox.start_monitor(on_fault, self._turn)
            else:
                self._outbox.stop_monitor()

    def monitor(self, on_fault: OnFault | str | None = None) -> None:
        """Ask the questions of `steadyrun check` while the run goes on; `watch` does so by itself."""
        from steadyrun.recording.capture_setup import check_options

        check_options(on_fault, True, None, False)
        with self._problems.contained("monitor", "failed"):
            self._outbox.start_monitor(on_fault, self._steps.next)

    def infer(self, **facts: Any) -> None:
        """Keep with the run what was read off a program that is not watched, such as the learning rates to expect."""
        with self._problems.contained("manifest"):
            self._writer.save_manifest(inferred={**self._writer.manifest.get("inferred", {}), **facts})

    def unwatch(self) -> None:
        """Take every hook off again; recording of what is handed to `step`, `val` and `log` goes on."""
        if self._outbox.capture is not None:
            self._outbox.capture.unwatch()
        if self._watcher is not None:
            self._watcher.detach()
            self._watcher = None

    def _batches_to_try(self, preflight: Any, loss_fn: Any, loader: Any) -> Any:
        if preflight is False:
            return None
        from steadyrun.recording.preflight_in_run import wanted

        return wanted(preflight, loss_fn, loader)

    def _try(self, objects: dict[str, Any], batches: Any, on_fault: Any) -> FaultFound | None:
        from steadyrun.recording.preflight_in_run import preflight_run

        return preflight_run(self._writer, objects, batches, on_fault, self._steps.next)
