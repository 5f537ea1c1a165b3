"""What the frames of an exception show of its cause: an id beyond its table, a label beyond the classes."""

from __future__ import annotations

from types import FrameType, TracebackType
from typing import Any

from steadyrun.probes.frames import variables

_EMBEDDING, _LOSSES = "embedding", ("cross_entropy", "nll_loss")


def describe_crash(failure: BaseException) -> dict[str, Any]:
    """Facts for the manifest; empty where the frames show nothing."""
    trace: TracebackType | None = failure.__traceback__
    found: dict[str, Any] = {}
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "torch.nn.functional":
            found = _facts(trace.tb_frame) or found
        trace = trace.tb_next
    return found


def _facts(frame: FrameType) -> dict[str, Any]:
    name, held = frame.f_code.co_name, variables(frame)
    if name == _EMBEDDING:
        return _range(held.get("input"), _rows(held.get("weight")), "token")
    if name in _LOSSES:
        shape = getattr(held.get("input"), "shape", ())
        classes = int(shape[min(1, len(shape) - 1)]) if len(shape) else 0
        return _range(held.get("target"), classes, "label", held.get("ignore_index"))
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
