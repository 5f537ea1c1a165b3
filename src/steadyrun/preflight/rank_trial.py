"""One step on all ranks, and all that it is compared with. Every rank executes the same stages in the same order."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.preflight.batch_draw import first_of
from steadyrun.preflight.bench import Bench
from steadyrun.preflight.rank_batches import CannotJoin, joined_batch, on_device_of, on_host
from steadyrun.preflight.rank_data import LoaderFacts, loader_facts
from steadyrun.preflight.rank_gradients import Floats, gram, of_loss, of_step, sampled
from steadyrun.preflight.rank_group import RankGroup
from steadyrun.preflight.rank_placement import Layout, layout
from steadyrun.preflight.rehearsal import step_input
from steadyrun.preflight.step_trace import traced_step
from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.program.attributes import local_part
from steadyrun.program.task import Task
from steadyrun.signals.missing import MissingSignal

Digests = dict[str, bytes]


@dataclass(frozen=True)
class RankFacts:
    """What one rank saw."""

    layout: Layout
    loader: LoaderFacts
    start: Digests  # parameters before the step
    constant: frozenset[str]  # parameters whose elements are all equal, or that have none here
    gradients: Digests  # with which the optimizer stepped
    after: Digests
    rates: tuple[float, ...]
    clips: tuple[tuple[float, float], ...]  # threshold and norm of each clip call
    norms: Mapping[str, float]  # of the gradients, by parameter
    products: Floats | None = None  # the Gram matrix of `rank_gradients`
    losses: tuple[float, float] = (float("nan"), float("nan"))  # of a batch, and of the batch joined with itself


@dataclass(frozen=True)
class RankTrial:
    """What all ranks saw, for the probes; `why_not` says why gradients of a joined batch cannot be compared."""

    task: Task
    ranks: list[RankFacts]
    config: Mapping[str, Any] = field(default_factory=dict)
    why_not: str = ""
    in_evaluation: bool = False  # the step ran in evaluation mode

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def all_equal_at_start(self) -> bool:
        """Whether every rank holds the same parameters."""
        return all(facts.start == self.ranks[0].start for facts in self.ranks) and bool(self.ranks[0].start)

    def replicas(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every parameter with a group of ranks that must agree. Without a wrapper those of an equal start do."""
        seen = set()
        everyone = tuple(range(self.world)) if self.all_equal_at_start else ()
        for facts in self.ranks:
            for name, placement in facts.layout.parameters.items():
                known = placement.replicas or (() if placement.shards else everyone)
                if len(known) > 1 and (name, known) not in seen:
                    seen.add((name, known))
                    yield name, known


def rank_trial(task: Task, group: RankGroup) -> RankTrial:
    """Execute the trial; the program is restored by the caller."""
    drawn = group.everywhere("reading batches", lambda: _drawn(task))
    bench = group.everywhere("reading the model", lambda: Bench(task, drawn, config=task.config))
    placed = group.everywhere("reading the model", lambda: layout(task.model, group.world))
    start = group.everywhere("reading the model", lambda: _digests(bench.parameters))
    constant = frozenset(name for name, parameter in bench.parameters.items() if _is_constant(parameter))
    loader = group.everywhere("reading the samplers", lambda: loader_facts(bench, drawn))
    runs = _Runs(bench, group, placed)
    runs.prepare()
    with _quiet(bench.model, runs.quiet):
        facts, vector = group.everywhere("one step", lambda: _one_step(bench, placed, loader, start, constant))
        if not runs.why_not:
            products = group.everywhere("passes over the joined batch", lambda: runs.products(vector))
            facts = replace(facts, products=products, losses=runs.losses)
    gathered = group.gather(facts)
    return RankTrial(task, gathered, task.config or {}, runs.why_not, runs.quiet)


def _drawn(task: Task) -> list[Any]:
    try:
        batches = first_of(task.loader)
    except Exception as problem:
        raise MissingSignal("batches", f"reading batches raised {type(problem).__name__}: {problem}", "") from problem
    if not batches:
        raise MissingSignal("batches", "the loader is empty", "give it at least one batch")
    return batches


