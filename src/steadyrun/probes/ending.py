"""How an attempt ends, and what is kept of it when the run is resumed."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadyrun.errors import FaultFound
from steadyrun.probes.crashes import describe_crash
from steadyrun.store.manifest import read_manifest
from steadyrun.store.writer import RunWriter

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
