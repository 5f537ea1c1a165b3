"""Operations of real code, one at a time, deep in a model: accused exactly when something non-finite arrives."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadyrun.program.task import Task
from steadyrun.replay.hunt import Culprit, hunt

WIDTH = 8
INF = math.inf
FIRST = torch.tensor([0])


class Spot(nn.Module):
    def __init__(self, function: Callable[[Any, Tensor], Tensor], part: nn.Module | None) -> None:
        super().__init__()
        self.function = function
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.part, x)


def off(x: Tensor) -> Tensor:
    """Zeros with a gradient."""
    return x * 0


def masked(x: Tensor) -> Tensor:
    return x.masked_fill(x < 99, -INF)


def hunted(
    function: Callable[[Any, Tensor], Tensor], part: nn.Module | None = None
) -> tuple[Culprit | None, Tensor, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(Spot(function, part)), nn.Linear(WIDTH, WIDTH))
    task = Task(model, torch.optim.SGD(model.parameters(), lr=1e-3), lambda model, batch: model(batch).pow(2).mean())
    batch = torch.randn(4, 6, WIDTH)
    losses = []

    def execute() -> Tensor:
        losses.append(task.loss_fn(model, batch))
        losses[0].backward()
        task.optimizer.step()
        return losses[0].detach()

    return hunt(task, execute, batch), losses[0].detach(), model


def padding() -> Tensor:
    return torch.ones(4, 6, dtype=torch.bool)


FAULTS: dict[str, tuple[str, str, str, Callable[[Any, Tensor], Tensor]]] = {
    "log": ("forward", "log", "log-of-zero", lambda _, x: x + off(x).log()),
    "log in place": ("forward", "log", "log-of-zero", lambda _, x: off(x).log_()),
    "log1p": ("forward", "log1p", "log-of-zero", lambda _, x: x + torch.log1p(off(x) - 1)),
    "division in place": ("forward", "div", "division-by-zero", lambda _, x: x.clone().div_(off(x))),
    "division by a number": ("forward", "div", "division-by-zero", lambda _, x: x / 0.0),
    "division by a count": ("forward", "div", "division-by-zero", lambda _, x: x / (x > 99).sum()),
    "reciprocal": ("forward", "reciprocal", "division-by-zero", lambda _, x: x + 1 / off(x)),
    "rsqrt": ("forward", "rsqrt", "division-by-zero", lambda _, x: x * torch.rsqrt(off(x))),
    "zero to a negative power": ("forward", "pow", "division-by-zero", lambda _, x: x + off(x) ** -1),
    "power of a negative": ("forward", "pow", "sqrt-of-negative", lambda _, x: x**1.5),
    "cosine by hand": ("forward", "div", "division-by-zero", lambda _, x: x + off(x) / off(x).norm()),
    "mean of nothing": ("forward", "mean", "mean-of-nothing", lambda _, x: x + torch.masked_select(x, x > 99).mean()),
    "log-softmax, all masked": ("forward", "log_softmax", "fully-masked-row", lambda _, x: masked(x).log_softmax(-1)),
    "logsumexp, all masked": (
        "forward",
        "logsumexp",
        "fully-masked-row",
        lambda _, x: x + torch.logsumexp(masked(x), -1, keepdim=True),
    ),
    "softmax by hand, all masked": (
        "forward",
        "sub",
        "inf-minus-inf",
        lambda _, x: (masked(x) - masked(x).amax(-1, keepdim=True)).exp(),
    ),
    "a mask that meets a matrix": (
        "forward",
        "masked_fill",
        "escaped-infinity",
        lambda _, x: x.masked_fill(x > 0, INF) @ torch.eye(WIDTH),
    ),
    "KL of underflow": (
        "forward",
        "log",
        "log-of-zero",
        lambda _, x: x + functional.kl_div(torch.softmax(x * 1e4, -1).log(), torch.softmax(x, -1), reduction="sum"),
    ),
    "softplus by hand": ("forward", "exp", "exp-overflow", lambda _, x: torch.log(1 + torch.exp(x * 1e4))),
    "cumulative product": ("forward", "cumprod", "float32-overflow", lambda _, x: (x * 1e10).cumprod(-1)),
    "a NaN put in": ("forward", "masked_fill", "non-finite-number", lambda _, x: x.masked_fill(x > 0, math.nan)),
    "vmap": ("forward", "div", "division-by-zero", lambda _, x: torch.vmap(lambda row: row / (row * 0))(x)),
    "sigmoid by hand": ("backward", "exp", "hidden-branch", lambda _, x: 1 / (1 + torch.exp(-x * 1e4))),
    "clamped log": ("backward", "log", "hidden-branch", lambda _, x: x + off(x).log().clamp(min=-10)),
    "nan_to_num": ("backward", "div", "hidden-branch", lambda _, x: x + torch.nan_to_num(off(x) / off(x))),
    "root of a variance": (
        "backward",
        "sqrt",
        "gradient-at-zero",
        lambda _, x: x + off(x).var(-1, keepdim=True).sqrt(),
    ),
    "acosh at one": ("backward", "acosh", "gradient-at-zero", lambda _, x: x + torch.acosh(1 + off(x))),
    "equal eigenvalues": (
        "backward",
        "linalg_eigh",
        "gradient-at-zero",
        lambda _, x: x + torch.linalg.eigh(torch.eye(WIDTH) * x.mean())[1].sum(),
    ),
    "a complex root": (
        "backward",
        "sqrt",
        "gradient-at-zero",
        lambda _, x: x + torch.view_as_complex(off(x).view(4, 6, 4, 2)).sqrt().real.repeat(1, 1, 2),
    ),
}

PARTS: dict[str, tuple[str, str, nn.Module, Callable[[Any, Tensor], Tensor]]] = {
    "LayerNorm": ("layer_norm", "division-by-zero", nn.LayerNorm(WIDTH, eps=0.0), lambda part, x: part(off(x))),
    "RMSNorm": ("rsqrt", "division-by-zero", nn.RMSNorm(WIDTH, eps=0.0), lambda part, x: part(off(x))),
    "GroupNorm": (
        "group_norm",
        "division-by-zero",
        nn.GroupNorm(2, WIDTH, eps=0.0),
        lambda part, x: part(off(x).transpose(1, 2)).transpose(1, 2),
    ),
    "attention": (
        "softmax",
        "fully-masked-row",
        nn.MultiheadAttention(WIDTH, 2, batch_first=True),
        lambda part, x: part(x, x, x, key_padding_mask=padding())[0],
    ),
}

INNOCENT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "cdist at zero": lambda _, x: x + torch.cdist(off(x), off(x)).sum(),
    "norm at zero": lambda _, x: x + torch.linalg.norm(off(x), dim=-1, keepdim=True) + off(x).norm(p=1.5),
    "normalize at zero": lambda _, x: x + functional.normalize(off(x)),
    "cosine similarity at zero": lambda _, x: x + functional.cosine_similarity(off(x), off(x), -1).unsqueeze(-1),
    "deviation of a constant": lambda _, x: x + off(x).std(-1, keepdim=True),
    "cross-entropy at the ends": lambda _, x: (
        x + functional.binary_cross_entropy(torch.sigmoid(x * 1e5), (x > 9).float())
    ),
    "modulus at zero": lambda _, x: x + torch.fft.fft(off(x)).abs(),
    "pooling": lambda _, x: x + functional.max_pool1d(x, 3, 1, 1),
    "nearest of few": lambda _, x: x + x.masked_fill(x > 0, INF).amin(-1, keepdim=True).clamp(max=1),
    "softmax over the best": lambda _, x: x.masked_fill(x < x.topk(2, -1).values[..., -1:], -INF).softmax(-1),
    "a row of nothing, not used": lambda _, x: x + torch.where(x > 99, masked(x).softmax(-1).detach(), 0.0),
    "logsumexp, all masked, not used": lambda _, x: (
        x + torch.where(x > 99, torch.logsumexp(masked(x), -1, keepdim=True), 0.0)
    ),
    "probabilities of some": lambda _, x: (
        x + torch.distributions.Categorical(logits=x.masked_fill(x < 0, -INF).index_fill(-1, FIRST, 0.0)).probs
    ),
    "gumbel": lambda _, x: functional.gumbel_softmax(x),
    "an integer in the graph": lambda _, x: x + torch.arange(WIDTH) // 3,
}


def arrived(loss: Tensor, model: nn.Module) -> bool:
    tensors = [loss, *model.parameters(), *(parameter.grad for parameter in model.parameters())]
    return not all(torch.isfinite(tensor).all() for tensor in tensors)


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_operation_is_named(name: str) -> None:
    *expected, function = FAULTS[name]
    culprit, loss, model = hunted(function)
    assert arrived(loss, model)
    assert culprit is not None
    assert [culprit.stage, culprit.operation, culprit.cause] == expected
    assert culprit.module == "1.0"
    assert culprit.where.startswith("test_hunt_operations.py")


@pytest.mark.parametrize("name", PARTS)
def test_a_faulty_part_of_torch_is_named(name: str) -> None:
    operation, cause, part, function = PARTS[name]
    culprit, loss, model = hunted(function, part)
    assert arrived(loss, model)
    assert culprit is not None
    assert (culprit.stage, culprit.module) == ("forward", "1.0.part")
    assert (culprit.operation, culprit.cause) == (operation, cause)


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_operation_is_not(name: str) -> None:
    culprit, loss, model = hunted(INNOCENT[name])
    assert not arrived(loss, model)
    assert culprit is None


@pytest.mark.parametrize("seed", range(40))
def test_in_a_random_model_the_faulty_layer_is_named(seed: int) -> None:
    """Layers of harmless operations, infinities that are masked away again, and one fault among them."""
    generator = torch.Generator().manual_seed(seed)
    harmless: list[Callable[[Any, Tensor], Tensor]] = [
        lambda _, x: torch.tanh(x),
        lambda _, x: x.masked_fill(x < x.mean(-1, keepdim=True), -INF).softmax(-1) * x,
        lambda _, x: functional.layer_norm(x, (WIDTH,)),
        lambda _, x: (x.transpose(1, 2).contiguous() * 2).transpose(1, 2),
        lambda _, x: x + x.detach().log().nan_to_num(0.0, 0.0, 0.0) * 0.1,
        lambda _, x: torch.cat([x[..., :2], x[..., 2:].sigmoid()], dim=-1),
        lambda _, x: x.clone().mul_(0.5),
    ]

    def pick(count: int) -> int:
        return int(torch.randint(count, (1,), generator=generator))

    layers = []
    for _ in range(8):
        layers += [nn.Linear(WIDTH, WIDTH), Spot(harmless[pick(len(harmless))], None)]
    stage, operation, cause, function = list(FAULTS.values())[pick(len(FAULTS))]
    index = 2 * pick(8) + 1
    layers[index] = Spot(function, None)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(*layers))
    task = Task(model, torch.optim.AdamW(model.parameters()), lambda model, batch: model(batch).pow(2).mean())
    batch = torch.randn(4, 6, WIDTH)
    losses: list[Tensor] = []

    def execute() -> Tensor:
        losses.append(task.loss_fn(model, batch))
        losses[0].backward()
        task.optimizer.step()
        return losses[0].detach()

    culprit = hunt(task, execute, batch)
    if culprit is None:  # a later layer has stopped the gradient or the value
        assert not arrived(losses[0], model)
    else:
        assert (culprit.module, culprit.stage, culprit.operation, culprit.cause) == (
            f"1.{index}",
            stage,
            operation,
            cause,
        )
