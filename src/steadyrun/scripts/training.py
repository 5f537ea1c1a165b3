"""Follows the training of a script: finds what is trained, and turns optimizer steps into recorded steps."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.probes.loss_scale import ScalerView
from steadyrun.probes.optimizer_steps import is_part, is_wrapper
from steadyrun.probes.scalars import scalar
from steadyrun.scripts import discovery
from steadyrun.scripts.discovery import TrainedObjects, owned
from steadyrun.scripts.given_batch import given_batch
from steadyrun.scripts.optimizer_turns import OptimizerTurns
from steadyrun.scripts.recorder import ScriptRecorder
from steadyrun.scripts.step_losses import StepLosses
from steadyrun.scripts.torch_hooks import TorchHooks

Optimizer = torch.optim.Optimizer

_MOST_UNKNOWN = 20  # optimizers that wait for a backward pass to be watched
_EARLY = 10  # steps in which an optimizer that steps first is a part of the training
_LAZY = 2  # steps, before which an optimizer that is made later than another belongs to the same training
_STEPS_ALONE = 3  # steps of an unknown optimizer alone, after which it trains something else
_MOST_REBUILT = 3  # times that an optimizer is replaced, after which the probes follow it alone


class TrainingFollower:
    """Receives what the hooks see. One training at a time: a new optimizer on other parameters begins the next run."""

    def __init__(self, recorder: ScriptRecorder) -> None:
        self._recorder = recorder
        self.hooks = TorchHooks(self, recorder.failed)
        self._made: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()  # and in which order
        self._count = 0
        self._retired: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # of a training that is over
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._objects: TrainedObjects | None = None
        self._members: set[int] = set()
        self._waiting: set[int] | None = None  # ids of parameters that are trained and not watched; None: to be found
        self._used: set[int] = set()  # of them, those whose module ran without gradients: a generator, before its turn
        self._unknown: list[Optimizer] = []  # stepped, and not watched yet
        self._early_root: Any = None  # what the last backward pass began from while nothing was watched
        self._early: list[Any] = []  # losses of such steps: the optimizer was made between backward and its step
        self._began = 0  # how many optimizers there were when this training made its first step
        self._rebuilt = 0
        self._alone = 0  # steps of unknown optimizers since a watched one stepped
        self._losses, self._turns = StepLosses(), OptimizerTurns()
        self._parts: dict[str, Any] = {}
        self._pending: dict[int, list[Any]] = {}  # losses of steps since the last recorded one, by optimizer
        self._in_step = self._first_root = False
        self._batch: Any = None
        self._given: weakref.ref[Tensor] | None = None
        self._loader_feeds = self._capture = False
        self._fetched: Any = None

    def start(self) -> None:
        """Attach to torch; called as soon as the script has imported it."""
        if self._recorder.active:
            self.hooks.attach()
            self._recorder.on_take_over.append(self.stop)

    def look_around(self) -> None:
        """Notice the optimizers that exist already, such as those of earlier cells of a notebook."""
        for thing in gc.get_objects():
            if issubclass(type(thing), Optimizer):
                self.optimizer_made(thing)

    def stop(self) -> None:
        """Detach, and keep nothing of the script's; steps that wait for another optimizer are recorded now."""
        self._record_open_round()
        in_step = self._in_step
        self._made.clear()
        self._retired.clear()
        self._begin_anew()
        if not in_step:  # torch goes through its hooks: the end of the script takes them off
            self.hooks.detach()

    # -- what the hooks report ------------------------------------------------------------------------

    def optimizer_made(self, optimizer: Optimizer) -> None:
        if self._recorder.active:
            self._count += 1
            self._made[optimizer] = self._count
            self._waiting = None
            self.hooks.search(True)

    def wants(self, module: nn.Module) -> bool:
        """Whether a forward pass begins that trains what is not watched yet."""
        if not self._recorder.active:
            return False
        if self._waiting is None:
            self._waiting = {key for optimizer in self._unwatched() for key in owned(optimizer)}
        if self._objects is None and not torch.is_grad_enabled():
            direct = vars(module)["_parameters"].values()
            self._used |= {id(parameter) for parameter in direct if id(parameter) in self._waiting}
            return False
        return any(id(parameter) in self._waiting for parameter in module.parameters())

    def forward_begins(self, module: nn.Module) -> None:
        if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in module.parameters()):
            return  # they get their shape in this pass: its backward pass is early enough
        mine = {id(parameter) for parameter in module.parameters()} | self._used
        self._include([optimizer for optimizer in self._unwatched() if owned(optimizer) & mine], module)

    def inputs_seen(self, module: nn.Module, args: tuple[Any, ...]) -> bool:
        """Note the batch of a training pass: the last one fetched before it, else what the pass is given."""
        if id(module) not in self._members:
            return False
        if not torch.is_grad_enabled():
            self._fetched = None  # a batch of the evaluation
            return False
        if self._fetched is not None:
            self._batch, self._fetched, self._loader_feeds = self._fetched, None, True
        elif not self._loader_feeds and self._objects is not None and not self._objects.has_parts:
            self._batch = self._new_inputs(module, args)
        return True

    def batch_fetched(self, batch: Any) -> None:
        self._fetched = batch

    def backward_begins(self, root: Tensor | None) -> None:
        if not self._recorder.active:
            return
        if self._objects is None:
            self._include(self._unknown or self._unwatched(), None)
        if self._objects is None:
            self._early_root = None if root is None else scalar(root.detach(), "loss")
        elif self._unknown:
            self._meet_unknown()
        if self._objects is None or (self._in_step and not self._first_root):
            return
        self._first_root = False
        if self._batch is None and self._fetched is not None:  # no forward pass was seen: it is compiled
            self._batch, self._fetched = self._fetched, None
        if self._is_second_look():
            return
        self._losses.add(root, self._batch)
        if (name := self._recorder.settings.loss) is not None:
            self._take_named_loss(name)
        self.hooks.look_at_inputs()

    def step_begins(self, _optimizer: Optimizer) -> None:
        """A closure calls backward inside of the step, maybe often: its first loss is that of the step."""
        self._in_step = self._first_root = not self._losses.pending

    def step_ended(self, optimizer: Optimizer) -> None:
        self._in_step = self._first_root = False
        if not self._recorder.active or self._steps_for_another(optimizer):
            return
        self._recorder.stepped = True
        self._retired.discard(optimizer)
        if self._is_watched(optimizer) or self._takes_over(optimizer):
            self._end_turn(optimizer)
        elif len(self._unknown) < _MOST_UNKNOWN:
            self._unknown.append(optimizer)
            self._alone += 1
            if self._objects is None:
                self._early.append(self._early_root)
            self._losses.take(ends=False)  # the backward passes before it are its own

    def step_asked(self, optimizer: Optimizer, stepped: bool) -> None:
        """A loss scaler was asked to step; if it did not, the step is recorded as skipped."""
        if not stepped and self._is_watched(optimizer):
            self._end_turn(optimizer)

    def saved(self, path: Any) -> None:
        self._recorder.checkpoint(path)

    # -- what is trained ------------------------------------------------------------------------------

    def _is_watched(self, optimizer: Optimizer) -> bool:
        return self._objects is not None and any(optimizer is mine for mine in self._objects.optimizers)

    def _steps_for_another(self, optimizer: Optimizer) -> bool:
        """Whether it steps a part of what another one does, or hands its parameters to one inside it, as SAM does."""
        return any(is_part(optimizer, other) or is_wrapper(optimizer, other) for other in list(self._made))

    def _unwatched(self) -> list[Optimizer]:
        alive = sorted(self._made.items(), key=lambda made: made[1])
        idle = {id(optimizer) for optimizer in self._retired}
        unwatched = [
            optimizer
            for optimizer, _ in alive
            if id(optimizer) not in idle and not self._is_watched(optimizer) and not self._steps_for_another(optimizer)
        ]
        if self._objects is None or self._rebuilt < _MOST_REBUILT:
            return unwatched
        known = {id(parameter) for parameter in self._objects.model.parameters()}
        return [optimizer for optimizer in unwatched if not owned(optimizer) & known]

    def _include(self, optimizers: list[Optimizer], called: nn.Module | None) -> None:
        """Watch these optimizers, beside the others of the same training."""
        self._unknown, self._waiting = [], None
        optimizers = [optimizer for optimizer in optimizers if owned(optimizer)]
        if not optimizers:
            return
        beside = self._beside(optimizers)
        wanted = self._recorder.settings.model
        objects = discovery.find([*beside, *optimizers], called, sys._getframe(1), wanted)
        if objects is None:
            self._recorder.say_once("an optimizer holds no parameter of a torch module: its steps are not recorded")
            return
        self._capture = self._capture or self._fetched is not None
        if not self._recorder.watch(objects, capture=self._capture):
            return
        self._objects = objects
        self._losses.scaler = ScalerView(objects.scaler)
        self._members = {id(module) for module in objects.model.modules()}
        self._record_early()
        self.hooks.come_last()
        self.hooks.look_at_inputs()

    def _record_early(self) -> None:
        """Steps of the one optimizer that is watched now, and was made after the backward pass of its first step."""
        early, self._early = self._early, []
        alone = self._objects is not None and len(self._objects.optimizers) == 1
        if early and alone and all(loss is not None for loss in early):
            self._recorder.record_late(early)

    def _meet_unknown(self) -> None:
        """Optimizers step that have not stepped before: a part of this training, or the next one.

        A part steps beside the watched optimizers, however late it joins; a next stage steps alone.
        """
        together = self._recorder.step < _EARLY or self._alone == 0
        if together or self._alone >= _STEPS_ALONE:
            unknown = list({id(optimizer): optimizer for optimizer in self._unknown}.values())
            if not together:
                self._end_training()
            self._include(unknown, None)

    def _end_training(self) -> None:
        fetched = self._fetched
        self._record_open_round()
        if self._objects is not None:
            self._retired.update(self._objects.optimizers)
        self._recorder.end()
        self._begin_anew()
        self._fetched = fetched

    def _beside(self, optimizers: list[Optimizer]) -> list[Optimizer]:
        """The watched optimizers that stay: none if a new training begins, and none whose parameters are taken over."""
        before = [] if self._objects is None else self._objects.optimizers
        taken = set().union(*map(owned, optimizers))
        stay = [optimizer for optimizer in before if not owned(optimizer) & taken]
        if len(stay) < len(before):
            self._rebuilt += 1
            self._retired.update(optimizer for optimizer in before if owned(optimizer) & taken)
        elif (
            before and self._recorder.step >= _LAZY and any(self._made.get(new, 0) > self._began for new in optimizers)
        ):
            self._end_training()
            return []
        return stay

    def _takes_over(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer, maybe one that is rebuilt in every step, steps what another one stepped before."""
        if self._objects is None:
            return False
        optimizers, mine = self._objects.optimizers, owned(optimizer)
        for index, watched in enumerate(optimizers):
            if owned(watched) & mine:
                self._objects.names[id(optimizer)] = self._objects.names.pop(id(watched), "")
                optimizers[index] = optimizer
                return True
        return False

    # -- steps ----------------------------------------------------------------------------------------

    def _end_turn(self, optimizer: Optimizer) -> None:
        assert self._objects is not None
        self._alone = 0
        together = {id(mine) for mine in self._objects.optimizers}
        completes = self._turns.completes(id(optimizer), together, self._awaited(optimizer))
        batches = self._losses.batches
        loss = self._losses.take(ends=completes)
        if self._objects.has_parts:
            self._parts[self._objects.names.get(id(optimizer), "")] = loss
        if not completes:
            self._pending.setdefault(id(optimizer), []).append(loss)
            return
        parts, self._parts = self._parts, {}
        pending, self._pending = self._pending, {}
        is_first = self._began == 0
        if set(pending) == {id(optimizer)}:  # it turned out to be the only one that steps
            self._recorder.record_late([*pending[id(optimizer)], loss])
        else:
            batch = batches[0] if len(batches) == 1 else batches or None
            self._recorder.record_step(loss, batch, parts if len(parts) > 1 else {})
        self._batch = None
        if is_first and self._recorder.step:
            self._began = self._count
            self.hooks.search(False)
        if self._recorder.active:
            self.hooks.look_at_inputs()

    def _awaited(self, optimizer: Optimizer) -> set[int]:
        """The optimizers that belong to the first round: not one that was replaced, nor one of frozen parameters."""
        assert self._objects is not None
        mine = owned(optimizer)
        others = (other for other in self._objects.optimizers if not owned(other) & mine)
        return {id(optimizer), *(id(other) for other in others if _trains(other))}

    def _record_open_round(self) -> None:
        """No other optimizer will step: the steps of the first round are recorded as they were."""
        optimizer = self._turns.open_round
        if self._recorder.active and optimizer is not None:
            self._recorder.record_late(self._pending.pop(optimizer, []))

    def _is_second_look(self) -> bool:
        """Whether the gradients of this batch were cleared, to be computed again elsewhere, as SAM does."""
        assert self._objects is not None
        is_new = self._batch is not None and all(self._batch is not known for known in self._losses.batches)
        if is_new or not self._losses.pending:
            return False
        parameters = (p for mine in self._objects.optimizers for group in mine.param_groups for p in group["params"])
        return all(parameter.grad is None for parameter in parameters)

    def _new_inputs(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        """The batch that a pass is given, None if it is the same in every step."""
        given = given_batch(module, args)
        before = None if self._given is None else self._given()
        if not given or before is given[0]:
            return None
        self._given = weakref.ref(given[0])
        return given[0] if len(given) == 1 else tuple(given)

    def _take_named_loss(self, name: str) -> None:
        value = discovery.resolve(name, sys._getframe(1))
        if isinstance(value, Tensor | int | float):
            self._losses.give(value)
        else:
            what = "no number of that name is in scope where backward is called; recorded is what backward starts from"
            self._recorder.say_once(f"--loss {name}: {what}")


def _trains(optimizer: Optimizer) -> bool:
    return any(parameter.requires_grad for group in optimizer.param_groups for parameter in group["params"])
