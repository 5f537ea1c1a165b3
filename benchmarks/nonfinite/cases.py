"""The planted origins and the innocents as one table, and how each becomes a program of one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nonfinite import innocents, losses, plants
from nonfinite.models import MODELS, PLANTS, Batch, make_batch
from steadyrun.program.task import Task

Planted = tuple[Task, Callable[[], Tensor], Batch]
Change = Callable[[nn.Module, Batch], None]
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One program and what a hunt must say of it; a stage of "" means nothing.

    `dtype` is the one in which the fault shows; with "any" it shows in all. `half` makes the model itself float16.
    """

    stage: str
    module: str
    operation: str
    cause: str
    kind: str
    plant: type[nn.Module] = nn.Identity
    loss: Callable[[nn.Module, Batch], Tensor] = losses.plain
    optimizer: Callable[[Any], Any] = field(default=lambda weights: torch.optim.AdamW(weights, lr=1e-3))
    change: Change = lambda *_: None
    scaler: float = 0.0
    clip: float = 1.0
    dtype: str = "any"
    half: bool = False


def planted(kind: str, plant: type[nn.Module], operation: str, cause: str, stage: str = "forward", **more: Any) -> Case:
    """A faulty module at the kind's usual place; `inside` is the part of it that is to be named."""
    inside = more.pop("inside", "")
    return Case(stage, PLANTS[kind] + inside, operation, cause, kind, plant, **more)


def at_update(kind: str, operation: str, cause: str, optimizer: Callable[[Any], Any], **more: Any) -> Case:
    """In a small dtype other gradients may be zero, too; so the arithmetic is float32."""
    return Case(
        "update",
        f"{PLANTS[kind]}.scale",
        operation,
        cause,
        kind,
        plants.Idle,
        optimizer=optimizer,
        dtype="fp32",
        **more,
    )


def innocent(kind: str, plant: type[nn.Module] = nn.Identity, **more: Any) -> Case:
    return Case("", "", "", "", kind, plant, **more)


def pad_a_row(_: nn.Module, batch: Batch) -> None:
    batch["padding"][1] = True


def poison(name: str, value: float) -> Change:
    def change(_: nn.Module, batch: Batch) -> None:
        batch[name].view(-1)[3] = value

    return change


def spoil_a_row(model: Any, batch: Batch) -> None:
    with torch.no_grad():
        model.embedding.weight[batch["words"][0, 0]] = float("inf")


def large_weight(model: Any, _: Batch) -> None:
    with torch.no_grad():
        model.get_submodule(PLANTS["rnn"]).scale.fill_(1e30)


def adam(**options: Any) -> Callable[[Any], Any]:
    return lambda weights: torch.optim.Adam(weights, lr=1e-3, **options)


