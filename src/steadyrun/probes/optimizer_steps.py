"""Sees every optimizer step that touches the watched parameters: LR as used, step counts, rebuilt optimizers.

Global optimizer hooks also see an optimizer that the training loop rebuilt; hooks on one object would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from steadyrun.probes.norms import norms
from steadyrun.probes.problems import Problems
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values
from steadyrun.program.torch_compat import is_spread

ParamGroup = dict[str, Any]
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]

FIRST_MOMENTS = ("exp_avg", "momentum_buffer")
SECOND_MOMENTS = ("exp_avg_sq", "square_avg", "sum")


class OptimizerLike(Protocol):
    """What is read off an optimizer: torch's own, or a wrapper around one."""

    @property
    def param_groups(self) -> list[ParamGroup]: ...

    @property
    def state(self) -> Mapping[Tensor, dict[str, Any]]: ...


@dataclass(slots=True)
class OptimizerFacts:
    """What was seen of the optimizers since the last `run.step`."""

    steps: int = 0
    rates: dict[int, tuple[float | Tensor, ...]] = field(default_factory=dict)
    training: bool | None = None
    found_inf: Tensor | None = None


class OptimizerProbe:
    """Follows one or more optimizers."""

    def __init__(
        self, optimizers: list[OptimizerLike], model: nn.Module, parameters: list[nn.Parameter], problems: Problems
    ) -> None:
        self._optimizers = optimizers
        self._model = model
        self._parameters = parameters
        self._ids = {id(parameter) for parameter in parameters}
        self._problems = problems
        self._handles: list[RemovableHandle] = []
        self._facts = OptimizerFacts()
        self._fingerprint: tuple[int, HostArray] | None = None
        self._generation = 0  # fingerprints of one generation may be compared: no watched step lies between them
        self.before: list[Callable[[OptimizerLike], None]] = []
        self.after: list[Callable[[OptimizerLike], None]] = []

    def attach(self) -> None:
        self._handles = [
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ended),
        ]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def optimizers(self) -> list[OptimizerLike]:
        return self._optimizers

    # -- while a step runs ------------------------------------------------------------------------

    def _step_begins(self, optimizer: OptimizerLike, args: _Args, kwargs: _Kwargs) -> tuple[_Args, _Kwargs] | None:
        """Look at the optimizer before it steps; with a closure, once that has made the gradients of the step."""
        if torch.compiler.is_compiling():  # a compiled optimizer step does not trace into this
            return None
        try:
            if not self._noted(optimizer):
                return None
            if (arguments := _with_closure(args, kwargs, lambda: self._before(optimizer))) is not None:
                return arguments
        except Exception as problem:
            self._problems.report("optimizer step", problem)
            return None
        self._before(optimizer)
        return None

    def _noted(self, optimizer: OptimizerLike) -> bool:
        """Note that an optimizer steps, and with which rates; False where it is none of ours."""
        index = self._index(optimizer)
        if index is None:
            return False
        facts = self._facts
        facts.steps += 1
        rates = [_rate(group["lr"]) for group in optimizer.param_groups if group.get("lr") is not None]
        facts.rates[index] = tuple(rates)
        facts.training = self._model.training
        found_inf = getattr(optimizer, "found_inf", None)
        facts.found_inf = found_inf.detach().clone() if isinstance(found_inf, Tensor) else None
        return True

    def _before(self, optimizer: OptimizerLike) -> None:
        try:
            for action in self.before:
                action(optimizer)
        except Exception as problem:
            self._problems.report("optimizer step", problem)

    def _step_ended(self, optimizer: OptimizerLike, _args: object, _kwargs: object) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            if any(optimizer is mine for mine in self._optimizers):
                for action in self.after:
                    action(optimizer)
        except Exception as problem:
            self._problems.report("optimizer step", problem)

    def _index(self, optimizer: OptimizerLike) -> int | None:
        """Which watched optimizer this is; one that took over the watched parameters takes over its index."""
        for index, watched in enumerate(self._optimizers):
            if optimizer is watched:
                return index
        if not self._steps_watched(optimizer) or any(is_part(optimizer, watched) for watched in self._optimizers):
            return None
        for index, watched in enumerate(self._optimizers):
            if getattr(watched, "param_groups", None) is optimizer.param_groups:  # a wrapper was watched
                self._optimizers[index] = optimizer
                return index
        self._problems.notice(
            "optimizer-replaced", f"another {type(optimizer).__name__} than the watched one steps the parameters"
        )
        if not self._optimizers:
            self._optimizers.append(optimizer)
            return 0
        index = _most_alike(optimizer, self._optimizers)
        self._optimizers[index] = optimizer
        return index

    def _steps_watched(self, optimizer: OptimizerLike) -> bool:
        groups = getattr(optimizer, "param_groups", [])
        return any(id(parameter) in self._ids for group in groups for parameter in group["params"][:1])

    # -- at run.step ------------------------------------------------------------------------------

    def forget(self) -> None:
        """A step was given up, and the parameters are others: the next one begins anew."""
        self._facts = OptimizerFacts()
        self._generation += 1

    def take(self, row: ProbeRow) -> OptimizerFacts:
        """What was seen since the last `run.step`; the next one begins anew."""
        facts, self._facts = self._facts, OptimizerFacts()
        if facts.steps:
            self._generation += 1
        elif self._optimizers and not self._problems.failed("silent moves"):
            with self._problems.contained("silent moves"):
                self._notice_silent_moves(row)
        return facts

    def fill(self, row: ProbeRow, facts: OptimizerFacts) -> None:
        """Put a step's numbers into its row."""
        row.put("optimizer_steps", float(facts.steps))
        first = 0
        for index, optimizer in enumerate(self._optimizers):
            for offset, rate in enumerate(facts.rates.get(index, ())):
                row.put(f"lr/{first + offset}", rate)
            first += len(optimizer.param_groups)
        if facts.training is not None:
            row.put("training", float(facts.training))
        if self._optimizers:
            row.put("skipped", facts.found_inf if facts.found_inf is not None else float(not facts.steps))

    def _notice_silent_moves(self, row: ProbeRow) -> None:
        """No watched optimizer stepped: did the parameters still move?"""
        generation = self._generation

        def compare(now: HostArray) -> Values:
            earlier, self._fingerprint = self._fingerprint, (generation, now.copy())
            if earlier is not None and earlier[0] == generation:
                self._say_if_moved(earlier[1], now)
            return {}

        large = sorted(self._parameters, key=lambda parameter: -parameter.numel())[:4]
        sample = [getattr(p, "to_local", p.detach)().detach().reshape(-1)[:64].float() for p in large]
        if not sample:
            return
        row.put_many(torch.cat([part.to(sample[0].device) for part in sample]), compare)

    def _say_if_moved(self, before: HostArray, now: HostArray) -> None:
        if not np.array_equal(before, now, equal_nan=True):
            self._problems.notice(
                "moved-without-optimizer",
                "parameters changed although no watched optimizer stepped: watch the optimizer that does, or call "
                "run.watch again after rebuilding it",
            )

    def first_group(self, optimizer: OptimizerLike) -> int:
        """The number of an optimizer's first param group, counted over all watched optimizers."""
        before = self._optimizers[: next(i for i, mine in enumerate(self._optimizers) if mine is optimizer)]
        return sum(len(earlier.param_groups) for earlier in before)

    def moments(self, row: ProbeRow) -> None:
        """Norms of the first and second moments and the step count, per param group."""
        group_number = 0
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                states = [optimizer.state[p] for p in group["params"] if p in optimizer.state]
                self._group_moments(row, group_number, states)
                group_number += 1

    def _group_moments(self, row: ProbeRow, group: int, states: list[dict[str, Any]]) -> None:
        for name, keys in (("moment1_norm", FIRST_MOMENTS), ("moment2_norm", SECOND_MOMENTS)):
            moments = [state[key] for state in states for key in keys if isinstance(state.get(key), Tensor)]
            if moments:
                row.put(f"{name}/{group}", torch.linalg.vector_norm(norms(moments)))
        counts = [state["step"] for state in states if "step" in state]
        if counts:
            row.put(f"step_count/{group}", counts[0].detach().clone() if isinstance(counts[0], Tensor) else counts[0])


