"""The changes that a trial tries, from fast to invasive. What a program has not cannot be varied: then a reason stands.

A change is known by its name alone: a worker that builds the program finds it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.errors import UsageError
from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.program.containers import named_leaves
from steadyrun.program.model_parts import find_blocks
from steadyrun.program.training_changes import (
    clipped,
    defaults_of,
    drops,
    groups_of,
    held_still,
    no_dropout,
    no_smoothing,
    not_clipped,
    with_settings,
)
from steadyrun.replay.hunt import fp32
from steadyrun.trial.batches import at_paths, halved, joined, rows_of
from steadyrun.trial.custom_functions import custom_functions, plain_backward
from steadyrun.trial.loss_terms import Terms
from steadyrun.trial.twin import Twin

RATE, WARMUP, DECAY, DROPOUT, SMOOTHING = "rate", "warmup", "decay", "dropout", "smoothing"
CLIP, OPTIMIZER, START, PRECISION, BATCH = "clip", "optimizer-settings", "start", "precision", "batch"
LEARNS, TARGETS, INPUTS, PREPARATION = "can-learn", "targets", "inputs", "preparation"
PART, TERM, BLOCK, FUNCTION, OWN, USER = "part", "term", "block", "function", "own", "user"

USER_PREFIX = "vary "  # of the names of the user's own factors
RATES = (0.1, 1 / 3, 3.0, 10.0)
_WARM = 0.3  # of the steps of a trial: a longer warmup
_STANDARD = 1e-3  # the rate of AdamW, and of the plain SGD a hundred times that, where the optimizer is replaced
_MOST_BLOCKS = 6

Apply = Callable[[Twin], AbstractContextManager[Any]]
Batches = Callable[[Twin], list[Any]]


def _unchanged(_twin: Twin) -> AbstractContextManager[Any]:
    return nullcontext()


def _training(twin: Twin) -> list[Any]:
    return list(twin.data.training)


@dataclass(frozen=True)
class Factor:
    """One change. `removes`: it takes away something that the program chose, so that it names a cause if it helps;
    otherwise it is a remedy, which may help against several causes."""

    name: str
    group: str
    words: str
    apply: Apply = _unchanged
    rate: Callable[[int, int], float] = lambda _step, _steps: 1.0
    batches: Batches = _training
    removes: bool = False
    invasive: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the configuration


OWN_TWIN = Factor("own", OWN, "nothing changed")


@dataclass(frozen=True)
class NotVaried:
    """A change that this program does not allow, and why."""

    name: str
    why: str


def factors_for(twin: Twin) -> tuple[list[Factor], list[NotVaried]]:
    """What can be varied in this program, in the order in which it is tried, and what cannot."""
    usable: list[Factor] = []
    left: list[NotVaried] = []
    for made in _all(twin):
        if isinstance(made, Factor):
            usable.append(made)
        else:
            left.append(made)
    return usable, left


def factor_named(name: str, known: Iterable[Factor]) -> Factor:
    """The change of this name among those that a program allows. The user's own is in its configuration already."""
    if name == OWN_TWIN.name:
        return OWN_TWIN
    if match := re.fullmatch(r"rate\*(?P<times>[0-9.e+-]+)", name):
        return rate_factor(float(match["times"]))
    if name.startswith(USER_PREFIX):
        return replace(OWN_TWIN, name=name, group=USER)
    found = next((factor for factor in known if factor.name == name), None)
    if found is None:
        raise UsageError(f"this program has no factor {name!r}")
    return found


def rate_factor(times: float) -> Factor:
    """The learning rate times so much."""
    how = f"divided by {1 / times:.3g}" if times < 1 else f"times {times:.3g}"
    return Factor(f"rate*{times:.4g}", RATE, f"the learning rate {how}", rate=lambda _step, _steps: times)


def _all(twin: Twin) -> Iterator[Factor | NotVaried]:
    yield from _rates(twin)
    yield from _settings(twin)
    yield from _data(twin)
    yield from _parts(twin)
    yield from _terms(twin)
    yield from _invasive(twin)


# -- rates and settings ----------------------------------------------------------------------------


def _rates(twin: Twin) -> Iterator[Factor | NotVaried]:
    if not all("lr" in group for group in groups_of(twin.task)):
        yield NotVaried("rate", "the optimizer has no learning rate in its groups")
        return
    yield from (rate_factor(times) for times in RATES)
    yield Factor(
        "warmup", WARMUP, "a longer warmup", rate=lambda step, steps: min(1.0, (step + 1) / max(1.0, _WARM * steps))
    )


