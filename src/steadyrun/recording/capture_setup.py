"""The start of capture: `run.watch` with a loss function keeps what replay needs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from steadyrun.errors import UsageError
from steadyrun.probes.problems import Problems, say
from steadyrun.recording.process import own_world
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from steadyrun.capture.capture import Capture
    from steadyrun.capture.checkpoints import Rollback
    from steadyrun.capture.process_part import ProcessPart
    from steadyrun.probes.probe_set import Watcher


def check_options(on_fault: Any, monitor: bool, factory: Any, capture: Any, on_suspect: Any = None) -> None:
    """A clear error for what `run.watch` was given besides the objects, before training starts."""
    from steadyrun.capture.capture_options import settings_from

    for name, act in (("on_fault", on_fault), ("on_suspect", on_suspect)):
        if not (act is None or act == "stop" or callable(act)):
            raise UsageError(f'{name} must be a function or "stop", not {act!r}')
        if act is not None and not monitor:
            raise UsageError(f"{name} needs the monitor: leave out monitor=False")
    if factory is not None and not (isinstance(factory, str) and ":" in factory):
        raise UsageError(f"factory must name a function as 'module:function', not {factory!r}")
    settings_from(capture)


def begin_capture(
    writer: RunWriter,
    problems: Problems,
    watcher: Watcher,
    earlier: Capture | None,
    *,
    wanted: Any,
    loss_fn: Any,
    tokenizer: Any | None,
    loader: Any | None,
    step: int,
) -> Capture | None:
    """The capture that follows these objects; None, and an event with the reason, if there cannot be any."""
    from steadyrun.capture.capture import Capture
    from steadyrun.capture.capture_options import settings_from
    from steadyrun.program.snapshot import Objects

    settings = settings_from(wanted)
    if settings is None or loss_fn is None:
        return None
    if (why := _why_not(watcher)) is not None:
        problems.unavailable("incident capture", why)
        return None
    capture = earlier or Capture(writer, problems, settings, loss_fn, tokenizer, _part(writer, watcher))
    capture.watch(lambda: Objects(*watcher.program, loader), step, compiled=watcher.compiled)
    if earlier is None:
        _hear_of_memory(capture)
    return capture


def roll_back(
    writer: RunWriter,
    problems: Problems,
    capture: Capture | None,
    watcher: Watcher | None,
    before: int | None,
    turn: int,
) -> Rollback:
    """Restore the last good checkpoint and record it in the events."""
    if problems.failed("incident capture"):
        raise UsageError(
            "run.rollback: incident capture has failed, so no checkpoint can be restored; the run's probe-failed event "
            "names the error"
        )
    if own_world() > 1:
        raise UsageError(
            "run.rollback works in one process: with several, each would go back to a checkpoint of its own. Load the "
            "checkpoint that your program saved on every rank"
        )
    if capture is None or watcher is None:
        raise UsageError(
            "run.rollback goes back to the checkpoints of incident capture, and there is none: call "
            "run.watch(model, optimizer, loss_fn=…) before training (and not capture=False)"
        )
    done = capture.roll_back(before)
    watcher.forget(turn)
    why = f"back to the state before step {done.to}; {done.skipped} batches are skipped, and step {done.seam} is next"
    writer.event("rollback", done.seam, from_step=done.last, to_step=done.to, skipped_batches=done.skipped, why=why)
    say(f"rollback at step {done.last}: {why}")
    return done


def _why_not(watcher: Watcher) -> str | None:
    from steadyrun.program.tensor_files import require_safetensors

    if not watcher.program[1]:
        return "no optimizer is watched, so a step cannot be executed again"
    if (sharded := _sharded(watcher)) is not None:
        return f"{sharded}: each rank holds only a part, and a single process cannot re-run a step"
    try:
        require_safetensors()
    except ValueError as problem:
        return str(problem)
    return None


def _sharded(watcher: Watcher) -> str | None:
    """What is split over the ranks, in words; None if every rank holds the whole model and optimizer."""
    model, optimizers = watcher.program[:2]
    kinds = {type(module).__name__ for module in model.modules()}
    if (
        any(hasattr(parameter, "full_tensor") for parameter in model.parameters())
        or "FullyShardedDataParallel" in kinds
    ):
        return "the parameters are sharded over the ranks (FSDP or tensor parallel)"
    if any(type(optimizer).__name__ == "ZeroRedundancyOptimizer" for optimizer in optimizers):
        return "the optimizer's state is sharded over the ranks"
    return None


def _part(writer: RunWriter, watcher: Watcher) -> ProcessPart:
    from steadyrun.capture.process_part import ProcessPart

    return ProcessPart(writer.rank, own_world(), lambda: is_averaged(watcher))


def is_averaged(watcher: Watcher) -> bool:
    """Whether DistributedDataParallel averages the gradients; asked late, since it may wrap the model after `watch`."""
    from steadyrun.probes.rank_structure import find_structure

    model = watcher.program[0]
    parameters = list(model.parameters())
    structure = find_structure(model, parameters)
    return structure.kind == "ddp" and all(len(ranks.replicas) == own_world() for ranks in structure.classes.values())


def _hear_of_memory(capture: Capture) -> None:
    from steadyrun.probes.system import on_out_of_memory

    alive = weakref.ref(capture)

    def report(facts: dict[str, Any]) -> None:
        if (target := alive()) is not None:
            target.ran_out_of_memory(f"the CUDA allocator could not serve {facts['asked_mib']:.0f} MiB")

    on_out_of_memory(report)
