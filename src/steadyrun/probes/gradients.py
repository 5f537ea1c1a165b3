"""The global gradient norm before clipping, and whether and how it was clipped.

Gradients must be seen between the end of backward and the optimizer's step; `run.step` may come after
`zero_grad`. Two ways to know the norm before clipping:

- torch's `clip_grad_norm_` was called on all gradients: it has computed the norm, nothing is added;
- otherwise the norm is taken when backward ends and again when the optimizer steps, and the two compared.
  That is right for clipping by hand, in any order, and for no clipping. While no clipping by hand was ever seen, large
  gradients that nothing has changed in between, as far as their versions and a few of their elements show, are not
  gone through twice.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from steadyrun.probes import clip_hook
from steadyrun.probes.clip_hook import ClipCall
from steadyrun.probes.loss_scale import ScalerView
from steadyrun.probes.norms import global_norm, norms, whole
from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.probes.problems import Problems
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.program.torch_compat import after_backward, backward_id

# Two norms of the same gradients differ by rounding only; a clip that changes less than this changes nothing.
SAME_NORM = 1e-3

# Gradients with fewer elements are gone through twice in less time than it takes to see that they did not change.
_MANY = 2**18
_COMPARED, _ELEMENTS = 2, 64  # tensors, and elements of each, that show whether a gradient changed
_COMPARED_STEPS = 20  # at the start, in which all gradients are gone through twice


@dataclass(frozen=True)
class SampledNorms:
    """The gradient norms of the parameters at `indices`; the others had no gradient."""

    indices: list[int]
    norms: Tensor


@dataclass(slots=True)
class GradientFacts:
    """What was seen of the gradients since the last `run.step`."""

    backwards: int = 0
    roots: list[Tensor | None] = field(default_factory=list)  # what each backward began from
    at_backward: Tensor | None = None  # norm when backward ended, unscaled
    at_step: Tensor | None = None  # norm when the optimizer stepped, unscaled
    sampled: SampledNorms | None = None
    loss_scale: Tensor | float | None = None
    clip: ClipCall | None = None  # until the step is over
    clip_threshold: float | None = None
    compared_norm: Tensor | None = None  # the norm that the clip compared with its threshold
    clip_norm: Tensor | None = None  # the same, unscaled
    clip_tells: bool = False  # it saw every gradient, with the Euclidean norm
    clip_came_late: bool = False
    clip_is_first: bool = False  # no backward pass had ended since the optimizer's last step
    clip_came_early: bool = False  # before the backward pass whose gradients the optimizer steps with
    unchanged: Tensor | None = None  # 1 if elements are at the step as they were when backward ended: so is the norm
    per_optimizer: tuple[Tensor, ...] = ()  # where several optimizers share the parameters
    stepped: bool = False

    def forget_clip(self) -> None:
        """The clip that was seen is not one of the gradients that follow."""
        self.clip, self.clip_threshold, self.clip_norm = None, None, None
        self.clip_tells = self.clip_is_first = False


class GradientProbe:
    """Follows the gradients of the watched parameters through backward, clip and step."""

    def __init__(self, parameters: list[nn.Parameter], scaler: ScalerView, problems: Problems) -> None:
        self._parameters = parameters
        self._ids = {id(parameter) for parameter in self._parameters}
        self._scaler = scaler
        self._problems = problems
        self._facts = GradientFacts()
        self._clip_tells = False  # the last step was clipped by torch's function, on all gradients
        self._in_step = False
        self._fresh = False  # a backward pass has ended since the last step of an optimizer
        self._queued_in = -1
        self._root: Tensor | None = None
        self.several_optimizers = False
        self.keep_clip_norm = False  # with several processes: it shows whether all of them clipped by one norm
        self.sample = False  # keep the norm of every parameter's gradient in this step
        self.when_ended: Callable[[], None] | None = None  # called at the end of every backward
        self._handles: dict[int, RemovableHandle] = {}
        self._order: list[int] | None = []  # who got a gradient, in order; None once that is known
        self._keep: set[int] = set()
        self._clips_by_hand = False
        self._steps = 0
        self._ended: tuple[int, Tensor] | None = None  # the versions of all gradients, and a few of their elements
        plain = all(type(p) is nn.Parameter and p.layout == torch.strided for p in parameters)
        many = sum(parameter.numel() for parameter in parameters) >= _MANY
        largest = sorted(parameters, key=lambda parameter: -parameter.numel())
        self._compared = largest[:_COMPARED] if plain and many else []

    def attach(self) -> None:
        for index in range(len(self._parameters)):
            self._hook(index)
        clip_hook.observe(self._clipped)

    def detach(self) -> None:
        clip_hook.forget(self._clipped)
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    # -- while a step runs ------------------------------------------------------------------------

    def _hook(self, index: int) -> None:
        parameter = self._parameters[index]
        if index not in self._handles and parameter.is_leaf and parameter.requires_grad:
            hook = _forwarding(self._accumulated, index)
            self._handles[index] = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def starts(self, root: Tensor | None) -> None:
        """A backward pass begins at `root`."""
        self._root = None if root is None else root.detach()

    def _accumulated(self, index: int) -> None:
        if self._order is not None:
            self._order.append(index)
        # One callback per backward; a backward that raises drops its own, so it is not a flag that is kept.
        backward = backward_id()
        if self._queued_in != backward:
            self._queued_in = backward
            after_backward(self._backward_ended)

    def _backward_ended(self) -> None:
        self._queued_in = -1
        try:
            self._note_first_and_last()
            facts = self._facts
            facts.backwards += 1
            self._drop_early_clip()
            root, self._root = self._root, None
            if self._in_step and facts.at_backward is not None:
                return  # a closure that is called again: the first gradient is the step's
            facts.roots.append(self._scaler.unscaled(root))
            facts.loss_scale = self._scaler.snapshot()
            if self.sample:
                facts.sampled = self._sampled_norms()
                facts.at_backward = torch.linalg.vector_norm(facts.sampled.norms) if facts.sampled else None
            elif not self.several_optimizers and (self._in_step or not self._clip_tells):
                facts.at_backward = self._scaler.unscaled(global_norm(self._gradients()))
                self._ended = self._glimpse()
            if self.when_ended is not None:
                self.when_ended()
        except Exception as problem:
            self._problems.report("gradient norm", problem)

    def _note_first_and_last(self) -> None:
        """Which parameters get their gradient first and last: hooks on these two are enough.

        The last one matters for re-entrant checkpointing, whose inner backward passes end early.
        """
        if self._order:
            self._keep |= {self._order[0], self._order[-1]}
            self._order = []

    def _keep_needed_hooks(self) -> None:
        """After one whole step (it may have several backward passes) the other hooks can go."""
        if self._order is not None and self._keep:
            for index in [index for index in self._handles if index not in self._keep]:
                self._handles.pop(index).remove()
            self._order = None

    def _clipped(self, call: ClipCall) -> None:
        try:
            facts = self._facts
            if not any(id(parameter) in self._ids for parameter in call.parameters[:1]):
                return
            if facts.stepped and not self._in_step:
                facts.clip_came_late = True
            elif facts.clip is None:
                self._take_clip(call)
        except Exception as problem:
            self._problems.report("clipping", problem)

    def _drop_early_clip(self) -> None:
        """A clip between the last step and this backward pass was not one of these gradients."""
        if self._facts.clip_is_first and not self._in_step:
            self._facts.forget_clip()
            self._facts.clip_came_early = True
        self._fresh = True

    def _take_clip(self, call: ClipCall) -> None:
        facts = self._facts
        facts.clip, facts.clip_threshold = call, call.max_norm
        facts.clip_is_first = not self._fresh
        facts.clip_norm = facts.compared_norm = whole(call.total_norm)
        facts.clip_tells = call.norm_type == 2.0 and self._covers(call.parameters)
        if self._scaler.gradients_are_scaled():
            facts.clip_norm = self._scaler.unscaled(facts.clip_norm)
            self._problems.notice(
                "clip-before-unscale", "clip_grad_norm_ came before scaler.unscale_ and compared scaled gradients"
            )

    def _covers(self, clipped: list[Tensor]) -> bool:
        """Whether all gradients were clipped together, and nothing else."""
        if len(clipped) == len(self._parameters) and all(map(operator.is_, clipped, self._parameters)):
            return True
        covered = {id(parameter) for parameter in clipped}
        mine = {id(parameter) for parameter in self._parameters if parameter.grad is not None}
        return mine <= covered <= self._ids

    def before_step(self, optimizer: OptimizerLike) -> None:
        """The optimizer is about to step; one with a closure has called it once."""
        self._in_step = True
        facts = self._facts
        facts.stepped = True
        facts.clip_came_late = False
        if self.several_optimizers:
            self._note_own_gradients(optimizer)
            return
        self._clip_tells = facts.clip_tells
        if not facts.clip_tells and not self._is_unchanged():
            norm = global_norm(self._gradients())
            still_scaled = getattr(optimizer, "grad_scale", None) is not None
            facts.at_step = self._scaler.unscaled(norm) if still_scaled else norm

    def _glimpse(self) -> tuple[int, Tensor] | None:
        """What shows whether gradients are changed in place; None if they are to be gone through in any case."""
        if not self._compared or self._clips_by_hand or self._steps < _COMPARED_STEPS or self._scaler.active:
            return None
        gradients = [parameter.grad for parameter in self._compared]
        if any(gradient is None or gradient.layout != torch.strided for gradient in gradients):
            return None
        parts = [g.detach().reshape(-1)[:: max(1, g.numel() // _ELEMENTS)] for g in gradients if g is not None]
        device = parts[0].device
        return sum(g._version for g in self._gradients()), torch.cat([part.to(device) for part in parts])

    def _is_unchanged(self) -> bool:
        """Whether the norm at the end of backward is that of the step; what elements show is known later."""
        ended, self._ended = self._ended, None
        now = None if ended is None else self._glimpse()
        if ended is None or now is None or self._facts.backwards != 1:
            return False
        if now[0] != ended[0] or now[1].shape != ended[1].shape:
            return False
        self._facts.at_step = self._facts.at_backward
        self._facts.unchanged = ((now[1] == ended[1]) | ended[1].isnan()).all()
        return True

    def _note_own_gradients(self, optimizer: OptimizerLike) -> None:
        """With several optimizers each one's gradients count when it steps; the others' may be stale."""
        facts = self._facts
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        clipped = {id(parameter) for parameter in facts.clip.parameters} if facts.clip is not None else set()
        if facts.clip_norm is not None and clipped == {id(parameter) for parameter in own}:
            norm: Tensor | None = facts.clip_norm
        else:
            norm = global_norm([parameter.grad for parameter in own if parameter.grad is not None])
        facts.forget_clip()
        if norm is not None:
            facts.per_optimizer += (norm,)

    def after_step(self) -> None:
        self._in_step = self._fresh = False

    # -- at run.step ------------------------------------------------------------------------------

    def forget(self) -> None:
        """A step was given up: the next one begins anew."""
        self._facts, self._root, self._in_step, self._ended = GradientFacts(), None, False, None

    def take(self) -> GradientFacts:
        """What was seen since the last `run.step`; the next one begins anew."""
        facts, self._facts = self._facts, GradientFacts()
        facts.clip, self._ended, self._steps = None, None, self._steps + 1
        if facts.backwards == 0:
            self._relearn()
        else:
            self._keep_needed_hooks()
        return facts

    def fill(self, row: ProbeRow, facts: GradientFacts, declared_clip: float | None) -> None:
        """Put a step's numbers into its row."""
        if facts.clip_came_late:
            why = "clip_grad_norm_ came after the optimizer's step: it did nothing"
            self._problems.notice("clip-after-step", why, step=row.step)
        if facts.clip_came_early:
            why = "clip_grad_norm_ came before backward(): it did nothing"
            self._problems.notice("clip-before-backward", why, step=row.step)
        row.put("backwards", float(facts.backwards))
        row.put("loss_scale", facts.loss_scale)
        row.put("backward_loss", total_of(facts.roots))
        if self.several_optimizers:
            together = [norm.to(facts.per_optimizer[0].device) for norm in facts.per_optimizer]
            row.put("grad_norm", torch.linalg.vector_norm(torch.stack(together)) if together else None)
        elif facts.clip_threshold is not None and facts.clip_tells:
            row.put("grad_norm", facts.clip_norm)
            row.put("clip_norm", facts.clip_norm if self.keep_clip_norm else None)
            row.put("_compared_norm", facts.compared_norm)
            row.do_later(_finish_clip_call, facts.clip_threshold)
        else:
            row.put("grad_norm", facts.at_step if facts.at_backward is None else facts.at_backward)
            row.put("grad_norm_applied", facts.at_step)
            row.put("_unchanged", facts.unchanged)
            threshold = declared_clip if facts.clip_threshold is None else facts.clip_threshold
            row.do_later(self._finish_comparison, threshold)

    def _finish_comparison(self, row: ProbeRow, threshold: float | None) -> None:
        values = row.values
        if threshold is not None:
            values["clip_threshold"] = threshold
        if values.pop("_unchanged", 1.0) == 0:  # all gradients are gone through from now on; for this step it is late
            self._clips_by_hand = True
            values.pop("grad_norm_applied", None)
        before, applied = values.get("grad_norm"), values.get("grad_norm_applied")
        if before is not None and applied is not None:
            clipped = applied < before * (1 - SAME_NORM)
            self._clips_by_hand = self._clips_by_hand or clipped
            values["clipped"] = float(clipped)

    def _relearn(self) -> None:
        """No backward was seen: other parameters may be in use now. Listen to all of them once more."""
        if self._order is None:
            self._order, self._keep = [], set()
            for index in range(len(self._parameters)):
                self._hook(index)

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _sampled_norms(self) -> SampledNorms | None:
        indices = [index for index, parameter in enumerate(self._parameters) if parameter.grad is not None]
        per_parameter = self._scaler.unscaled(norms(self._gradients())) if indices else None
        return None if per_parameter is None else SampledNorms(indices, per_parameter)


def total_of(roots: list[Tensor | None]) -> Tensor | None:
    """The sum of what the backward passes of a step began from; None if one of them is not known."""
    known = [root.reshape(()) for root in roots if root is not None]
    if not known or len(known) < len(roots):
        return None
    return known[0] if len(known) == 1 else torch.stack([root.to(known[0].device) for root in known]).sum()


def _forwarding(receive: Callable[[int], None], index: int) -> Callable[[Tensor], None]:
    def hook(_parameter: Tensor) -> None:
        receive(index)

    return hook


def _finish_clip_call(row: ProbeRow, max_norm: float) -> None:
    values = row.values
    compared, norm = values.pop("_compared_norm", None), values.get("grad_norm")
    if math.isfinite(max_norm):  # some trainers "clip" to infinity where they only want the norm
        values["clip_threshold"] = max_norm
    if compared is not None and norm is not None:
        clipped = compared > max_norm
        values["clipped"] = float(clipped)
        values["grad_norm_applied"] = norm * max_norm / (compared + 1e-6) if clipped else norm
