"""Scalars that a script sends to TensorBoard, W&B, MLflow or an Accelerate tracker: they also join the record.

A tracker is observed once the script has imported it, and never imported by us. Its own function always runs first,
and its result is returned as it is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from steadyrun.scripts.import_watch import when_imported
from steadyrun.scripts.patches import Patches
from steadyrun.scripts.reported_values import Recorder, ReportedValues, values_of

Named = Callable[..., Iterator[tuple[str, object]]]
"""Reads names and numbers off the arguments of a call."""

_DEEPEST = 4  # levels of nested dictionaries


def attach(recorder: Recorder) -> Callable[[], None]:
    """Observe the trackers that the script has imported or will import; the function that is returned ends it."""
    calls = _Calls(recorder, values_of(recorder))
    recorder.on_end.append(calls.settle)
    for module, observe in _TRACKERS.items():
        calls.patches.also(when_imported(module, partial(calls.imported, module, observe)))
    return calls.end


class _Calls:
    """The patched functions of all trackers."""

    def __init__(self, recorder: Recorder, values: ReportedValues) -> None:
        self._recorder, self._values = recorder, values
        self._thread = threading.get_ident()
        self._failed: set[str] = set()
        self.patches = Patches()

    def imported(self, name: str, observe: Callable[[_Calls, ModuleType], None]) -> None:
        """Patch a module that has just been imported; an error of ours must not become its ImportError."""
        try:
            observe(self, sys.modules[name])
        except Exception as problem:
            self._recorder.note(f"{name} is not observed: {type(problem).__name__}: {problem}")

    def observe(self, owner: object, function: str, source: str, arguments: tuple[str, ...], named: Named) -> None:
        """Hand on what `owner.function` is called with; `arguments` are its first ones, by position."""

        def around(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            if threading.get_ident() == self._thread and self._recorder.active:
                self._hand_on(named, source, {**dict(zip(arguments, args, strict=False)), **options})
            return result

        self.patches.put(owner, function, around)

    def _hand_on(self, named: Named, source: str, given: dict[str, Any]) -> None:
        try:
            numbers = {name: number for name, value in named(given) if (number := _number(value)) is not None}
            self._values.take(numbers, self._recorder.step, source, deliberate=True)
        except Exception as problem:
            if source not in self._failed:
                self._failed.add(source)
                self._recorder.note(f"A call of {source} was not recorded: {type(problem).__name__}: {problem}")

    def end(self) -> None:
        """Put everything back."""
        self.patches.remove()
        if self.settle in self._recorder.on_end:
            self._recorder.on_end.remove(self.settle)
        self.settle()

    def settle(self) -> None:
        self._values.settle()


def _number(value: Any) -> float | None:
    """A single number of Python, NumPy or torch; the tracker has waited for it already."""
    if isinstance(value, bool | str) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if getattr(value, "shape", None) is None or not hasattr(value, "item"):
        return None
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", 0)
    return float(value.item()) if size == 1 else None


def _scalar(given: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield str(given["tag"]), given["scalar_value"]


def _scalars(given: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in dict(given["tag_scalar_dict"]).items():
        yield f"{given['main_tag']}/{name}", value


def _metric(given: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield str(given["key"]), given["value"]


def _table(argument: str) -> Named:
    def named(given: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        return _flat(given[argument], "", _DEEPEST)

    return named


def _flat(values: object, front: str, deepest: int) -> Iterator[tuple[str, object]]:
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, Mapping) and deepest:
            yield from _flat(value, f"{front}{name}/", deepest - 1)
        else:
            yield f"{front}{name}", value


def _tensorboard(calls: _Calls, module: ModuleType) -> None:
    writer = module.SummaryWriter
    calls.observe(writer, "add_scalar", "tensorboard", ("self", "tag", "scalar_value"), _scalar)
    calls.observe(writer, "add_scalars", "tensorboard", ("self", "main_tag", "tag_scalar_dict"), _scalars)


def _wandb(calls: _Calls, module: ModuleType) -> None:
    calls.observe(module.Run, "log", "wandb", ("self", "data"), _table("data"))


def _mlflow(calls: _Calls, module: ModuleType) -> None:
    calls.observe(module, "log_metric", "mlflow", ("key", "value"), _metric)
    calls.observe(module, "log_metrics", "mlflow", ("metrics",), _table("metrics"))


def _accelerate(calls: _Calls, module: ModuleType) -> None:
    calls.observe(module.Accelerator, "log", "accelerate", ("self", "values"), _table("values"))


_TRACKERS: dict[str, Callable[[_Calls, ModuleType], None]] = {
    "torch.utils.tensorboard.writer": _tensorboard,
    "tensorboardX.writer": _tensorboard,
    "wandb.sdk.wandb_run": _wandb,
    "mlflow": _mlflow,
    "accelerate.accelerator": _accelerate,
}
