"""Everything that `run.watch` attaches to a model and its optimizers, and its work at each `run.step`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from steadyrun.probes import backward_hook
from steadyrun.probes.activations import ForwardProbe, magnitude_counts
from steadyrun.probes.cadence import Cadence
from steadyrun.probes.companions import CompanionProbe, find_companions
from steadyrun.probes.copies import copies, inner_copies, sizes
from steadyrun.probes.dead_units import find_units
from steadyrun.probes.description import describe_weights, named_parameters
from steadyrun.probes.digests import DigestProbe
from steadyrun.probes.evaluation_mode import EvaluationProbe
from steadyrun.probes.forward_sample import by_names, histogram_names, learn, put_forward
from steadyrun.probes.gradients import GradientFacts, GradientProbe
from steadyrun.probes.local_gradients import LocalGradientProbe
from steadyrun.probes.loss_scale import ScalerLike, ScalerView
from steadyrun.probes.objective import ObjectiveProbe
from steadyrun.probes.optimizer_steps import OptimizerFacts, OptimizerLike, OptimizerProbe, UpdateProbe
from steadyrun.probes.parameters import ParameterProbe
from steadyrun.probes.pass_calls import PassCalls, beside
from steadyrun.probes.problems import Problems
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.probes.scheduler_dry_run import SchedulerLike, steps_taken
from steadyrun.probes.spectral_norms import SpectralProbe, large_matrices
from steadyrun.probes.stale_gradients import LeftoverProbe
from steadyrun.probes.system import SystemProbe
from steadyrun.program.model_parts import find_blocks, groups_of
from steadyrun.program.torch_compat import is_spread, something_was_compiled
from steadyrun.signals.adapters import is_adapter

FORWARD_PROBES = ("activations", "dead_units", "attention", "modes", "histograms", "objective", "digests")
_MISSES = 3  # sampled steps in a row without a training forward pass, before the probe is disabled
_NEED_WHOLE_PARAMETERS = frozenset({"blocks", "moments", "spectral", "histograms"})


class Watcher:
    """The probes of one watched model."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: list[OptimizerLike],
        *,
        scheduler: SchedulerLike | None,
        scaler: ScalerLike | None,
        blocks: list[str] | None,
        cadence: Cadence,
        problems: Problems,
        learned: Callable[..., None],
        declared_clip: float | None,
        compiled: bool,
        collectives: bool,
        tokens: dict[str, int],
        loss_fn: object = None,
    ) -> None:
        named = named_parameters(model)
        parameters = [parameter for _, parameter in named]
        self.blocks = find_blocks(model, blocks)
        self.units = find_units(model, self.blocks)
        self.matrices = large_matrices(list(named))
        self._cadence = cadence
        self._sharded = any(map(is_spread, parameters)) and not collectives
        self._problems = problems
        self._learned = learned
        self._declared_clip = declared_clip
        self._scheduler = scheduler
        self._model = model
        self._scaler = ScalerView(scaler)
        kind = LocalGradientProbe if self._sharded else GradientProbe
        self._gradients = kind(parameters, self._scaler, problems)
        self._gradients.several_optimizers = len(optimizers) > 1
        self._optimizer = OptimizerProbe(optimizers, model, parameters, problems)
        self._optimizer.before = [self._before_step]
        self._optimizer.after = [self._after_step]
        names = [name for name, _ in named]
        adapters = [index for index, name in enumerate(names) if is_adapter(name)]
        base = [index for index, each in enumerate(parameters) if adapters and not each.requires_grad]
        frozen = sorted(set(base) - set(adapters))
        self._parameters = ParameterProbe(parameters, groups_of(names, self.blocks), adapters, frozen)
        self._updates = UpdateProbe()
        self._leftovers = LeftoverProbe(lambda: self._optimizer.optimizers)
        self._companions = CompanionProbe(find_companions(loss_fn, model), lambda: self._optimizer.optimizers)
        self._kept_copies = [(each, model) for each in self._companions.companions.values() if copies(each, model)]
        self._kept_copies += inner_copies(model)
        self._objective = ObjectiveProbe(model, lambda: self._optimizer.optimizers, learned, tokens, self._companions)
        self._order: list[int] = []
        self._entered: int | None = None  # id of the module that a training step calls first
        self._trained = PassCalls()  # of all sampled steps
        self._named = named
        self._spectral = SpectralProbe(list(self.matrices))
        self._system = SystemProbe(problems.unavailable)
        self._forward = ForwardProbe(model, self.blocks, self.units, problems, tokens)
        self._evaluation = EvaluationProbe(model)
        self._compiled = compiled
        self._on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
        self._forward_seen = False
        self._missed = 0
        self._armed: frozenset[str] = frozenset()
        self._quiet = (0, 0)  # from this step on, up to that one, nothing is measured
        self._sampling: frozenset[str] = frozenset()
        self._spectral_parts: list[int] = []  # that the coming step measures
        self._gradient_counts: dict[str, Tensor] = {}
        self._digests: DigestProbe | None = None  # with several processes

    def describe_companions(self) -> dict[str, object]:
        """The weights of what the loss function keeps beside the model; empty without."""
        weights = [
            {**weight, "name": f"{name}.{weight['name']}"}
            for name, module in self._companions.companions.items()
            for weight in describe_weights(module)
        ]
        return {"companion_weights": weights} if weights else {}

    def compare_ranks(self, given: nn.Module, found: Callable[[str, dict[str, object]], None]) -> None:
        """Record what the ranks of a job are compared by; `given` is the model, or the wrapper around it.

        `found` gets the name of an event and its facts.
        """
        groups = groups_of([name for name, _ in self._named], self.blocks)
        sampled = self._cadence.every["digests"] > 0
        self._gradients.keep_clip_norm = True
        self._digests = DigestProbe(
            given, self._named, groups, lambda: self._optimizer.optimizers, found, sampled=sampled
        )

    @property
    def program(self) -> tuple[nn.Module, list[OptimizerLike], SchedulerLike | None, ScalerLike | None]:
        """Model, optimizers, scheduler and scaler as they are now: a rebuilt optimizer replaces the old one."""
        return self._model, self._optimizer.optimizers, self._scheduler, self._scaler.scaler

    @property
    def compiled(self) -> bool:
        return self._compiled

    def validated(self) -> dict[str, float]:
        """In which mode the model (or a copy of it) was when it was validated since the last time this was asked."""
        return self._evaluation.take()

    def validation_inputs(self) -> dict[str, float]:
        """Statistics of what the model was given in the validation that has just been; ask before `validated`."""
        return {f"val_inputs/{name}": value for name, value in self._evaluation.take_inputs(self._entered).items()}

    def validation_calls(self) -> dict[str, float | str]:
        """How the model was run in the validation that has just been, beside training; ask before `validated`."""
        names = {id(module): name for name, module in self._model.named_modules()}
        return beside(self._trained, self._evaluation.calls, names)

    def validation_buffers(self) -> dict[str, float]:
        """With several processes, the digest of the buffers that the model was validated with; {} without buffers."""
        return {} if self._digests is None else self._digests.buffers(self._model)

    def attach(self, step: int) -> None:
        if self._sharded:
            self._problems.unavailable(
                "norms of sharded parameters",
                "the parameters are spread over processes, and adding up their norms needs every rank to take part: "
                "let every rank record and call watch(…, collectives=True)",
                missing=["grad_norm", *_NEED_WHOLE_PARAMETERS],
            )
        self._gradients.attach()
        backward_hook.observe(self._backward_begins)
        self._optimizer.attach()
        if self._compiled:
            self._problems.unavailable(
                "forward probe",
                "the model is compiled: nothing is put into its graph, so activations, dead units and attention are "
                "not recorded; run a few eager steps to see them",
                missing=list(FORWARD_PROBES[:3]),
            )
        self._quiet = (0, 0)
        self.prepare(step)

    def detach(self) -> None:
        self._forward.disarm()
        self._companions.disarm()
        backward_hook.forget(self._backward_begins)
        self._evaluation.disarm()
        self._optimizer.detach()
        self._gradients.detach()

    def forget(self, step: int) -> None:
        """Let go of what was seen of a dropped step; `step` is the one that comes instead."""
        self._quiet = (0, 0)
        self._forward.disarm()
        self._gradients.forget()
        self._leftovers.forget()
        self._objective.forget()
        self._optimizer.forget()
        if self._digests is not None:
            self._digests.forget()
        self.prepare(step)

    def prepare(self, step: int) -> None:
        """Decide what the coming step will measure; called before its forward pass."""
        if not self._compiled and not something_was_compiled():  # a global hook makes torch.compile warn
            self._evaluation.arm()
        if self._quiet[0] <= step < self._quiet[1]:
            return
        due = self._cadence.due(step)
        if self._sharded:
            due -= _NEED_WHOLE_PARAMETERS
        if self._digests is None:
            due -= {"digests"}
        self._spectral_parts = [] if self._sharded else self._cadence.parts("spectral", step, self._spectral.parts)
        idle = not due and not self._spectral_parts
        self._quiet = (step, self._cadence.next_sample(step, self._spectral.parts)) if idle else (0, 0)
        self._sampling = due - {"spectral"}
        self._gradients.sample = "blocks" in due
        self._leftovers.sample = "objective" in due and not self._sharded
        self._objective.sample = "objective" in due and not self._compiled
        self._gradients.when_ended = self._count_gradients if "histograms" in due else None
        if self._objective.sample:
            self._companions.arm()
        wanted = due & frozenset(FORWARD_PROBES)
        self._armed = wanted if not self._compiled and not self._problems.failed("forward probe") else frozenset()
        if self._armed:
            self._forward.arm(self._armed)

    def _backward_begins(self, root: Tensor | None) -> None:
        self._gradients.starts(root)
        if "objective" in self._sampling:
            self._contained("leftover gradients", self._leftovers.backward_begins)
            self._contained(
                "objective", self._objective.backward_begins, root, self._forward.outputs, self._forward.taken
            )
            self._forward.backward_begins()

    def _before_step(self, optimizer: OptimizerLike) -> None:
        if self._scaler.search():
            self._learned(scaler=type(self._scaler.scaler).__name__)
        self._gradients.before_step(optimizer)
        if "blocks" in self._sampling and not self._problems.failed("update ratio"):
            with self._problems.contained("update ratio"):
                self._parameters.snapshot(optimizer)

        if "objective" in self._sampling:
            self._contained("leftover gradients", self._leftovers.before_step, optimizer)
        if "moments" in self._sampling:
            self._contained("update", self._updates.snapshot, optimizer, self._optimizer.first_group(optimizer))

        if self._digests is not None:
            self._contained("digests", self._digests.before_step, optimizer, "digests" in self._sampling)

    def _after_step(self, optimizer: OptimizerLike) -> None:
        self._gradients.after_step()
        self._leftovers.after_step()
        if "moments" in self._sampling:
            self._contained("update", self._updates.compare, optimizer, self._optimizer.first_group(optimizer))

    # -- at run.step ------------------------------------------------------------------------------

    def fill(self, row: ProbeRow) -> list[ProbeRow]:
        """Complete the step's row and return the rows of the sampled tables."""
        gradients, stepped = self._gradients.take(), self._optimizer.take(row)
        if self._scheduler is not None:
            row.put("scheduler_steps", steps_taken(self._scheduler))
        if self._on_cpu:
            row.do_later(self._describe, gradients, stepped)
        else:
            self._describe(row, gradients, stepped)
        if self._digests is not None:
            self._contained("digests", self._digests.step_ended, row, "digests" in self._sampling)
        if not self._sampling and not self._spectral_parts:
            return []
        rows = [self._digest_row(row)] if self._digests is not None and "digests" in self._sampling else []
        samples = ProbeRow("samples", row.step, row.at)
        self._order = []
        if self._armed:
            self._take_forward(samples, rows)
        if "objective" in self._sampling:
            self._contained("leftover gradients", self._leftovers.fill, samples, gradients.backwards > 0)
            self._contained("objective", self._objective.fill, samples, self._order)
            self._contained("copies", self._put_copy, samples)
        self._sample(samples)
        if gradients.sampled is not None:
            self._contained("block gradients", self._parameters.fill_gradients, samples, gradients.sampled)
        return [each for each in (samples, *rows) if each.values or each.late]

    def _digest_row(self, row: ProbeRow) -> ProbeRow:
        digests = ProbeRow("digests", row.step, row.at)
        if self._digests is not None:
            self._contained("digests", self._digests.fill, digests)
        return digests

    def last_row(self, step: int, at: float) -> ProbeRow:
        """With several processes, the parameters at the end of the run, which seldom falls on a sampled step."""
        row = ProbeRow("digests", step, at)
        if self._digests is not None:
            self._contained("digests", self._digests.fill_end, row)
        return row

    def _describe(self, row: ProbeRow, gradients: GradientFacts, stepped: OptimizerFacts) -> None:
        try:  # in every step: a context manager is three calls
            self._gradients.fill(row, gradients, self._declared_clip)
        except Exception as problem:
            self._problems.report("gradient norm", problem)
        try:
            self._optimizer.fill(row, stepped)
        except Exception as problem:
            self._problems.report("optimizer", problem)

    def _sample(self, row: ProbeRow) -> None:
        due = self._sampling
        if "blocks" in due:
            self._contained("parameter norms", self._parameters.fill, row, self._optimizer.optimizers)
        if "moments" in due:
            self._contained("moments", self._optimizer.moments, row)
            self._contained("update", self._updates.fill, row)
        if self._spectral_parts:
            self._contained("spectral norms", self._spectral.fill, row, self._spectral_parts)
        if "system" in due:
            self._contained("system", lambda target: target.values.update(self._system.measure()), row)
        if "histograms" in due:
            self._contained("histograms", self._put_histograms, row)

    def _contained(self, what: str, action: Callable[..., None], *arguments: object) -> None:
        if not self._problems.failed(what):
            with self._problems.contained(what):
                action(*arguments)

    def _put_copy(self, row: ProbeRow) -> None:
        """How far a copy that ran in this step, such as a target network, is from the model."""
        ran = [finder.take() for finder in (self._forward.copies, self._evaluation.copies)]
        pairs = [(each, self._forward.copies.model) for each in ran if each is not None] + self._kept_copies
        if pairs and not self._sharded:
            names = [f"copy/{name}" for name in ("distance", "size", "model_size")]
            row.put_many(sizes(*pairs[0]), by_names(names))

    def _count_gradients(self) -> None:
        self._gradient_counts = {
            name: magnitude_counts(parameter.grad) for name, parameter in self._named if parameter.grad is not None
        }

    def _put_histograms(self, row: ProbeRow) -> None:
        for name, parameter in self._named:
            row.put_many(magnitude_counts(parameter), by_names(histogram_names("weight", name)))
        for name, counts in self._gradient_counts.items():
            row.put_many(counts, by_names(histogram_names("gradient", name)))
        self._gradient_counts = {}

    def _take_forward(self, row: ProbeRow, digests: list[ProbeRow]) -> None:
        sample = self._forward.disarm()
        self._missed = 0 if sample is not None else self._missed + 1
        if sample is None and self._missed < _MISSES and not something_was_compiled():
            return
        if sample is None:
            self._problems.unavailable(
                "forward probe",
                "no training forward pass of the watched model was seen: it may run inside a compiled function, in "
                "another process, or without gradients",
                missing=list(FORWARD_PROBES[:3]),
            )
            return
        self._order = list(sample.order)
        self._trained.take_in(sample.passed)
        self._entered = sample.entered if sample.entered is not None else self._entered
        self._contained("forward sample", put_forward, row, sample)
        for each in digests:
            self._contained("digests", each.put, "input_digest", sample.given)
        if not self._forward_seen:
            self._forward_seen = True
            self._contained(
                "forward facts", learn, sample, self._learned, self._problems, self._armed, bool(self.blocks)
            )
