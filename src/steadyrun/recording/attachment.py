"""The program that a run watches: its probes, its capture, and the replay of its incidents."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from steadyrun.errors import FaultFound
from steadyrun.probes.cadence import Cadence
from steadyrun.probes.problems import Problems, say
from steadyrun.recording.flush import Flusher
from steadyrun.recording.loaders import describe_loader, describe_part, loaders_near, training_first
from steadyrun.recording.process import describe_process, own_world
from steadyrun.recording.step_counter import Steps
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from steadyrun.capture.checkpoints import Rollback
    from steadyrun.errors import FaultFound
    from steadyrun.probes.learned_tokens import LearnedTokens
    from steadyrun.probes.phase_hooks import PhaseHooks
    from steadyrun.probes.probe_set import Watcher
    from steadyrun.recording.step_clock import StepClock
    from steadyrun.replay.result import Replay


@dataclass(frozen=True)
class Watched:
    """The objects that `run.watch` was given."""

    model: Any
    optimizer: Any
    scheduler: Any | None
    loss_fn: Any | None
    scaler: Any | None
    tokenizer: Any | None


class Attachment:
    """What is attached to a program, from `run.watch` to `run.unwatch` or the next `run.watch`."""

    def __init__(
        self,
        writer: RunWriter,
        problems: Problems,
        steps: Steps,
        flusher: Flusher,
        config: dict[str, Any],
        every: Mapping[str, int],
    ) -> None:
        self._writer, self._problems, self._steps, self._flusher = writer, problems, steps, flusher
        self._config, self._every = config, every
        self._program: Callable[[], tuple[Any, ...]] | None = None
        self.watcher: Watcher | None = None
        self.clock: StepClock | None = None  # with several processes
        self._phases: PhaseHooks | None = None
        self._process_is_named = False
        self.learned_tokens: LearnedTokens | None = None
        self.turn = 0  # counts calls of `step`, so that probes keep their cadence when steps are numbered in strides

    def name_process(self) -> None:
        """Record once which of several processes this is; a process group may be set up after `record`."""
        if not self._process_is_named and own_world() > 1:
            self._process_is_named = True
            self._writer.event("process", None, **describe_process(self._writer.rank))

    def look_for_loaders(self, frame: FrameType) -> None:
        """Record whether the loop's data loaders shuffle, how many batches an epoch has, and what this rank gets."""
        with self._problems.contained("data loaders"):
            loaders = loaders_near(frame)
            if loaders:
                self._writer.save_manifest(
                    loaders=[described for _, loader in loaders if (described := describe_loader(loader))]
                )
            if own_world() > 1:
                for loader in training_first(loaders):
                    self._writer.event("loader", self._steps.next, **describe_part(loader))

    def try_before(self, watched: Watched, preflight: Any, loader: Any, on_fault: Any) -> None:
        """Preflight, if it is asked for; raises what ends the run."""
        if preflight is False:
            self.detach_probes()
            return

        from steadyrun.recording.preflight_in_run import arguments, preflight_run

        stop: FaultFound | None = None
        given = arguments(preflight, watched.loss_fn, loader)
        self.detach_probes()
        if given is None:
            return
        with self._problems.contained("preflight", "failed"):
            objects = vars(watched) | {"config": self._config}
            stop = preflight_run(self._writer, objects, given, on_fault, self._steps.next)
        if stop is not None:
            raise stop

    def attach_probes(self, watched: Watched, blocks: Sequence[str] | None, collectives: bool) -> None:
        """Probes on the objects, from the next step on."""
        from steadyrun.probes.watch_setup import begin_watching

        with self._problems.contained("process"):
            self.name_process()
        with self._problems.contained("first step after resume"):
            self._steps.infer_from(watched.optimizer)
        self.watcher = begin_watching(
            self._writer,
            **vars(watched),
            blocks=blocks,
            collectives=collectives,
            config=self._config,
            cadence=Cadence(self._every, self._steps.next),
            problems=self._problems,
            fresh=not (self._steps.begun or self._steps.resumed),
            several=own_world() > 1,
        )
        self.turn = self._steps.next
        if self.watcher is not None:
            self.watcher.attach(self.turn)
            with self._problems.contained("phases of a step"):
                self._time_phases(watched.model)

    def look_for_tokens(self, tokenizer: Any, *, text: bool) -> None:
        """Count learned tokens from the next step on, and keep three examples as `text` if that is wanted."""
        if self.watcher is None or self.learned_tokens is not None:
            return
        from steadyrun.probes.learned_tokens import LearnedTokens
        from steadyrun.probes.token_rows import row_sizes

        save = self._writer.save_manifest_soon
        with self._problems.contained("rows of tokens"):
            sizes = row_sizes(self.watcher.program[0])
            self.learned_tokens = LearnedTokens(
                tokenizer, self._config, lambda facts: save(supervision=facts), text=text, sizes=sizes
            )

    def attach_capture(self, watched: Watched, capture: Any, loader: Any, factory: str | None) -> None:
        """Capture of what the probes are attached to, and the objects for `replay`."""
        if self.watcher is None:
            return
        from steadyrun.recording.capture_setup import begin_capture

        watcher, loss_fn = self.watcher, watched.loss_fn
        self._program = lambda: (*watcher.program, loss_fn)
        if factory is not None:
            self._writer.save_manifest(factory=factory)
        with self._problems.contained("incident capture", "failed"):
            self._flusher.capture = begin_capture(
                self._writer,
                self._problems,
                watcher,
                self._flusher.capture,
                wanted=capture,
                loss_fn=loss_fn,
                tokenizer=watched.tokenizer,
                loader=loader,
                step=self._steps.next,
            )

    def step_begins(self) -> None:
        """The end of a step's record: what follows belongs to the next step."""
        if self._phases is not None:
            self._phases.step_begins()
        if self.clock is not None:
            self.clock.forward_is_seen = self._phases is not None and self._phases.sees_forward
            self.clock.step_begins(self._steps.next)

    def validated(self) -> None:
        """A validation has ended; what follows belongs to training."""
        if self.clock is not None and self._phases is not None:
            self._phases.validation_ended()
            self.clock.mark("data")

    def _time_phases(self, model: Any) -> None:
        """Mark the phases of each step for the clock."""
        from steadyrun.probes.phase_hooks import PhaseHooks

        if self.clock is not None and self.watcher is not None:
            self._phases = PhaseHooks(model, self.clock.mark, compiled=self.watcher.compiled)
            self.clock.busy_counts = all(parameter.device.type == "cpu" for parameter in model.parameters())
            self.clock.forward_is_seen = self._phases.sees_forward
            self._phases.attach()
            self.clock.mark("data")

    def detach_probes(self) -> None:
        if self._phases is not None:
            self._phases.detach()
            self._phases = None
        if self.watcher is not None:
            self.watcher.detach()
            self.watcher = None

    def detach(self) -> None:
        """Take every hook off."""
        if self._flusher.capture is not None:
            self._flusher.capture.unwatch()
        self.detach_probes()

    def incident(self, why: str) -> None:
        """An incident at the last recorded step."""
        if self._flusher.capture is not None:
            self._flusher.capture.open("asked", why, self._steps.last)
            return
        self._writer.event("incident", self._steps.last, cause="asked", why=why, replayable=False)
        say(
            "the incident is recorded, but nothing is captured: give run.watch a loss_fn; if it has one, the "
            "run's not-recorded events name the reason"
        )

    def roll_back(self, before: int | None) -> Rollback:
        """Put the last good checkpoint back; the next step has the number of the seam."""
        from steadyrun.recording.capture_setup import roll_back

        capture = self._flusher.capture
        done = roll_back(self._writer, self._problems, capture, self.watcher, before, self.turn)
        self._steps.next = done.seam
        return done

    def replay(self, path: Path, step: int | None, options: dict[str, Any]) -> Replay | None:
        """Execute an incident with the program's own objects, with nothing attached to them meanwhile."""
        from steadyrun.recording.record import record
        from steadyrun.replay.session import replay_live

        watcher, capture = self.watcher, self._flusher.capture
        if watcher is not None:
            watcher.detach()
        if capture is not None:
            capture.pause()
        try:
            return replay_live(path, self._program, step, record, **options)
        finally:
            if watcher is not None:
                watcher.attach(self.turn)
            if capture is not None and watcher is not None:
                capture.go_on()

    def let_go(self) -> None:
        """The run is closed: what it watched belongs to the program alone. `replay` works while that is there."""
        if self._program is not None:
            references = [_weakly(object_) for object_ in self._program()]
            self._program = lambda: tuple(reference() for reference in references)


def _weakly(referred: Any) -> Callable[[], Any]:
    """A reference that keeps nothing alive, as far as there can be one."""
    if isinstance(referred, list):  # of optimizers
        references = [_weakly(optimizer) for optimizer in referred]
        return lambda: [alive for reference in references if (alive := reference()) is not None]
    if isinstance(referred, FunctionType) and not referred.__closure__:  # a lambda that refers to its module alone
        return lambda: referred
    try:
        return weakref.WeakMethod(referred) if isinstance(referred, MethodType) else weakref.ref(referred)
    except TypeError:  # None, and what knows no weak references
        return lambda: referred
