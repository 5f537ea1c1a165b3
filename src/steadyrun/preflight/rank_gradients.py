"""Gradients of one step on several ranks, and those it may be compared with, as inner products.

Each rank keeps a sample of every gradient. The Gram matrices of all ranks decide what the step's gradient is: that of
the joined batch, a mean of the ranks' own, that of one rank alone, or a multiple of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.step_trace import StepTrace, dense
from steadyrun.program.attributes import local_part

Floats = NDArray[np.float64]

STEP, STEP_ON_JOINED, JOINED, JOINED_BY_PART, RANKS = 0, 1, 2, 3, 4
"""Rows of a Gram matrix: the program's step, the same step with the joined batch on every rank, the gradient of the
loss of one joined batch, the mean over micro-batches of such, and from `RANKS` on the gradient of each rank's batch."""

_SAMPLED = 16_384  # elements of a parameter


def of_step(bench: Bench, trace: StepTrace) -> dict[str, Tensor]:
    """The gradients with which the optimizer stepped, by parameter name."""
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    return {names[key]: gradient for key, gradient in trace.gradients.items() if key in names}


def of_loss(bench: Bench, batches: Sequence[Any]) -> dict[str, Tensor]:
    """The gradient of the mean loss of the batches, as `loss_fn` gives it without averaging over ranks."""
    with bench.pristine(), without_averaging(bench.task.model), torch.enable_grad():
        for parameter in bench.parameters.values():
            parameter.grad = None
        for batch in batches:
            loss = bench.loss(batch) / len(batches)
            with bench.their_code("loss.backward"):
                loss.backward()  # type: ignore[no-untyped-call]
        return {
            name: parameter.grad.detach().clone()
            for name, parameter in bench.parameters.items()
            if parameter.grad is not None
        }


@contextmanager
def without_averaging(model: nn.Module) -> Iterator[None]:
    """DDP leaves gradients as they are. FSDP2 averages equal gradients, which changes nothing."""
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, nn.parallel.DistributedDataParallel) and not module.static_graph:
                stack.enter_context(module.no_sync())
        yield


def sampled(bench: Bench, gradients: Mapping[str, Tensor]) -> Floats:
    """Evenly spaced elements of every gradient, zeros for a parameter without one."""
    parts = []
    for name, parameter in bench.parameters.items():
        size = local_part(parameter.detach()).numel()
        stride = max(1, -(-size // _SAMPLED))
        gradient = gradients.get(name)
        if gradient is None:
            parts.append(np.zeros(len(range(0, size, stride))))
            continue
        values = dense(local_part(gradient).to_dense() if gradient.is_sparse else local_part(gradient))
        parts.append(values.reshape(-1)[: size or None : stride].double().cpu().numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


def gram(vectors: Sequence[Floats]) -> Floats:
    """The inner products of all pairs."""
    rows = np.stack(vectors)
    return np.asarray(rows @ rows.T, float)


def fit(products: Floats, step: Floats, other: Floats) -> tuple[float, float]:
    """How many times `other` the gradient `step` is, and the fraction of it that this leaves unexplained.

    Both are weights of the rows of the Gram matrix `products`.
    """
    ours, theirs = float(step @ products @ step), float(other @ products @ other)
    shared = float(step @ products @ other)
    if ours <= 0 or theirs <= 0:
        return float("nan"), float("inf") if ours > 0 or theirs > 0 else 0.0
    return shared / theirs, float(np.sqrt(max(0.0, 1 - shared * shared / (ours * theirs))))


def row(products: Floats, *indices: int) -> Floats:
    """The weights of a mean of rows."""
    weights = np.zeros(len(products))
    weights[list(indices)] = 1 / len(indices)
    return weights


def weights_of_ranks(products: Floats, joined: int = JOINED) -> tuple[Floats, float]:
    """The weights with which the ranks' gradients give that of the joined batch, and the fraction left unexplained."""
    ranks = products[RANKS:, RANKS:]
    weights = np.asarray(np.linalg.lstsq(ranks, products[RANKS:, joined], rcond=1e-10)[0], np.float64)
    mixed = np.zeros(len(products))
    mixed[RANKS:] = weights
    return weights, fit(products, row(products, joined), mixed)[1]
