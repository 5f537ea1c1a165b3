"""The bench on which probes run a training program: its objects, its batches, and what one pass shows.

A probe may change the objects: the bench restores them afterwards, bit for bit.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.errors import SteadyrunError, UsageError
from steadyrun.preflight.forward_pass import Edit, ModelCall, Pass, Quiet, calls_of
from steadyrun.preflight.guarded_pass import GuardedPass, OutOfRange, first_guarded_passes, guarded_pass_at, surviving
from steadyrun.preflight.input_edits import moved, size_of
from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.probes.loss_graph import LossGraph, counting, is_mean, read
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.program.program_state import ProgramState, untouched
from steadyrun.program.random_state import put
from steadyrun.program.task import Task
from steadyrun.program.torch_compat import GRAD
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable

# Calls of the program's own functions: what they raise, return and do inside.


@contextmanager
def their_code(name: str) -> Iterator[None]:
    """Turn an exception of the program's own functions into a missing signal: it is not an error of the probe."""
    try:
        yield
    except (SteadyrunError, MissingSignal, NotApplicable, OutOfRange):
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        why = f"{name} raised {type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})"
        raise MissingSignal(name, why, f"make {name} run on the batches that preflight gets") from problem


@contextmanager
def noting_inner_gradients(memo: dict[Any, Any]) -> Iterator[None]:
    """Record in `memo` whether the model or the loss differentiates (a penalty, a force) and so needs gradients."""

    def noted(call: Any, *args: Any, **options: Any) -> Any:
        memo["needs gradients"] = True
        return call(*args, **options)

    with GRAD.wrapped(noted):
        yield


def number_of(returned: Any) -> float:
    """The loss that a step returns: a number, a tensor, the first of several; NaN if it returns none."""
    if isinstance(returned, Mapping):
        returned = returned.get("loss", next(iter(returned.values()), None))
    elif isinstance(returned, list | tuple):
        returned = next(iter(returned), None)
    if isinstance(returned, Tensor):
        return float(returned.detach().float().mean()) if returned.numel() else float("nan")
    return float(returned) if isinstance(returned, int | float) else float("nan")


