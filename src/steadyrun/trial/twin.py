"""A twin: the program trained for a few steps with one change, and measured at the same marks as the others.

Twins of one seed share start, data order and random numbers, so that every difference comes from the change.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from steadyrun.errors import UsageError
from steadyrun.preflight.bench import number_of
from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.probes.loss_graph import read
from steadyrun.probes.scheduler_dry_run import expected_rates
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.program.program_state import untouched
from steadyrun.program.random_state import put, take
from steadyrun.program.task import Task
from steadyrun.program.training_changes import groups_of, no_smoothing, with_rates
from steadyrun.signals.declared_schedule import number
from steadyrun.trial.batches import BatchParts, TrialData, draw, parts_of, rows_of
from steadyrun.trial.curve import Curve
from steadyrun.trial.loss_terms import Terms

if TYPE_CHECKING:
    from steadyrun.trial.factor import Factor

MARKS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)  # fractions of the steps at which every twin is measured
SPLITS = ("validation", "held", "seen")
HOPELESS = 1.0  # times what the unchanged twin has learned so far: a twin further behind is stopped
_MEASURING = 977  # seed for measuring a loss


class Twin:
    """A built program with the batches of a trial."""

    def __init__(self, task: Task, steps: int, data: TrialData | None = None) -> None:
        self.task, self.steps = task, steps
        self.model = unwrapped(task.model)
        self.config: Mapping[str, Any] = task.config or {}
        self._terms: list[list[float]] = []  # of the last measured losses
        self._grad = False  # the program differentiates inside its loss
        _require_torch_optimizers(task)
        with untouched(task):  # a shuffling loader draws random numbers
            self.data = data or draw(task, steps)
            if data is None and not self._takes_cut_batches():
                self.data = draw(task, steps, cut=False)

    @property
    def accumulation(self) -> int:
        """The number of micro-batches per step: declared, or from the loader's lists for train_step."""
        declared = number(self.config.get("accumulation"))
        if declared is None and self.task.train_step is not None and is_list_of_batches(self.data.training[0]):
            return len(self.data.training[0])
        return max(1, int(declared or 1))

    def factor(self, name: str) -> Factor:
        """The change of this name for this build of the program."""
        from steadyrun.trial.factors import factor_named

        return factor_named(name, self._factors)

    @cached_property
    def _factors(self) -> list[Factor]:
        from steadyrun.trial.factors import factors_for

        return factors_for(self)[0]

    def timed(self, steps: int) -> tuple[float, float]:
        """Seconds per step and per measurement of the loss; undoes both."""
        with untouched(self.task), torch.enable_grad():
            self.model.train()
            self.step(self.data.training[0])  # the first one is slower
            began = time.monotonic()
            for index in range(steps):
                self.step(self.data.training[index % len(self.data.training)])
            stepped = time.monotonic()
            self._measure(Curve("", 0, 0, [], {name: [] for name in SPLITS if getattr(self.data, name)}))
            return (stepped - began) / steps, time.monotonic() - stepped

    def loss(self, batch: Any) -> Tensor:
        """The loss of a batch; also records its terms."""
        with Terms() as terms:
            loss = self.task.loss_fn(self.task.model, batch)
        self._terms.append(terms.values)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise UsageError("loss_fn must return a scalar tensor")
        return loss

    @cached_property
    def parts(self) -> BatchParts:
        """The targets and inputs of a batch, from one pass that is undone."""
        with untouched(self.task), torch.enable_grad():
            return parts_of(self.task, self._single(self.data.training[0]), self.loss)

    @cached_property
    def used(self) -> set[str]:
        """Names of parameters in modules that a pass calls; others need not change."""
        called: set[int] = set()
        handles = [
            module.register_forward_pre_hook(lambda module, _args: called.add(id(module)))
            for module in self.model.modules()
        ]
        try:
            with untouched(self.task), torch.enable_grad():
                self.model.train()
                self.loss(self._single(self.data.training[0]))
        finally:
            for handle in handles:
                handle.remove()
        return {
            f"{path}.{name}" if path else name
            for path, module in self.model.named_modules()
            if id(module) in called
            for name, _ in module.named_parameters(recurse=False)
        }

    def _takes_cut_batches(self) -> bool:
        """Whether the program runs on smaller batches; one with a state per row does not."""
        sizes = {rows_of(self._single(batch)) for batch in self.data.training}
        first = {rows_of(self._single(batch)): batch for batch in self.data.training}
        if len(sizes) == 1:
            return True
        try:
            with untouched(self.task), torch.enable_grad():
                for batch in first.values():
                    self.loss(self._single(batch))
        except Exception:
            return False
        return True

    @cached_property
    def moves_freely(self) -> str:
        """Why the loss does not show learning; "" if it does."""
        with untouched(self.task), torch.enable_grad():
            self.model.train()
            graph = read(self.loss(self._single(self.data.training[0])))
        return "The loss is a policy loss" if graph.advantages else ""

    @cached_property
    def unregistered(self) -> list[str]:
        """Parameters with a gradient that no optimizer has."""
        with untouched(self.task), torch.enable_grad():
            self.model.train()
            leaves = read(self.loss(self._single(self.data.training[0]))).leaves
        held = {id(each) for group in groups_of(self.task) for each in group["params"]}
        names = {id(each): clean(name) for name, each in self.model.named_parameters()}
        return [
            names.get(id(leaf), f"an unregistered tensor of shape {tuple(leaf.shape)}")
            for leaf in leaves
            if id(leaf) not in held and isinstance(leaf, nn.Parameter)
        ]

    def _single(self, batch: Any) -> Any:
        return batch[0] if self.accumulation > 1 and is_list_of_batches(batch) else batch

    def _singles(self, batches: list[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from batch if self.accumulation > 1 and is_list_of_batches(batch) else [batch]

    # -- training ----------------------------------------------------------------------------------

    def train(self, factor: Factor, seed: int, own: Curve | None = None) -> Curve:
        """Train with a change, then undo everything. Stops a twin far behind `own`, the unchanged one."""
        began = time.monotonic()
        marks = sorted({round(self.steps * mark) for mark in MARKS})
        curve = Curve(factor.name, seed, self.steps, marks, {name: [] for name in SPLITS if getattr(self.data, name)})
        curve.drawn, curve.start = asdict(self.data.drawn), self.start
        used, curve.unregistered = self.used, [] if self._is_pretrained else self.unregistered
        with untouched(self.task), torch.enable_grad(), ExitStack() as stack:
            self.model.train()
            stack.enter_context(self._rates(factor))
            before = {name: each.detach().clone() for name, each in self.model.named_parameters()}
            try:
                stack.enter_context(factor.apply(self))
                self._steps(factor, seed, curve, own)
            except Exception as problem:
                curve.raised = f"{type(problem).__name__}: {problem}".splitlines()[0]
            now = dict(self.model.named_parameters())
            moved = {name for name, tensor in before.items() if name in now and not torch.equal(tensor, now[name])}
            curve.unmoved = [] if self._is_pretrained else self._still(used, moved)
        curve.seconds = time.monotonic() - began
        return curve

    @property
    def _is_pretrained(self) -> bool:
        """Whether parts may stay untrained, such as the model under a new head."""
        return self.config.get("init") == "pretrained"

    def _still(self, used: set[str], moved: set[str]) -> list[str]:
        """Modules without a changed parameter; a single bias may not change (before a batch norm)."""
        groups: dict[str, list[str]] = {}
        for name, parameter in self.model.named_parameters():
            if name in used and parameter.requires_grad:
                groups.setdefault(name.rpartition(".")[0], []).append(name)
        return [clean(module) for module, names in groups.items() if not moved.intersection(names)]

    def _steps(self, factor: Factor, seed: int, curve: Curve, own: Curve | None) -> None:
        batches = factor.batches(self)
        if seed > 1:
            random.Random(seed).shuffle(batches)
        seed_all(seed)
        losses: list[float] = []
        for step in range(self.steps + 1):
            if step in curve.marks:
                self._measure(curve)
                curve.training.append(float(np.mean(losses)) if losses else math.nan)
                losses = []
                if own is not None and _hopeless(curve, own, self.data.measured_on):
                    curve.stopped = step
                    return
            if step == self.steps:
                return
            self.task.step = step
            self._now[:] = [step]
            losses.append(self.step(batches[step % len(batches)]))

    def step(self, batch: Any) -> float:
        """One optimizer step: the program's own, or a plain one."""
        task = self.task
        if task.train_step is not None:
            return number_of(task.train_step(task, batch))
        parts = batch if self.accumulation > 1 and is_list_of_batches(batch) else [batch]
        for optimizer in task.optimizers:
            optimizer.zero_grad(set_to_none=True)
        losses = []
        for part in parts:
            loss = self.loss(part)
            (loss / len(parts)).backward()  # type: ignore[no-untyped-call]
            losses.append(float(loss.detach()))
        clip = number(self.config.get("clip"))
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), clip)
        for optimizer in task.optimizers:
            optimizer.step()
        if task.scheduler is not None and not hasattr(task.scheduler, "num_bad_epochs"):
            task.scheduler.step()
        return sum(losses) / len(losses)

    # -- measuring ---------------------------------------------------------------------------------

    def _measure(self, curve: Curve) -> None:
        """Measure every split in evaluation mode with fixed random numbers, without an effect on training."""
        modes = [(module, module.training) for module in self.model.modules()]
        state = take()
        self.model.eval()
        with no_smoothing():
            for split in curve.losses:
                curve.losses[split].append(self._mean(list(self._singles(getattr(self.data, split)))))
                if split == self.data.measured_on:
                    curve.terms.append(_means(self._terms))
        for module, training in modes:
            module.training = training
        put(state)

    def _mean(self, batches: list[Any]) -> float:
        try:
            with torch.set_grad_enabled(self._grad):
                return self._losses(batches)
        except RuntimeError:
            if self._grad:
                raise
            self._grad = True
            with torch.enable_grad():
                return self._losses(batches)

    def _losses(self, batches: list[Any]) -> float:
        seed_all(_MEASURING)
        self._terms = []
        return float(np.mean([float(self.loss(batch).detach()) for batch in batches]))

    # -- the learning rate -------------------------------------------------------------------------

    @contextmanager
    def _rates(self, factor: Factor) -> Iterator[None]:
        """Apply the program's schedule, compressed to the steps of the trial, times the factor's change."""
        self._now = [0]
        curves = self._schedule()
        if curves is None:
            with with_rates(self.task, lambda rate, done: rate * factor.rate(done, self.steps)):
                yield
            return
        fixed = _Scheduled(curves, self._now, factor, self.steps)
        with with_rates(self.task, lambda rate, _done: rate, fixed):
            yield

    def _schedule(self) -> list[np.ndarray[Any, Any]] | None:
        """The learning rate of each group at each step of the trial; None to keep the program's own."""
        total, task = number(self.config.get("total_steps")), self.task
        if task.scheduler is None or len(task.optimizers) != 1 or total is None or total <= self.steps:
            return None
        expected = expected_rates(task.scheduler, task.optimizers[0], task.model, int(total))
        if len(expected.groups) != len(groups_of(task)) or not expected.steps:
            return None
        places = np.arange(self.steps) * min(int(total), expected.steps) / self.steps
        return [np.interp(places, *np.array(knots, dtype=float).T) for knots in expected.groups]

    @cached_property
    def start(self) -> str:
        """A checksum of the first weights, equal for two seeds if the program seeds itself."""
        total = sum(float(each.detach().double().sum()) for each in self.model.parameters())
        return f"{total:.12g}"


