"""The gradient norm of the local shards, and the norm that clipping used, of parameters spread over processes.

The whole norm would need a collective. The shards before and after clipping show by which factor a rank clipped, and so
the norm that it used: each rank must have used the whole one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steadyrun.probes.clip_hook import ClipCall
from steadyrun.probes.gradients import SAME_NORM, GradientFacts, GradientProbe, total_of
from steadyrun.probes.norms import global_norm
from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.probes.tensor_digests import local
from steadyrun.program.torch_compat import is_spread


class LocalGradientProbe(GradientProbe):
    """Follows the gradients of this rank's shards through backward, clip and step; nothing is communicated."""

    def starts(self, root: Tensor | None) -> None:
        super().starts(None if root is None or is_spread(root) else root)

    def _gradients(self) -> list[Tensor]:
        return [local(gradient) for gradient in super()._gradients()]

    def _take_clip(self, call: ClipCall) -> None:
        facts = self._facts
        facts.clip, facts.clip_threshold = call, call.max_norm
        norm = None if is_spread(call.total_norm) else call.total_norm
        facts.clip_norm = self._scaler.unscaled(norm) if self._scaler.gradients_are_scaled() else norm

    def _note_own_gradients(self, optimizer: OptimizerLike) -> None:
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = global_norm([local(parameter.grad) for parameter in own if parameter.grad is not None])
        if norm is not None:
            self._facts.per_optimizer += (norm,)

    def fill(self, row: ProbeRow, facts: GradientFacts, declared_clip: float | None) -> None:
        """Put a step's numbers into its row."""
        row.put("backwards", float(facts.backwards))
        row.put("loss_scale", facts.loss_scale)
        row.put("backward_loss", total_of(facts.roots))
        if self.several_optimizers:
            together = [norm.to(facts.per_optimizer[0].device) for norm in facts.per_optimizer]
            row.put("local_grad_norm", torch.linalg.vector_norm(torch.stack(together)) if together else None)
            return
        row.put("local_grad_norm", facts.at_step if facts.at_backward is None else facts.at_backward)
        row.put("local_grad_norm_applied", facts.at_step)
        row.put("clip_norm", facts.clip_norm)
        row.do_later(_finish_clip, declared_clip if facts.clip_threshold is None else facts.clip_threshold)


def _finish_clip(row: ProbeRow, threshold: float | None) -> None:
    values = row.values
    if threshold is not None:
        values["clip_threshold"] = threshold
    before, applied = values.get("local_grad_norm"), values.get("local_grad_norm_applied")
    if before is None or applied is None:
        return
    clipped = applied < before * (1 - SAME_NORM)
    values["clipped"] = float(clipped)
    if clipped and threshold is not None and applied > 0:
        values.setdefault("clip_norm", threshold * before / applied)