def _with_closure(args: _Args, kwargs: _Kwargs, notify: Callable[[], None]) -> tuple[_Args, _Kwargs] | None:
    """The arguments of a step whose closure calls `notify` when it first returns; None if there is no closure.

    A closure clears the old gradients and makes the new ones: before it there is nothing to see.
    """
    in_place = len(args) > 1
    closure = args[1] if in_place else kwargs.get("closure")
    if not callable(closure):
        return None
    pending = [notify]

    def watched_closure(*arguments: object, **options: object) -> object:
        result = closure(*arguments, **options)
        while pending:
            pending.pop()()
        return result

    return (
        ((args[0], watched_closure, *args[2:]), kwargs) if in_place else (args, {**kwargs, "closure": watched_closure})
    )


def _rate(rate: Any) -> float | Tensor:
    """A learning rate may be a tensor (capturable optimizers); a copy, since a scheduler changes it in place."""
    return rate.detach().clone() if isinstance(rate, Tensor) else float(rate)


def is_part(optimizer: OptimizerLike, whole: OptimizerLike) -> bool:
    """Whether an optimizer steps a rank's part of the parameters for another, as in ZeroRedundancyOptimizer."""
    return _holds(whole, optimizer) and _owned(optimizer) < _owned(whole)


def is_wrapper(optimizer: OptimizerLike, inner: OptimizerLike) -> bool:
    """Whether an optimizer leaves the steps of all its parameters to one that it holds, as SAM and Lookahead do."""
    return _holds(optimizer, inner) and _owned(optimizer) == _owned(inner)


def _holds(outer: OptimizerLike, inner: OptimizerLike) -> bool:
    return any(each is inner for each in getattr(outer, "__dict__", {}).values())