class Bench:
    """The live objects that a probe's `find` reads, as a question reads a run's signals."""

    def __init__(
        self,
        task: Task,
        batches: list[Any],
        *,
        val_batches: list[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        deep: bool = False,
        resumed: Any = None,
    ) -> None:
        self.task = task
        self.model: nn.Module = unwrapped(task.model)
        self.batches = batches
        self.val_batches = val_batches or []
        self.config: Mapping[str, Any] = config or {}
        self.deep = deep
        self.resumed = resumed  # a `RunView` of the resumed run
        self.passes = 0  # number of forward passes so far
        self.memo: dict[Any, Any] = {}
        self.broken: set[int] = set()  # indices of batches that cannot run
        self.device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self.start = ProgramState(task)

    # -- facts ------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by clean name, a tied one once."""
        return {clean(name): parameter for name, parameter in self.model.named_parameters()}

    @property
    def optimized(self) -> list[Tensor]:
        """Every tensor of the optimizers, as often as they list it."""
        return [
            parameter
            for optimizer in self.task.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def declared(self, name: str) -> float | None:
        """A number of the config; None if it is not declared."""
        return number(self.config.get(name))

    def token(self, name: str) -> int | None:
        """`pad_id` or `eos_id`: declared, or the tokenizer's own."""
        declared = self.declared(name)
        if declared is None:
            token_id = getattr(self.task.tokenizer, f"{name.removesuffix('_id')}_token_id", None)
            return token_id if isinstance(token_id, int) else None
        return int(declared)

    def batch(self, index: int = 0) -> Any:
        """One of the batches that can run; raises `MissingSignal` if there are too few."""
        usable = [batch for position, batch in enumerate(self.batches) if position not in self.broken]
        if index >= len(usable):
            need = "a batch that can run" if index == 0 else f"{index + 1} batches"
            raise MissingSignal("batches", f"the probe needs {need}", "give preflight more batches")
        batch = usable[index]
        micro = self.accumulation > 1 and is_list_of_batches(batch) and len(batch) == self.accumulation
        return batch[0] if micro else batch

    @property
    def accumulation(self) -> int:
        """The declared number of micro-batches of a step."""
        return max(1, int(self.declared("accumulation") or 1))

    def micro_batches(self, index: int = 0) -> list[Any]:
        """The batches of one accumulated step: those in a list of micro-batches, or as many as are declared."""
        batch, count = self.batches[index % len(self.batches)] if self.batches else self.batch(), self.accumulation
        if count > 1 and is_list_of_batches(batch) and len(batch) == count:
            return list(batch)
        return [self.batches[(index * count + offset) % len(self.batches)] for offset in range(count)]

    @property
    def train_step(self) -> Callable[[Task, Any], Any]:
        """The program's own step; raises `MissingSignal` without one."""
        if self.task.train_step is None:
            how = "give the task a train_step(task, batch): one whole optimizer step as the program writes it"
            raise MissingSignal("train_step", "the task has no train_step", how)
        return self.task.train_step

    # -- actions ----------------------------------------------------------------------------------

    @contextmanager
    def pristine(self) -> Iterator[None]:
        """Restore the program after the body, including the state of random generators."""
        with untouched(self.task):
            yield

    def reseed(self) -> None:
        """Restore the random generators to their first state, so that two passes draw the same."""
        put(self.start.random)

    def modes(self, training: bool) -> None:
        """Set every module to training or evaluation mode; `pristine` undoes it."""
        self.model.train(training)

    def loss(self, batch: Any) -> Tensor:
        """The loss of a batch, as the program computes it."""
        self.passes += 1
        with self.their_code("loss_fn"), surviving(self):
            loss = self.task.loss_fn(self.task.model, batch)
        if isinstance(loss, Tensor) and loss.numel() == 1:
            return loss
        raise UsageError(f"loss_fn must return a scalar tensor, not {_shown(loss)}")

    def observe(self, batch: Any, *, edit: Edit | None = None, backward: bool = False) -> Pass:
        """One observed pass: the model's calls, the graph of the loss, and gradients if `backward`.

        `edit` changes the inputs of the model's first call. Gradients are cleared before.
        """
        with self.calls(edit) as calls, torch.enable_grad():
            loss = self.loss(batch)
        graph = read(loss) if loss.requires_grad else LossGraph()
        gradients: dict[str, Tensor] = {}
        if backward:
            for parameter in self.parameters.values():
                parameter.grad = None
            if loss.requires_grad:
                with self.their_code("loss.backward"):
                    graph = self._backward(loss, graph)
            gradients = {
                name: parameter.grad for name, parameter in self.parameters.items() if parameter.grad is not None
            }
        return Pass(float(loss.detach()), graph, calls, gradients)

    def _backward(self, loss: Tensor, graph: LossGraph) -> LossGraph:
        """Differentiate, and mark targets without a gradient as ignored, whatever masks them."""
        counted = counting(loss)
        with self.their_code("loss.backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        labels = [counts.masked(targets) for counts, targets in zip(counted, graph.labels, strict=False)]
        plain = graph.plain or (bool(labels) and is_mean(float(loss.detach()), counted))
        return dataclasses.replace(graph, labels=labels, plain=plain)

    @contextmanager
    def calls(self, edit: Edit | None = None) -> Iterator[list[ModelCall]]:
        """The calls of the model within the body; `edit` changes the inputs of the first."""
        with calls_of(self.model, edit) as calls:
            yield calls

    def first_pass(self) -> Pass:
        """The first batch, forward and backward, in training mode with the first random state; computed once."""
        if "first pass" not in self.memo:
            self.guarded_passes()
            with self.pristine(), noting_inner_gradients(self.memo):
                self.reseed()
                self.modes(True)
                observed = self.observe(self.batch(), backward=True)
                gradients = {name: gradient.detach().clone() for name, gradient in observed.gradients.items()}
                self.memo["first pass"] = Pass(observed.loss, observed.graph, observed.calls, gradients)
        made: Pass = self.memo["first pass"]
        return made

    def guarded_pass(self, index: int) -> GuardedPass:
        """The lookups and targets of a batch, checked before use; a batch that cannot run is left out."""
        return guarded_pass_at(self, index)

    def guarded_passes(self) -> list[GuardedPass]:
        """The first batches up to one that can run."""
        return first_guarded_passes(self)

    def without_gradients(self) -> AbstractContextManager[Any]:
        """`no_grad`, unless the program needs gradients for its forward pass."""
        self.first_pass()
        return torch.enable_grad() if "needs gradients" in self.memo else torch.no_grad()

    def quiet_scores(self, batch: Any, edit: Edit | None = None, *, draw: int = 0) -> Tensor:
        """The model's scores of a batch in evaluation mode, without gradients; `edit` changes its inputs.

        `draw` selects other random numbers than those of the start.
        """
        with self.pristine(), self.without_gradients(), self.calls(edit) as calls:
            self.reseed()
            if draw:
                torch.manual_seed(draw)
            self.modes(False)
            self.loss(batch)
        if not calls or calls[0].scores is None:
            raise MissingSignal(
                "the model's call",
                "loss_fn does not call the model, or the model returns no float tensor",
                "let loss_fn(model, batch) call model(…)",
            )
        return calls[0].scores.detach()

    def quiet(self) -> Quiet:
        """The scores of the first batch in evaluation mode, and how much two passes differ; computed once."""
        if "quiet" not in self.memo:
            scores, again = self.quiet_scores(self.batch()), self.quiet_scores(self.batch())
            noise = float(moved(scores, again).max()) if scores.shape == again.shape else float("inf")
            self.memo["quiet"] = Quiet(scores, noise, size_of(scores))
        made: Quiet = self.memo["quiet"]
        return made

    def plain_step(self, batch: Any, clip: float | None = None) -> float:
        """One ordinary step (zero_grad, loss, backward, clip, optimizer) for probes that need no train_step.

        `clip` replaces the declared threshold.
        """
        for optimizer in self.task.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        with self.their_code("loss.backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        clip = self.declared("clip") if clip is None else clip
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        with self.their_code("optimizer.step"):
            for optimizer in self.task.optimizers:
                optimizer.step()
        return float(loss.detach())

    def own_step(self, batch: Any) -> float:
        """The program's own step, or an ordinary one without train_step."""
        if self.task.train_step is None:
            return self.plain_step(batch)
        self.passes += len(batch) if is_list_of_batches(batch) and len(batch) == self.accumulation else 1
        with self.their_code("train_step"), surviving(self):
            return number_of(self.task.train_step(self.task, batch))

    @contextmanager
    def their_code(self, name: str) -> Iterator[None]:
        """Turn an exception of the program's own functions into a missing signal."""
        with their_code(name):
            yield


def _shown(loss: Any) -> str:
    return f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
