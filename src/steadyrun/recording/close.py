"""How an attempt ends, and what is kept of it when the run is resumed."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from steadyrun.errors import FaultFound
from steadyrun.program.frames import raised_through, variables
from steadyrun.store.layout import read_manifest
from steadyrun.store.writer import RunWriter

# What the frames of an exception show of its cause: an id beyond its table, a label beyond the classes.


_EMBEDDING, _LOSSES = "embedding", ("cross_entropy", "nll_loss")


def describe_crash(failure: BaseException) -> dict[str, Any]:
    """Facts for the manifest; empty where the frames show nothing."""
    facts: dict[str, Any] = {}
    for frame in raised_through(failure):
        if frame.f_globals.get("__name__") == "torch.nn.functional":
            facts = _facts(frame) or facts
    return facts


def _facts(frame: FrameType) -> dict[str, Any]:
    name, arguments = frame.f_code.co_name, variables(frame)
    if name == _EMBEDDING:
        return _range(arguments.get("input"), _rows(arguments.get("weight")), "token")
    if name in _LOSSES:
        shape = getattr(arguments.get("input"), "shape", ())
        classes = int(shape[min(1, len(shape) - 1)]) if len(shape) else 0
        return _range(arguments.get("target"), classes, "label", arguments.get("ignore_index"))
    return {}


def _rows(weight: Any) -> int:
    return int(weight.shape[0]) if hasattr(weight, "shape") and len(weight.shape) else 0


def _range(values: Any, size: int, what: str, ignored: Any = None) -> dict[str, Any]:
    """The smallest and largest id; on a device that has just failed nothing can be read."""
    if not size or not hasattr(values, "device") or values.device.type != "cpu" or values.is_floating_point():
        return {}
    kept = values[values != ignored] if isinstance(ignored, int) else values
    if not kept.numel():
        return {}
    low, high = int(kept.min()), int(kept.max())
    return {"what": what, "smallest": low, "largest": high, "size": size} if low < 0 or high >= size else {}


_KEPT = ("attempt", "state", "ended", "last_step", "failure", "config", "process", "versions", "git", "command_line")
_MOST_FRAMES = 12


def finish(writer: RunWriter, last_step: int, failure: BaseException | None, conclude: Callable[[], None]) -> None:
    """Write the end state, draw the conclusions, then close the files and compact them."""
    writer.flush()
    state = _state(failure)
    summary = None if state == "finished" or failure is None else _summary(failure)
    if state == "stopped" and summary is not None:
        writer.event("stopped", last_step, why=summary["message"])
    elif summary is not None and failure is not None:
        if _is_out_of_memory(failure):
            writer.event("out-of-memory", last_step, why=summary["message"])
        writer.event("crash", last_step, why=f"{summary['type']}: {summary['message']}")
    if summary is not None and failure is not None:
        with suppress(Exception):
            summary |= {"shown": describe_crash(failure)}
    writer.save_manifest(state=state, ended=time.time(), last_step=last_step, failure=summary)
    conclude()
    writer.close()


def earlier_attempts(root: Path) -> list[dict[str, Any]]:
    """What the manifest says of the attempts before this one."""
    manifest = read_manifest(root)
    last = {key: manifest[key] for key in _KEPT if key in manifest}
    if last.get("state") == "running":
        last["state"] = "killed"
    before = manifest.get("earlier_attempts")
    return [*(before if isinstance(before, list) else []), last]


def kept_of_the_beginning(root: Path) -> dict[str, Any]:
    """What the manifest says of how the run began, and a later attempt cannot see any more."""
    manifest = read_manifest(root)
    return {key: manifest[key] for key in ("initial_weights", "preflight") if key in manifest}


def is_crash(failure: BaseException) -> bool:
    """Whether something went wrong, rather than that someone wanted to end."""
    return isinstance(failure, Exception) and not isinstance(failure, FaultFound)


def _state(failure: BaseException | None) -> str:
    if isinstance(failure, FaultFound):
        return "stopped"
    return "finished" if failure is None or _is_clean_exit(failure) else "crashed"


def _is_clean_exit(failure: BaseException) -> bool:
    return isinstance(failure, SystemExit) and failure.code in (None, 0)


def _is_out_of_memory(failure: BaseException) -> bool:
    return isinstance(failure, MemoryError) or type(failure).__name__ == "OutOfMemoryError"


def _without_words(failure: BaseException) -> str:
    return "stopped by the user" if isinstance(failure, KeyboardInterrupt) else ""


def _summary(failure: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(failure.__traceback__)[-_MOST_FRAMES:]
    return {
        "type": type(failure).__name__,
        "message": (str(failure).splitlines() or [_without_words(failure)])[0][:500],
        "traceback": [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames],
    }