def _owned(optimizer: OptimizerLike) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _most_alike(optimizer: OptimizerLike, watched: list[OptimizerLike]) -> int:
    """The watched optimizer whose parameters the new one shares most."""
    mine = _owned(optimizer)

    def shared(index: int) -> int:
        groups = getattr(watched[index], "param_groups", [])
        return sum(id(parameter) in mine for group in groups for parameter in group["params"])

    return max(range(len(watched)), key=shared)


# Checks the arithmetic of an Adam-like optimizer: the update is recomputed from its moments and compared.
#
# Of every param group one tensor is looked at. With `w` before the step, `d` its change and `u` the textbook
# direction from the recorded moments (bias-corrected), `d = -lr (a u + b w)` is solved for `a` and `b` by least
# squares: `a` is 1 when the optimizer does what Adam says, `b` is its decoupled weight decay.


_SMALLEST, _LARGEST = 16, 65_536  # elements of the tensor that is looked at
_FITTED = 16_384  # of them, evenly spaced, to which the update is fitted
_ROUNDING = 20 * float(np.finfo(np.float32).eps)


@dataclass
class UpdateProbe:
    """Follows one tensor per param group through one optimizer step."""

    _before: dict[int, Tensor] = field(default_factory=dict)
    _products: dict[int, Tensor] = field(default_factory=dict)

    def snapshot(self, optimizer: OptimizerLike, first: int) -> None:
        """Before the step; `first` is the number of the optimizer's first param group."""
        for index, group in enumerate(optimizer.param_groups):
            parameter = _chosen(group)
            if parameter is not None:
                self._before[first + index] = parameter.detach().clone()

    def compare(self, optimizer: OptimizerLike, first: int) -> None:
        """After the step: the inner products that the fit needs, still on the device."""
        for index, group in enumerate(optimizer.param_groups):
            before = self._before.pop(first + index, None)
            parameter = _chosen(group)
            if before is None or parameter is None or parameter.shape != before.shape:
                continue
            state = optimizer.state.get(parameter, {})
            if {"exp_avg", "exp_avg_sq", "step"} <= set(state):
                self._products[first + index] = _products(before, parameter.detach(), state, group)

    def fill(self, row: ProbeRow) -> None:
        for group, products in self._products.items():
            row.put_many(products, _solved(group))
        self._before, self._products = {}, {}


def _chosen(group: ParamGroup) -> Tensor | None:
    """A tensor of a group with Adam's settings, neither tiny nor large; always the same one."""
    if not {"lr", "betas", "eps"} <= set(group) or group.get("amsgrad") or group.get("maximize"):
        return None
    for parameter in group["params"]:
        whole = not is_spread(parameter)
        if whole and parameter.dtype == torch.float32 and _SMALLEST <= parameter.numel() <= _LARGEST:
            return parameter if parameter.requires_grad else None
    return None


def _products(before: Tensor, after: Tensor, state: dict[str, Any], group: ParamGroup) -> Tensor:
    wide = torch.float64 if before.device.type in {"cpu", "cuda"} else torch.float32
    beta1, beta2 = group["betas"]
    every = -(-before.numel() // _FITTED)
    before, after = before.flatten()[::every].to(wide), after.flatten()[::every].to(wide)
    step = state["step"]
    here = isinstance(step, Tensor) and step.device == before.device
    count: Any = step.to(wide) if here else float(step)  # neither a number nor a tensor on the CPU makes the host wait
    first, second = (state[name].flatten()[::every].to(wide) for name in ("exp_avg", "exp_avg_sq"))
    spread = (second / (1 - beta2**count)).sqrt()
    direction = first / (1 - beta1**count) / (spread + group["eps"])
    reached = spread > 0  # rows of a table without a gradient so far have no part in it
    epsilon = (group["eps"] / (spread + group["eps"]) * reached).sum() / reached.sum()
    lr = group["lr"]
    rate = lr.detach().to(before.device, wide) if isinstance(lr, Tensor) else before.new_full((), lr, dtype=wide)
    rows = torch.stack([before - after, direction, before])
    return torch.cat([(rows @ rows.T).flatten(), rate.reshape(1), epsilon.reshape(1)])


def _solved(group: int) -> Unpack:
    def unpack(array: HostArray) -> Values:
        products, rate = array[:9].reshape(3, 3).astype(float), float(array[9])
        moved, known, target = products[0, 0], products[1:, 1:], products[0, 1:]
        epsilon: Values = {f"epsilon_share/{group}": float(array[10])} if np.isfinite(array[10]) else {}
        drowned = moved < (_ROUNDING**2) * products[2, 2]  # a change this small is mostly rounding
        if not np.isfinite(products).all() or rate <= 0 or known[0, 0] == 0 or moved == 0 or drowned:
            return epsilon
        scale, decay = np.linalg.lstsq(known, target, rcond=1e-9)[0]
        left = moved - np.dot(target, (scale, decay))
        misfit = np.sqrt(max(0.0, left) / moved)
        return {
            **epsilon,
            f"update_scale/{group}": float(scale / rate),
            f"update_decay/{group}": float(decay / rate),
            f"update_misfit/{group}": float(misfit),
        }

    return unpack
