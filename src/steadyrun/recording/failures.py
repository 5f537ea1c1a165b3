"""The failure that ended one process of several: its own, or that another one did not answer."""

from __future__ import annotations

import re
import traceback
from typing import Any

TIMEOUT, CONNECTION, MEMORY, NCCL, OTHER = "timeout", "connection", "out-of-memory", "nccl", "other"

_MEMORY_TYPES = {"OutOfMemoryError", "MemoryError"}
_MEMORY_TEXT = re.compile(r"out of memory|can't allocate memory|ALLOC_FAILED", re.IGNORECASE)
_TIMEOUT_TEXT = re.compile(
    r"timed out waiting|collective operation timeout|wait timeout|socket timeout|timed out after \d+|"
    r"timed out in|watchdog caught",
    re.IGNORECASE,
)
_CONNECTION_TEXT = re.compile(
    r"connection (closed|reset|refused|was)|broken pipe|remote process exited|ncclRemoteError|"
    r"failed to (connect|recv|send)",
    re.IGNORECASE,
)
_NCCL_TEXT = re.compile(r"\bnccl", re.IGNORECASE)
_OF_PROCESSES = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"}
_FROM_PEERS = re.compile(r"gloo|nccl|ProcessGroup|TCPStore|c10d|DistStore", re.IGNORECASE)
_OPERATION = re.compile(r"OpType=(\w+)")
_FILES = ("distributed_c10d.py", "_functional_collectives.py")
_LONGEST = 500


def describe_failure(failure: BaseException, phase: str | None) -> dict[str, Any]:
    """Cause, operation and message of the exception that ended a process; `phase` is that of the step under way."""
    text = str(failure)
    message = next((line for line in text.splitlines() if line.strip()), type(failure).__name__)
    return {
        "cause": _cause(failure, text),
        "operation": _operation(failure, text) or phase,
        "type": type(failure).__name__,
        "message": message[:_LONGEST],
    }


def _cause(failure: BaseException, text: str) -> str:
    name = type(failure).__name__
    if name in _MEMORY_TYPES or (isinstance(failure, RuntimeError) and _MEMORY_TEXT.search(text)):
        return MEMORY
    if name not in _OF_PROCESSES and not (isinstance(failure, RuntimeError) and _FROM_PEERS.search(text)):
        return OTHER
    if _TIMEOUT_TEXT.search(text):
        return TIMEOUT
    if _CONNECTION_TEXT.search(text):
        return CONNECTION
    return NCCL if _NCCL_TEXT.search(text) else OTHER


def _operation(failure: BaseException, text: str) -> str | None:
    """The collective that failed: named by NCCL, or the innermost call of torch.distributed."""
    if named := _OPERATION.search(text):
        return named[1]
    frames = traceback.extract_tb(failure.__traceback__)
    calls = [frame.name for frame in frames if frame.filename.endswith(_FILES) and frame.name != "wrapper"]
    return calls[-1] if calls else None
