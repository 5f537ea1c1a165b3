"""Add our callback to a framework's own loop, if the script uses such a framework.

Nothing is imported that the script does not import. A script that adds our callback, or calls `steadyrun.record`, is
left alone: then that records, and the recorder of `steadyrun run` goes silent.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from steadyrun.recording import record as recording
from steadyrun.scripts.import_watch import when_imported
from steadyrun.scripts.patches import Patches


class FrameworkRecorder(Protocol):
    """The part of a recorder that steps back for a framework."""

    path: Path
    config: Mapping[str, Any]

    def note(self, text: str) -> None:
        """Record one line about the recording itself."""

    def take_over(self, by: str) -> None:
        """Go silent: something else records this training."""


def attach(recorder: FrameworkRecorder) -> Callable[[], None]:
    """Wait for the frameworks that we know and for `steadyrun.record`; the function that is returned ends it."""
    patches = Patches()
    patches.put(recording, "record", partial(_own_record, recorder))
    for name, add in _FRAMEWORKS.items():
        patches.also(when_imported(name, partial(_imported, recorder, patches, name, add)))
    return patches.remove


def _imported(recorder: FrameworkRecorder, patches: Patches, name: str, add: _Add) -> None:
    """Patch a framework that has just been imported; an error of ours must not become its ImportError."""
    try:
        add(recorder, patches, sys.modules[name])
    except Exception as problem:
        recorder.note(f"{name} is not observed: {type(problem).__name__}: {problem}")


def _own_record(recorder: FrameworkRecorder, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The script, or a callback of ours, records this training."""
    run = original(*args, **options)
    recorder.take_over("steadyrun.record")
    return run


def _prepared(recorder: FrameworkRecorder, by: str, prepare: Callable[[], None]) -> None:
    """Do what is ours before a framework's call; if it fails, the framework goes on and the recorder stays."""
    try:
        prepare()
    except Exception as problem:
        recorder.note(f"The callback for {by} could not be added: {type(problem).__name__}: {problem}")


class _Callbacks:
    """The argument `callbacks` of a call, by position or by name; a call that is wrong fails as it would without us."""

    def __init__(self, index: int, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.args, self.options, self._index = args, options, index

    @property
    def value(self) -> Any:
        return self.args[self._index] if len(self.args) > self._index else self.options.get("callbacks")

    def replace(self, callbacks: list[Any]) -> None:
        if len(self.args) > self._index:
            self.args = (*self.args[: self._index], callbacks, *self.args[self._index + 1 :])
        else:
            self.options = {**self.options, "callbacks": callbacks}


# Hugging Face: the callback is an argument of the Trainer, which learns of it before anything is prepared.


def _transformers(recorder: FrameworkRecorder, patches: Patches, module: ModuleType) -> None:
    index = list(inspect.signature(module.Trainer.__init__).parameters).index("callbacks")

    def init(original: Callable[..., None], *args: Any, **options: Any) -> None:
        given = _Callbacks(index, args, options)
        _prepared(recorder, "transformers", lambda: _give_to_trainer(recorder, given))
        original(*given.args, **given.options)

    patches.put(module.Trainer, "__init__", init)


def _give_to_trainer(recorder: FrameworkRecorder, given: _Callbacks) -> None:
    from steadyrun.integrations.transformers import SteadyrunCallback

    class AddedCallback(SteadyrunCallback):
        """Ours, unless the script adds another of ours before it trains."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            from steadyrun.integrations.trainer import trainer_of

            handler = getattr(trainer_of(self), "callback_handler", None)
            if any(
                isinstance(each, SteadyrunCallback) and each is not self for each in getattr(handler, "callbacks", ())
            ):
                return
            recorder.take_over("transformers")
            super().on_train_begin(args, state, control, **kwargs)

    callbacks = list(given.value or [])
    if not any(_is_ours(each, SteadyrunCallback) for each in callbacks):
        given.replace([*callbacks, AddedCallback(recorder.path, config=recorder.config)])


def _is_ours(callback: object, kind: type) -> bool:
    """An object of a kind, or the kind itself: Hugging Face takes both."""
    return isinstance(callback, kind) or (isinstance(callback, type) and issubclass(callback, kind))


# Lightning, under both of its names: the callback is there while `fit` runs.


def _lightning(recorder: FrameworkRecorder, patches: Patches, module: ModuleType) -> None:
    def fit(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
        added: list[Any] = []
        _prepared(recorder, "lightning", lambda: added.extend(_give_to_fit(recorder, trainer)))
        try:
            return original(trainer, *args, **options)
        finally:
            trainer.callbacks[:] = [each for each in trainer.callbacks if each not in added]

    patches.put(module.Trainer, "fit", fit)


def _give_to_fit(recorder: FrameworkRecorder, trainer: Any) -> list[Any]:
    from steadyrun.integrations.lightning import SteadyrunCallback

    class AddedCallback(SteadyrunCallback):
        """Ours, without a trace in the script's checkpoints."""

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, object]) -> None:
            super().on_save_checkpoint(trainer, module, dict(checkpoint))

    recorder.take_over("lightning")
    if any(isinstance(each, SteadyrunCallback) for each in trainer.callbacks):
        return []
    callback = AddedCallback(recorder.path, config=recorder.config)
    trainer.callbacks.insert(0, callback)  # checkpoint callbacks stay the last
    return [callback]


# Keras: the callback is an argument of `fit`.


def _keras(recorder: FrameworkRecorder, patches: Patches, module: ModuleType) -> None:
    index = list(inspect.signature(module.Model.fit).parameters).index("callbacks")

    def fit(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        given = _Callbacks(index, args, options)
        _prepared(recorder, "keras", lambda: _give_to_model(recorder, given))
        return original(*given.args, **given.options)

    patches.put(module.Model, "fit", fit)


def _give_to_model(recorder: FrameworkRecorder, given: _Callbacks) -> None:
    from steadyrun.integrations.keras import SteadyrunCallback

    callbacks = given.value
    whole = hasattr(callbacks, "append") and hasattr(callbacks, "callbacks")  # a CallbackList of Keras
    there = callbacks.callbacks if whole else _as_list(callbacks)
    if not any(isinstance(each, SteadyrunCallback) for each in there):
        callback = SteadyrunCallback(recorder.path, config=recorder.config)
        if whole:
            callbacks.append(callback)
        else:
            given.replace([*there, callback])
    recorder.take_over("keras")


def _as_list(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]


_Add = Callable[[FrameworkRecorder, Patches, ModuleType], None]
_FRAMEWORKS: dict[str, _Add] = {
    "transformers.trainer": _transformers,
    "lightning.pytorch.trainer.trainer": _lightning,
    "pytorch_lightning.trainer.trainer": _lightning,
    "keras.src.models.model": _keras,
}
"""The module in which each framework defines what is patched. A loop under Accelerate is the script's own."""