def _require_torch_optimizers(task: Task) -> None:
    for optimizer in task.optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            kind = type(optimizer).__name__
            raise UsageError(
                f"a trial needs torch optimizers to restore their state; {kind} is not a torch.optim.Optimizer. "
                "Give optimizer= the optimizers themselves, as a list if there are several"
            )


class _Scheduled(Sequence[float | None]):
    """The learning rates of the groups at the current step, for `with_rates`."""

    def __init__(self, curves: list[Any], now: list[int], factor: Factor, steps: int) -> None:
        self._curves, self._now, self._factor, self._steps = curves, now, factor, steps

    def __getitem__(self, index: Any) -> Any:
        step = self._now[0]
        return float(self._curves[index][step]) * self._factor.rate(step, self._steps)

    def __len__(self) -> int:
        return len(self._curves)


def _means(terms: list[list[float]]) -> list[float]:
    """The mean of each term; empty if the losses differ in their number of terms."""
    alike = bool(terms) and len({len(each) for each in terms}) == 1
    return [float(value) for value in np.mean(terms, axis=0)] if alike else []


def _hopeless(curve: Curve, own: Curve, split: str) -> bool:
    """Whether a change is too far behind the unchanged twin to recover."""
    now = len(curve.losses.get(split, [])) - 1
    if now < 0:
        return False
    theirs = own.losses.get(split, [])
    loss = curve.losses[split][now]
    if not math.isfinite(loss):
        return True
    if now < 2 or now >= len(theirs) or not math.isfinite(theirs[now]):
        return False
    learned = max(theirs[0] - theirs[now], 0.0)
    return learned > 0 and loss - theirs[now] > HOPELESS * learned


def seed_all(seed: int) -> None:
    """Seed torch, numpy and Python's random."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