class _Runs:
    """The passes of the trial and what they share: batches of all ranks, and whether they can be joined."""

    def __init__(self, bench: Bench, group: RankGroup, placed: Layout) -> None:
        self._bench, self._group, self._ranks = bench, group, placed.data_ranks
        self.quiet = False
        self.why_not = ""
        self._parts: list[list[Any]] = []  # by rank, its micro-batches of one step
        self.losses = (float("nan"), float("nan"))

    def prepare(self) -> None:
        """Find out whether joined batches can be compared, alike on every rank."""
        group, bench = self._group, self._bench
        batches = group.everywhere("one step", lambda: _micro_batches(bench))
        gathered = group.gather(on_host(batches))
        self._parts = [on_device_of(batches, gathered[rank]) for rank in self._ranks]
        self.quiet = self._any(group.everywhere("two passes", lambda: _has_batch_statistics(bench) or self._draws()))
        with _quiet(bench.model, self.quiet):
            drawing = self.quiet and self._any(group.everywhere("two passes", self._draws))
            why = "the loss draws random numbers also in evaluation mode" if drawing else ""
            why = why or group.everywhere("a joined batch", self._why_not_joined)
        self.why_not = next((reason for reason in group.gather(why) if reason), "")

    def products(self, step: Floats) -> Floats:
        """The Gram matrix of the step's gradient and those of the reference passes."""
        bench, parts = self._bench, self._parts
        count = len(parts[0])
        by_part = [joined_batch([rank[index] for rank in parts]) for index in range(count)]
        whole = joined_batch([batch for rank in parts for batch in rank])
        as_list = is_list_of_batches(step_input(bench, 0)) and bench.accumulation > 1
        with bench.pristine():
            bench.reseed()
            bench.modes(True)
            on_joined = of_step(bench, traced_step(bench, by_part if as_list else by_part[0]))
        gradients = [on_joined, self._of(whole), self._of(*by_part), *(self._of(*rank) for rank in parts)]
        return gram([step, *(sampled(bench, gradient) for gradient in gradients)])

    def _of(self, *batches: Any) -> dict[str, Tensor]:
        self._bench.reseed()
        self._bench.modes(True)
        return of_loss(self._bench, batches)

    def _any(self, mine: bool) -> bool:
        return any(self._group.gather(mine))

    def _draws(self) -> bool:
        """Whether the loss depends on the random state."""
        once, again = self._loss(0, self._own()), self._loss(1, self._own())
        return once != again and math.isfinite(once)

    def _own(self) -> Any:
        me = self._group.rank
        return self._parts[self._ranks.index(me) if me in self._ranks else 0][0]

    def _loss(self, draw: int, batch: Any) -> float:
        bench = self._bench
        with bench.pristine(), torch.no_grad():
            bench.reseed()
            bench.modes(True)
            if draw:
                torch.manual_seed(draw)
            loss = float(bench.loss(batch).detach())
            resharded(bench.task.model)
            return loss

    def _why_not_joined(self) -> str:
        """Why a joined batch is not the sum of its parts; "" if it is."""
        if len(self._ranks) < 2:
            return "all ranks compute one batch together"
        try:
            joined_batch([batch for rank in self._parts for batch in rank])
            doubled = joined_batch([self._own(), self._own()])
        except CannotJoin as problem:
            return f"the ranks' batches cannot be joined: {problem}"
        once, twice = self._loss(0, self._own()), self._loss(0, doubled)
        self.losses = once, twice
        if not math.isfinite(once):
            return f"the loss of the first batch of rank {self._group.rank} is {once}"
        if not any(abs(twice - times * once) <= 1e-3 * abs(times * once) + 1e-6 for times in (1, 2)):
            return f"the loss of a batch joined with itself is {twice:.4g}, of the batch {once:.4g}"
        return ""


def _one_step(
    bench: Bench, placed: Layout, loader: LoaderFacts, start: Digests, constant: frozenset[str]
) -> tuple[RankFacts, Floats]:
    """The program's own step on this rank's own batch, and a sample of its gradient."""
    with bench.pristine():
        bench.reseed()
        bench.modes(True)
        trace = traced_step(bench, step_input(bench, 0))
        after = _digests(bench.parameters)
        gradients = of_step(bench, trace)
        clips = tuple((event.clip.max_norm, _number(event.clip.total_norm)) for event in trace.events if event.clip)
        facts = RankFacts(
            placed,
            loader,
            start,
            constant,
            _digests(gradients),
            after,
            tuple(trace.rates.values()),
            clips,
            {name: float(local_part(gradient).double().norm()) for name, gradient in gradients.items()},
        )
        return facts, sampled(bench, gradients)


def _micro_batches(bench: Bench) -> list[Any]:
    given = step_input(bench, 0)
    return list(given) if bench.accumulation > 1 and is_list_of_batches(given) else [given]


def _number(norm: Tensor) -> float:
    """A norm as a number; of a DTensor the whole one, for which all ranks wait for each other."""
    whole: Any = getattr(norm, "full_tensor", norm.detach)
    return float(whole())


def _digests(tensors: Mapping[str, Tensor]) -> Digests:
    return {name: _digest(tensor) for name, tensor in tensors.items()}


def _digest(tensor: Tensor) -> bytes:
    values = local_part(tensor.detach())
    values = values.to_dense() if values.is_sparse else values
    plain = values.contiguous().cpu().reshape(-1)
    return hashlib.blake2b(plain.view(torch.uint8).numpy().tobytes(), digest_size=16).digest()


def _is_constant(parameter: Tensor) -> bool:
    values = local_part(parameter.detach())
    return values.numel() < 2 or bool((values == values.reshape(-1)[0]).all())


def resharded(model: nn.Module) -> None:
    """Let FSDP2 free what a pass without backward has gathered."""
    for module in model.modules():
        reshard: Any = getattr(module, "reshard", None)
        if hasattr(module, "_get_fsdp_state") and reshard is not None:
            reshard()


def _has_batch_statistics(bench: Bench) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in bench.model.modules())


@contextmanager
def _quiet(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Run every module in evaluation mode, whatever the program sets: no dropout and no batch statistics."""

    def still(module: nn.Module, _args: Any) -> None:
        module.training = False

    modules = [module for module in model.modules() if wanted]
    recurrent = [(module, module.dropout) for module in modules if isinstance(module, nn.RNNBase)]
    handles = [module.register_forward_pre_hook(still) for module in modules if not isinstance(module, nn.RNNBase)]
    try:
        for module, _ in recurrent:  # cuDNN differentiates these in training mode alone
            module.dropout = 0.0
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, dropout in recurrent:
            module.dropout = dropout