def _settings(twin: Twin) -> Iterator[Factor | NotVaried]:
    task, groups = twin.task, groups_of(twin.task)
    if any(group.get("weight_decay") for group in groups):
        yield Factor("no-decay", DECAY, "no weight decay", lambda t: _set(t, weight_decay=0.0), removes=True)
    else:
        yield NotVaried("no-decay", "no parameter group has a weight decay")
    if any(drops(module) for module in twin.model.modules()):
        yield Factor("no-dropout", DROPOUT, "no dropout", lambda t: no_dropout(t.task), removes=True)
    else:
        yield NotVaried("no-dropout", "the model has no dropout that is on")
    yield _smoothing(twin)
    yield from _clipping(twin)
    differing = _not_default(twin, "betas", "eps", "momentum", "alpha", "nesterov", "amsgrad")
    if differing:
        words = "the usual " + " and ".join(sorted(differing))
        yield Factor("default-settings", OPTIMIZER, words, lambda t: _defaults(t, *differing), removes=True)
    else:
        yield NotVaried("default-settings", "betas, epsilon and momentum are the usual ones")
    if any(hasattr(module, "reset_parameters") for module in twin.model.modules()):
        yield Factor("default-start", START, "torch's own initial weights", _started_anew, removes=True)
    else:
        yield NotVaried("default-start", "no module can reset its parameters")
    if _is_narrow(twin):
        yield Factor("float32", PRECISION, "float32 instead of the narrower format", _in_float32, removes=True)
    else:
        yield NotVaried("float32", "the program runs in float32 already, as far as can be seen")
    yield from _batch_sizes(twin)
    if len(task.optimizers) == 1:
        for name, made in (("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)):
            if type(task.optimizers[0]) is not made:
                words = f"plain {made.__name__} in the optimizer's place"
                yield Factor(name, OPTIMIZER, words, lambda t, made=made: _replaced(t, made))  # type: ignore[misc]
    else:
        yield NotVaried("adamw", "there are several optimizers")


def _set(twin: Twin, **settings: Any) -> AbstractContextManager[None]:
    return with_settings(twin.task, lambda _optimizer, group: {k: v for k, v in settings.items() if k in group})


def _defaults(twin: Twin, *names: str) -> AbstractContextManager[None]:
    return with_settings(
        twin.task,
        lambda optimizer, group: {k: v for k, v in _usual(optimizer, *names).items() if k in group},
    )


_COMMON = {"momentum": 0.9}  # what most people write where the optimizer's own default is nothing


def _usual(optimizer: Any, *names: str) -> dict[str, Any]:
    """The usual values of these settings."""
    return {name: _COMMON.get(name, default) for name, default in defaults_of(optimizer, *names).items()}


def _not_default(twin: Twin, *names: str) -> tuple[str, ...]:
    """The settings that have another value than the usual one; no momentum at all is usual as well."""
    found = set()
    for optimizer in twin.task.optimizers:
        plain = defaults_of(optimizer, *names)
        for group in optimizer.param_groups:
            for name, usual in _usual(optimizer, *names).items():
                value = group.get(name, usual)
                value = tuple(value) if isinstance(value, list) else value
                if value not in (usual, plain[name]):
                    found.add(name)
    return tuple(sorted(found))


def _smoothing(twin: Twin) -> Factor | NotVaried:
    """Smoothing is seen in the graph of the loss."""
    from steadyrun.probes.loss_graph import read
    from steadyrun.program.program_state import untouched

    with untouched(twin.task), torch.enable_grad():
        twin.model.train()
        graph = read(twin.loss(twin._single(twin.data.training[0])))
    if any(labels.smoothing > 0 for labels in graph.labels):
        return Factor("no-smoothing", SMOOTHING, "no label smoothing", lambda _: no_smoothing(), removes=True)
    return NotVaried("no-smoothing", "no smoothing of labels is seen in the loss")


def _clipping(twin: Twin) -> Iterator[Factor | NotVaried]:
    if _clips(twin):
        yield Factor("no-clip", CLIP, "no clipping", lambda _: not_clipped(), removes=True)
    else:
        yield NotVaried("no-clip", "the program does not clip by torch's own function")
    yield Factor("clip-1", CLIP, "gradients clipped to a norm of 1", lambda t: clipped(t.task, 1.0))


def _clips(twin: Twin) -> bool:
    """Whether a step of the program clips; the step is undone."""
    from steadyrun.program.program_state import untouched
    from steadyrun.program.torch_compat import CLIP_WITH_NORM

    seen: list[bool] = []

    def noted(call: Any, *args: Any, **options: Any) -> Any:
        seen.append(True)
        return call(*args, **options)

    with untouched(twin.task), torch.enable_grad(), CLIP_WITH_NORM.wrapped(noted):
        twin.model.train()
        twin.step(twin.data.training[0])
    return bool(seen)


@contextmanager
def _started_anew(twin: Twin) -> Iterator[None]:
    """Every module with its own first weights; the twin's state is put back after it trains."""
    torch.manual_seed(sum(map(ord, "start")))
    for module in twin.model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            with torch.no_grad():
                reset()
    yield


def _is_narrow(twin: Twin) -> bool:
    narrow = (torch.float16, torch.bfloat16)
    declared = str(twin.config.get("dtype", "")).lower()
    return any(each.dtype in narrow for each in twin.model.parameters()) or declared in {
        *("bf16", "fp16", "bfloat16", "float16", "half", "bf16-mixed", "16-mixed"),
    }


def _in_float32(twin: Twin) -> AbstractContextManager[Any]:
    return fp32(twin.task)


def _batch_sizes(twin: Twin) -> Iterator[Factor | NotVaried]:
    batch = twin.data.training[0]
    if rows_of(twin._single(batch)) is None or is_list_of_batches(batch):
        yield NotVaried("batch*2", "the tensors of a batch have no first dimension in common")
        return
    if joined(batch, batch) is not None:
        yield Factor("batch*2", BATCH, "twice the batch", batches=_doubled)
    if halved(batch) is not None:
        yield Factor("batch/2", BATCH, "half the batch", batches=_halved)


def _doubled(twin: Twin) -> list[Any]:
    drawn = twin.data.training
    pairs = zip(drawn, [*drawn[1:], drawn[0]], strict=True)
    return [both if (both := joined(one, other)) is not None else one for one, other in pairs]


def _halved(twin: Twin) -> list[Any]:
    return [pair[0] if (pair := halved(batch)) is not None else batch for batch in twin.data.training]


@contextmanager
def _replaced(twin: Twin, kind: type[torch.optim.Optimizer]) -> Iterator[None]:
    """Another optimizer steps in the place of the program's, at its standard rate, shaped by the schedule."""
    own = twin.task.optimizers[0]
    peak = max((float(group["lr"]) for group in own.param_groups), default=0.0) or 1.0
    rate = _STANDARD if kind is torch.optim.AdamW else 100 * _STANDARD
    other: Any = kind([{"params": list(group["params"])} for group in own.param_groups], lr=rate)

    def step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group, mine in zip(own.param_groups, other.param_groups, strict=True):
            mine["lr"] = rate * float(group["lr"]) / peak
        other.step()
        for group in own.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    handle = own.register_step_pre_hook(step)
    try:
        yield
    finally:
        handle.remove()


# -- data ------------------------------------------------------------------------------------------


def _data(twin: Twin) -> Iterator[Factor | NotVaried]:
    yield Factor("one-batch", LEARNS, "one batch again and again", batches=lambda t: t.data.training[:1])
    parts = twin.parts
    if parts.targets:
        yield Factor("targets-shuffled", TARGETS, "targets shuffled among the examples", batches=_shuffled)
    else:
        yield NotVaried("targets-shuffled", "no tensor of the batch is seen to be the target of the loss alone")
    if parts.targets and parts.inputs:
        yield Factor("inputs-noise", INPUTS, "inputs replaced by noise of the same statistics", batches=_noise)
    else:
        yield NotVaried("inputs-noise", "inputs and targets cannot be told apart in the batch")
    if twin.data.spare:
        yield Factor("validation-data", PREPARATION, "trained on a part of the validation data", batches=_spare)
        yield Factor("as-few-data", PREPARATION, "trained on as few of the training data", batches=_as_few)
    else:
        yield NotVaried("validation-data", "there are no validation batches to train on")


def _changed(twin: Twin, change: Callable[[Any, torch.Generator], Any]) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        [change(part, generator) for part in batch]
        if twin.accumulation > 1 and is_list_of_batches(batch)
        else change(batch, generator)
        for batch in twin.data.training
    ]


def _shuffled(twin: Twin) -> list[Any]:
    """The same permutation for all targets of a batch."""

    def change(batch: Any, generator: torch.Generator) -> Any:
        leaves = dict(named_leaves(batch))
        found = [path for path in twin.parts.targets if path in leaves]
        rows = leaves[found[0]].shape[0] if found else 0
        order = torch.randperm(rows, generator=generator)
        return at_paths(batch, {path: leaves[path][order.to(leaves[path].device)] for path in found})

    return _changed(twin, change)


def _noise(twin: Twin) -> list[Any]:
    def change(batch: Any, generator: torch.Generator) -> Any:
        leaves = dict(named_leaves(batch))
        return at_paths(
            batch, {path: _noise_like(leaves[path], generator) for path in twin.parts.inputs if path in leaves}
        )

    return _changed(twin, change)


def _noise_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Its own values in another order if they are whole numbers, else normal numbers with its mean and spread."""
    if not tensor.is_floating_point():
        order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
        return tensor.flatten()[order].reshape(tensor.shape)
    noise = torch.randn(tensor.shape, generator=generator).to(tensor)
    spread = tensor.std(dim=0, keepdim=True, unbiased=False) if tensor.shape[0] > 1 else tensor.std(unbiased=False)
    return tensor.mean(dim=0, keepdim=True) + noise * spread


def _spare(twin: Twin) -> list[Any]:
    return _in_form(twin, twin.data.spare)


def _as_few(twin: Twin) -> list[Any]:
    """As many examples of the training data as the spare part of the validation data has."""
    wanted = sum(rows_of(batch) or 1 for batch in twin.data.spare)
    chosen, count = [], 0
    for batch in twin.data.training:
        chosen.append(batch)
        count += rows_of(twin._single(batch)) or 1
        if count >= wanted:
            break
    return chosen


def _in_form(twin: Twin, batches: list[Any]) -> list[Any]:
    """Validation batches as the program's step takes them: lists of micro-batches if it accumulates."""
    if twin.accumulation == 1 or not is_list_of_batches(twin.data.training[0]):
        return list(batches)
    count = twin.accumulation
    return [[batches[(index + offset) % len(batches)] for offset in range(count)] for index in range(len(batches))]


# -- parts of the model and of the loss ------------------------------------------------------------


def _blocks(twin: Twin) -> list[tuple[str, nn.Module]]:
    found = [(block.name, block.module) for block in find_blocks(twin.model) if not block.input]
    with_weights = [(name, module) for name, module in found if any(True for _ in module.parameters())]
    if len(with_weights) <= _MOST_BLOCKS:
        return with_weights
    places = {round(index * (len(with_weights) - 1) / (_MOST_BLOCKS - 1)) for index in range(_MOST_BLOCKS)}
    return [with_weights[place] for place in sorted(places)]


def _parts(twin: Twin) -> Iterator[Factor | NotVaried]:
    blocks = _blocks(twin)
    if len(blocks) < 2:
        yield NotVaried("freeze", "the model has no parts that could be frozen one at a time")
    for name, module in blocks if len(blocks) > 1 else []:
        parameters = list(module.parameters())
        yield Factor(
            f"freeze:{name}",
            PART,
            f"{name} frozen",
            lambda t, parameters=parameters: held_still(t.task, parameters),  # type: ignore[misc]
        )


def _terms(twin: Twin) -> Iterator[Factor | NotVaried]:
    count = len(compares(twin))
    if count < 2:
        yield NotVaried("term", "the loss is not seen to be a sum of terms")
        return
    for index in range(count):
        words = f"term {index + 1} of the loss off"
        yield Factor(f"term:{index}", TERM, words, lambda t, index=index: _without_term(t, index))  # type: ignore[misc]


def compares(twin: Twin) -> list[bool]:
    """The terms of the loss: whether each compares something with targets."""
    from steadyrun.program.program_state import untouched

    with untouched(twin.task), torch.enable_grad(), Terms() as terms:
        twin.model.train()
        twin.task.loss_fn(twin.task.model, twin._single(twin.data.training[0]))
    return terms.compares


@contextmanager
def _without_term(twin: Twin, index: int) -> Iterator[None]:
    own = twin.task.loss_fn

    def loss_fn(*args: Any, **options: Any) -> Any:
        with Terms(off=index):
            return own(*args, **options)

    twin.task.loss_fn = loss_fn
    try:
        yield
    finally:
        twin.task.loss_fn = own


# -- invasive --------------------------------------------------------------------------------------


def _invasive(twin: Twin) -> Iterator[Factor | NotVaried]:
    shapes = _shapes(twin)
    kept = [(name, module) for name, module in _blocks(twin) if shapes.get(id(module))]
    for name, module in kept:
        yield Factor(
            f"identity:{name}",
            BLOCK,
            f"{name} replaced by identity",
            lambda t, module=module: _as_identity(module),  # type: ignore[misc]
            invasive=True,
        )
    if not kept:
        yield NotVaried("identity", "no part of the model gives back the shape it is given")
    norms = [module for module in twin.model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    if norms:
        words = "batch norm replaced by a norm of each example"
        yield Factor("other-norm", BLOCK, words, lambda t: _other_norm(norms), invasive=True)
    else:
        yield NotVaried("other-norm", "the model has no batch norm")
    positions = [module for name, module in twin.model.named_modules() if _is_rotary(name, module)]
    if positions:
        words = "rotary positions off"
        yield Factor("no-rotary", BLOCK, words, lambda t: _without_rotary(positions), invasive=True)
    functions = custom_functions(twin)
    for function in functions:
        yield Factor(
            f"autograd:{function.__qualname__}",
            FUNCTION,
            f"the backward of {function.__name__} by autograd",
            lambda t, function=function: plain_backward(function),  # type: ignore[misc]
            removes=True,
            invasive=True,
        )
    if not functions:
        yield NotVaried("autograd", "no autograd function of the program's own is seen in the graph")


def _shapes(twin: Twin) -> dict[int, bool]:
    """By module: whether its first output has the shape of its first input."""
    from steadyrun.program.program_state import untouched

    alike: dict[int, bool] = {}

    def noted(module: nn.Module, args: Any, output: Any) -> None:
        given = args[0] if args and isinstance(args[0], Tensor) else None
        alike[id(module)] = given is not None and isinstance(output, Tensor) and output.shape == given.shape

    handles = [module.register_forward_hook(noted) for module in twin.model.modules()]
    try:
        with untouched(twin.task), torch.enable_grad():
            twin.loss(twin._single(twin.data.training[0]))
    finally:
        for handle in handles:
            handle.remove()
    return alike


@contextmanager
def _as_identity(module: nn.Module) -> Iterator[None]:
    handle = module.register_forward_hook(lambda _module, args, _output: args[0])
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _other_norm(norms: list[Any]) -> Iterator[None]:
    def by_example(module: Any, args: Any, _output: Any) -> Tensor:
        x: Tensor = args[0]
        dims = tuple(range(1, x.dim()))
        plain = (x - x.mean(dims, keepdim=True)) / (x.var(dims, keepdim=True, unbiased=False) + module.eps).sqrt()
        shape = (1, -1, *([1] * (x.dim() - 2)))
        if module.weight is None:
            return plain
        return plain * module.weight.view(shape) + module.bias.view(shape)

    with ExitStack() as stack:
        for norm in norms:
            stack.callback(norm.register_forward_hook(by_example).remove)
        yield


def _is_rotary(name: str, module: nn.Module) -> bool:
    return "rotary" in (name.rpartition(".")[2] + type(module).__name__).lower() and not list(module.children())


@contextmanager
def _without_rotary(modules: list[nn.Module]) -> Iterator[None]:
    """Angles of zero: cos is 1 and sin is 0; a module that turns its input gives it back."""

    def still(_module: Any, args: Any, output: Any) -> Any:
        if isinstance(output, tuple) and len(output) == 2 and all(isinstance(each, Tensor) for each in output):
            if args and isinstance(args[0], Tensor) and args[0].shape == output[0].shape and len(args) > 1:
                return args[:2]
            return torch.ones_like(output[0]), torch.zeros_like(output[1])
        return args[0] if args and isinstance(args[0], Tensor) and args[0].shape == output.shape else output

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_hook(still).remove)
        yield


def user_factor(name: str, value: Any) -> Factor:
    """A value of the program's configuration to try; the factory builds the program with it."""
    text = f"{name} = {value}"
    return replace(OWN_TWIN, name=f"{USER_PREFIX}{text}", group=USER, words=text, changes={name: value})
