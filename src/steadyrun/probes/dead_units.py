"""Dead units: hidden units of a feed-forward layer that are silent on (almost) the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from steadyrun.program.model_parts import Block, clean

SILENT_BELOW = 1e-6
SILENT_SHARE = 0.99
NEAR_THE_END = 0.01  # of a range from -1 or 0 to 1
_MOST_ELEMENTS = 2**19

_CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
_ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Mish, nn.Hardswish,
    nn.Softplus, nn.PReLU, nn.CELU, nn.SELU,
)  # fmt: skip


@dataclass(frozen=True)
class UnitsTap:
    """Where hidden units are seen: a module's input, or its output."""

    name: str
    module: nn.Module
    input: bool
    channels_first: bool = False


def find_units(model: nn.Module, blocks: Sequence[Block]) -> list[UnitsTap]:
    """Down-projections of feed-forward pairs; else activation modules; else the inputs of layers, where what a function
    such as `relu` has made arrives: of all convolutions, and in a plain network of all linear layers.
    """
    modules = [(clean(path), module) for path, module in model.named_modules() if path]
    inside = [(path, module, _block_of(path, blocks)) for path, module in modules]
    pairs = [
        UnitsTap(block or path, module, input=True)
        for index, (path, module, block) in enumerate(inside)
        if (sizes := _sizes(module)) and _has_up_projection(inside[:index], sizes, block)
    ]
    if pairs:
        return _distinct(pairs)
    acting = _activations([(path, module) for path, module, _ in inside])
    stacked = any(block.role == "block" for block in blocks)
    layers = [
        UnitsTap(path, module, input=True, channels_first=isinstance(module, _CONVOLUTIONS))
        for path, module, _ in inside
        if isinstance(module, _CONVOLUTIONS) or (_sizes(module) and not stacked)
    ]
    return _distinct(acting or layers[1:])


@dataclass(frozen=True)
class Silence:
    """Which units are silent on which rows of the batch."""

    silent: Tensor  # rows x units

    @property
    def units(self) -> int:
        return self.silent.shape[1]

    def dead(self) -> Tensor:
        """How many units are silent on more than 99% of the batch."""
        return (self.silent.sum(0) > SILENT_SHARE * self.silent.shape[0]).sum()

    def rows(self) -> Tensor:
        """The fraction of the batch on which no unit is active: a sparse layer has none, a dead layer all."""
        return self.silent.all(1).sum() / max(1, self.silent.shape[0])


def silence(hidden: Tensor, *, channels_first: bool = False) -> Silence:
    return Silence(_rows(hidden, channels_first).abs() < SILENT_BELOW)


def saturated(hidden: Tensor) -> Tensor:
    """The fraction of values at an end of a range from -1 or 0 to 1, where a tanh or sigmoid has no slope.

    It is 0 if the range is another: what never comes near 1 or goes beyond it has no such end. A zero is a silent unit.
    """
    values = hidden.detach().flatten()
    values = values[:: max(1, -(-values.numel() // _MOST_ELEMENTS))].float()
    if values.device.type == "cpu" and values.numel():  # the answer is at hand, and nearly always 0
        array = values.numpy()
        if not 1 - NEAR_THE_END <= max(-float(array.min()), float(array.max())) <= 1:
            return values.new_zeros(())
    sizes = values.abs()
    largest = sizes.amax()
    at_zero = (values > 0) & (values <= NEAR_THE_END) & (values.amin() >= 0)
    share = ((sizes >= 1 - NEAR_THE_END) | at_zero).float().mean()
    return share * ((largest <= 1) & (largest >= 1 - NEAR_THE_END))


def _rows(hidden: Tensor, channels_first: bool) -> Tensor:
    values = hidden.detach()
    stride = max(1, -(-values.numel() // _MOST_ELEMENTS))
    if channels_first:
        return values[::stride].movedim(1, -1).reshape(-1, values.shape[1])
    return values.reshape(-1, values.shape[-1])[::stride]


def _activations(modules: list[tuple[str, nn.Module]]) -> list[UnitsTap]:
    """Activation modules; after a convolution a unit is a channel, after a linear layer a feature."""
    taps, channels_first = [], False
    for path, module in modules:
        if isinstance(module, _CONVOLUTIONS):
            channels_first = True
        elif _sizes(module):
            channels_first = False
        elif isinstance(module, _ACTIVATIONS):
            taps.append(UnitsTap(path, module, input=False, channels_first=channels_first))
    return taps


def _sizes(module: nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear layer, that of the GPT-2 code in transformers included."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    # Not `module.weight`: under a parametrization (spectral norm) merely reading it changes the model.
    weight = module._parameters.get("weight")
    if type(module).__name__ == "Conv1D" and isinstance(weight, Tensor) and weight.dim() == 2:
        return weight.shape[0], weight.shape[1]
    return None


def _has_up_projection(
    before: list[tuple[str, nn.Module, str | None]], down: tuple[int, int], block: str | None
) -> bool:
    width, hidden = down[1], down[0]
    return hidden > width and any(_sizes(m) == (width, hidden) for _, m, b in before if b == block)


def _block_of(path: str, blocks: Sequence[Block]) -> str | None:
    inside = (b.name for b in blocks if not b.input and path.startswith(b.name + "."))
    return next(inside, None)


def _distinct(taps: list[UnitsTap]) -> list[UnitsTap]:
    """One line per name: a block with several feed-forward layers (experts) gets them numbered."""
    counts: dict[str, int] = {}
    distinct = []
    for tap in taps:
        counts[tap.name] = counts.get(tap.name, 0) + 1
        suffix = "" if counts[tap.name] == 1 else f"#{counts[tap.name]}"
        distinct.append(replace(tap, name=tap.name + suffix))
    return distinct
