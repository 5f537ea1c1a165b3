"""Everything that is attached to torch while a script runs, and taken off again at its end.

Each hook passes what it sees to a `TrainingEvents`. An error of ours ends here: it is reported once, and the hooks go
silent. In a forked child process they do nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from steadyrun.probes import backward_hook
from steadyrun.program.torch_compat import (
    COMPILE,
    COMPILE_MODULE,
    NEXT_BATCH,
    OPTIMIZER_INIT,
    SAVE,
    SCALER_STEP,
    ForwardPreHook,
    Wrapping,
    joining,
    something_was_compiled,
)


class TrainingEvents(Protocol):
    """What the hooks report."""

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None: ...
    def wants(self, module: nn.Module) -> bool: ...
    def forward_begins(self, module: nn.Module) -> None: ...
    def inputs_seen(self, module: nn.Module, args: tuple[Any, ...]) -> bool: ...
    def backward_begins(self, root: Tensor | None) -> None: ...
    def step_begins(self, optimizer: torch.optim.Optimizer) -> None: ...
    def step_ended(self, optimizer: torch.optim.Optimizer) -> None: ...
    def step_asked(self, optimizer: torch.optim.Optimizer, stepped: bool) -> None: ...
    def batch_fetched(self, batch: Any) -> None: ...
    def saved(self, path: Any) -> None: ...


class TorchHooks:
    """Attached once torch is there; `search` and `inputs` are put on and off as the events need them."""

    def __init__(self, events: TrainingEvents, failed: Callable[[Exception], None]) -> None:
        self._events, self._failed = events, failed
        self._pid = os.getpid()
        self._on = False
        self._search_allowed = True
        self._search = ForwardPreHook(self._searched)
        self._inputs = ForwardPreHook(self._entered)
        self._wrappings: list[Wrapping] = []
        self._handles: list[RemovableHandle] = []
        self._stepped = False  # an optimizer, inside of the loss scaler's step

    def attach(self) -> None:
        """Begin to listen; the forward search starts with the first optimizer."""
        self._on = True
        self._wrappings = [
            point.wrap(around)
            for point, around in (
                (OPTIMIZER_INIT, self._optimizer_made),
                (SCALER_STEP, self._scaler_step),
                (NEXT_BATCH, self._next_batch),
                (SAVE, self._save),
                (COMPILE, self._compile),
                (COMPILE_MODULE, self._compile),
            )
            if point.exists
        ]
        backward_hook.observe(self._backward)
        self.come_last()

    def come_last(self) -> None:
        """Let the optimizer hooks run after those of the probes, which were attached since. Not inside a step."""
        for handle in self._handles:
            handle.remove()
        self._handles = [
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ended),
        ]

    def detach(self) -> None:
        """Take everything off; torch is as it was."""
        self._on = False
        self._search.take_off()
        self._inputs.take_off()
        backward_hook.forget(self._backward)
        for wrapping in reversed(self._wrappings):
            wrapping.remove()
        for handle in self._handles:
            handle.remove()
        self._wrappings, self._handles = [], []

    def search(self, on: bool) -> None:
        """Look at forward passes for the model that is trained; each module's call costs a microsecond meanwhile."""
        if on and self._on and self._search_allowed:
            self._search.put_on()
        elif not on:
            self._search.take_off()

    def look_at_inputs(self) -> None:
        """See what the next training forward pass is given."""
        if self._on and self._search_allowed and not something_was_compiled():
            self._inputs.put_on()

    # -- hooks --------------------------------------------------------------------------------------

    def _tell(self, event: Callable[..., Any], *arguments: Any) -> Any:
        if not self._on or os.getpid() != self._pid:
            return None
        try:
            return event(*arguments)
        except Exception as problem:
            self._on = False
            self._failed(problem)
            return None

    def _optimizer_made(self, call: Callable[..., Any], optimizer: Any, *args: Any, **options: Any) -> Any:
        made = call(optimizer, *args, **options)
        self._tell(self._events.optimizer_made, optimizer)
        return made

    def _searched(self, module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling() and self._tell(self._events.wants, module):
            with joining(module, args):
                self._tell(self._events.forward_begins, module)

    def _entered(self, module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling() and self._tell(self._events.inputs_seen, module, args):
            self._inputs.take_off()

    def _backward(self, root: Tensor | None) -> None:
        self._tell(self._events.backward_begins, root)

    def _step_begins(self, optimizer: Any, _args: Any, _options: Any) -> None:
        if not torch.compiler.is_compiling():
            self._tell(self._events.step_begins, optimizer)

    def _step_ended(self, optimizer: Any, _args: Any, _options: Any) -> None:
        if not torch.compiler.is_compiling():
            self._stepped = True
            self._tell(self._events.step_ended, optimizer)

    def _scaler_step(self, call: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        """A loss scaler that skips a step calls no hook of the optimizer."""
        self._stepped = False
        result = call(scaler, optimizer, *args, **options)
        self._tell(self._events.step_asked, optimizer, self._stepped)
        return result

    def _next_batch(self, call: Callable[..., Any], iterator: Any) -> Any:
        batch = call(iterator)
        self._tell(self._events.batch_fetched, batch)
        return batch

    def _save(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = call(*args, **options)
        path = options.get("f", args[1] if len(args) > 1 else None)
        if isinstance(path, str | os.PathLike):
            self._tell(self._events.saved, path)
        return result

    def _compile(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """A global hook would be traced into a compiled function, and makes a compiled module warn."""
        self._no_forward_hooks()
        return call(*args, **options)

    def _no_forward_hooks(self) -> None:
        with suppress(Exception):
            self._search_allowed = False
            self._search.take_off()
            self._inputs.take_off()