P = planted
CULPRITS: dict[str, Case] = {
    # forward
    "log of a softmax": P("transformer", plants.log_of_probability, "log", "log-of-zero"),
    "log of a negative": P("cnn", plants.log_of_negative, "log", "log-of-negative"),
    "share of nothing": P("rnn", plants.share_of_nothing, "div", "division-by-zero"),
    "softmax by hand": P("transformer", plants.naive_softmax, "exp", "exp-overflow"),
    "mean of a selection": P("cnn", plants.mean_of_selected, "mean", "mean-of-nothing"),
    "deviation of one": P("rnn", plants.deviation_of_one, "std", "variance-of-one"),
    "angle past one": P("transformer", plants.angle, "acos", "out-of-domain"),
    "variance below zero": P("cnn", plants.rounded_variance, "sqrt", "sqrt-of-negative"),
    "inf minus inf": P("rnn", plants.distance_to_infinity, "sub", "inf-minus-inf"),
    "mask multiplied": P("transformer", plants.multiplied_mask, "mul", "zero-times-infinity"),
    "explosion": P("rnn", plants.explosion, "pow", "float32-overflow"),
    "past 65504": P("transformer", plants.Wide, "addmm", "fp16-overflow", inside=".inner.1", dtype="fp16"),
    "norm without epsilon": P("transformer", plants.Normalised, "layer_norm", "division-by-zero", inside=".norm"),
    "all keys padded": P("transformer", plants.Masked, "softmax", "fully-masked-row", inside=".attention"),
    "a row fully masked": Case(
        "forward", "blocks.0.attention", "softmax", "fully-masked-row", "transformer", change=pad_a_row
    ),
    "an embedding row": Case("state", "embedding.weight", "", "non-finite-state", "transformer", change=spoil_a_row),
    "a feature is NaN": Case("data", "series", "", "non-finite-input", "rnn", change=poison("series", float("nan"))),
    "a pixel is inf": Case("data", "images", "", "non-finite-input", "cnn", change=poison("images", float("inf"))),
    # loss
    "loss: log of softmax": Case("loss", "", "log", "log-of-zero", "cnn", loss=losses.log_of_softmax),
    "loss: all ignored": Case("loss", "", "nll_loss", "mean-of-nothing", "transformer", loss=losses.all_ignored),
    "loss: empty mask": Case("loss", "", "div", "division-by-zero", "rnn", loss=losses.empty_mask),
    "loss: huge error": Case("loss", "", "mse_loss", "float32-overflow", "cnn", loss=losses.huge_error),
    "loss: masked target": Case("loss", "", "index_fill", "escaped-infinity", "rnn", loss=losses.masked_target),
    "loss: masked entropy": Case("loss", "", "mul", "zero-times-infinity", "cnn", loss=losses.entropy_of_masked),
    # backward only
    "sqrt at zero": P("transformer", plants.root_at_zero, "sqrt", "gradient-at-zero", "backward"),
    "length by hand": P("cnn", plants.length_by_hand, "sqrt", "gradient-at-zero", "backward"),
    "where over 0/0": P("rnn", plants.guarded_afterwards, "div", "hidden-branch", "backward"),
    "power at zero": P("cnn", plants.power_at_zero, "pow", "gradient-at-zero", "backward"),
    "where over log": P("transformer", plants.guarded_log, "log", "hidden-branch", "backward"),
    "root of a size": P("rnn", plants.root_of_size, "sqrt", "gradient-at-zero", "backward"),
    "where over exp": P("transformer", plants.hidden_exponential, "exp", "hidden-branch", "backward"),
    "acos at one": P("cnn", plants.angle_at_one, "acos", "gradient-at-zero", "backward"),
    "own gradient": P("rnn", plants.own_gradient, "Reversed", "division-by-zero", "backward"),
    "checkpointed": P("transformer", plants.checkpointed, "sqrt", "gradient-at-zero", "backward"),
    "checkpointed again": P("rnn", plants.checkpointed_reentrant, "sqrt", "gradient-at-zero", "backward"),
    "a force": P("cnn", plants.forces, "sqrt", "gradient-at-zero", "backward"),
    "a common token": Case(
        "backward",
        "stages.1.body.plant.table",
        "embedding",
        "infinite-embedding-gradient",
        "cnn",
        plants.Common,
        losses.common_token,
        half=True,
    ),
    "loss: root of nothing": Case("backward", "", "sqrt", "gradient-at-zero", "transformer", loss=losses.root_of_error),
    "loss: penalty": Case("backward", "", "sqrt", "gradient-at-zero", "cnn", loss=losses.gradient_penalty),
    # update only
    "Adam without eps": at_update("rnn", "addcdiv", "optimizer-epsilon", adam(eps=0.0, foreach=False)),
    "Adam foreach": at_update("cnn", "addcdiv", "optimizer-epsilon", adam(eps=0.0, foreach=True)),
    "Adam fused": at_update("rnn", "fused_adam", "optimizer-epsilon", adam(eps=0.0, fused=True)),
    "Adam in half": Case(
        "update", "stages.0.body.conv.weight", "addcdiv", "optimizer-epsilon", "cnn", optimizer=adam(), half=True
    ),
    "RMSprop without eps": at_update(
        "cnn", "addcdiv", "optimizer-epsilon", lambda weights: torch.optim.RMSprop(weights, eps=0.0)
    ),
    "an optimizer of one's own": at_update("rnn", "div", "optimizer-epsilon", losses.Signed),
    "decay too large": at_update(
        "rnn",
        "add",
        "float32-overflow",
        lambda weights: torch.optim.SGD(weights, lr=1.0, weight_decay=1e10),
        change=large_weight,
    ),
    "an infinite rate": Case(
        "update",
        "embedding.weight",
        "add",
        "non-finite-rate",
        "transformer",
        optimizer=lambda weights: torch.optim.SGD(weights, lr=float("inf"), foreach=False),
    ),
}
INNOCENTS: dict[str, Case] = {
    "nothing at all, transformer": innocent("transformer"),
    "nothing at all, CNN": innocent("cnn"),
    "nothing at all, RNN": innocent("rnn"),
    "guarded before": innocent("rnn", innocents.guarded_before),
    "a metric on the side": innocent("cnn", innocents.side_metric),
    "a detached metric": innocent("transformer", innocents.detached_metric),
    "sampling": innocent("transformer", innocents.sampling),
    "an empty buffer, filled": innocent("rnn", innocents.filled_buffer),
    "norm at zero": innocent("cnn", innocents.norm_at_zero, dtype="fp32"),
    "log space": innocent("transformer", innocents.log_space),
    "minimum over inf": innocent("rnn", innocents.infinite_minimum),
    "one over inf": innocent("cnn", innocents.reciprocal_of_infinity),
    "a causal buffer": innocent("transformer", innocents.CausalBuffer),
    "fused attention": innocent("transformer", innocents.FusedAttention),
    "Adam, a zero gradient": innocent("rnn", plants.Idle, optimizer=adam()),
    "no clipping": innocent("cnn", clip=0.0),
    "a scale too large": innocent("transformer", scaler=2.0**30, dtype="fp16"),
    "a scale that fits": innocent("transformer", scaler=2.0**8, dtype="fp16"),
}


def build(name: str, device: str = "cpu", dtype: str = "fp32") -> Planted:
    """A program by name: the task, a function that runs its one step, and the batch; what it is made of is random
    but the same each time."""
    case = {**CULPRITS, **INNOCENTS}[name]
    torch.manual_seed(0)
    model, batch = MODELS[case.kind](case.plant()).to(device), make_batch(device)
    case.change(model, batch)
    if case.half:
        model.half()
    scaler = torch.amp.GradScaler(device, init_scale=case.scaler) if case.scaler else None
    task = Task(model, case.optimizer(model.parameters()), case.loss, scaler=scaler)
    small = "fp16" if case.half else (case.dtype if case.dtype != "any" else dtype)
    return task, lambda: step(task, batch, device, DTYPES[small], case.clip), batch


def step(task: Task, batch: Batch, device: str, dtype: torch.dtype, clip: float) -> Tensor:
    """One whole training step."""
    task.optimizer.zero_grad()
    with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
        loss = task.loss_fn(task.model, batch)
    if task.scaler is None:
        loss.backward()
    else:
        task.scaler.scale(loss).backward()
        task.scaler.unscale_(task.optimizer)
    if clip:
        nn.utils.clip_grad_norm_(task.model.parameters(), clip)
    if task.scaler is None:
        task.optimizer.step()
    else:
        task.scaler.step(task.optimizer)
        task.scaler.update()
    return loss.detach()
