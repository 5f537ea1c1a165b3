"""Digests that ranks compare afterwards: of gradients, parameters, the optimizer's moments and the random states.

Each rank looks at its own tensors only: nothing is communicated, and no rank waits for another.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from steadyrun.probes.optimizer_settings import settings_of
from steadyrun.probes.optimizer_steps import FIRST_MOMENTS, SECOND_MOMENTS, OptimizerLike
from steadyrun.probes.rank_structure import FSDP, MIXED, SHARDED, Structure, find_structure
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values
from steadyrun.probes.tensor_digests import digest, joined_digest, local
from steadyrun.program.torch_compat import collectives_so_far, unreduced_gradients

_Part = tuple[str, str]  # class and block

_LOOKED_AT = 4_096  # elements of a tensor that show whether it is constant


class DigestProbe:
    """Follows the watched parameters, each of which belongs to a class and a block."""

    def __init__(
        self,
        model: nn.Module,
        named: list[tuple[str, nn.Parameter]],
        blocks: Sequence[str],
        optimizers: Callable[[], list[OptimizerLike]],
        found: Callable[[str, dict[str, object]], None],
        *,
        sampled: bool,
    ) -> None:
        self._parameters, self._blocks = [parameter for _, parameter in named], list(blocks)
        self._names = [name for name, _ in named]
        self._model = weakref.ref(model)
        self._optimizers, self._found = optimizers, found
        self._parts: dict[_Part, list[nn.Parameter]] = {}
        self._stepped = not sampled  # if no step is ever sampled, the start is not looked at
        self._start: _Start | None = None
        self._start_state: Tensor | None = None
        self._gradients: dict[int, _Digests] = {}  # by optimizer
        self._samples = sampled
        self._changes: int | None = None  # of all parameters up to the last step; None if that step is sampled
        self._collectives = collectives_so_far()
        self._unreduced: int | None = None  # gradients that FSDP has not reduced when the optimizer steps
        self._take(find_structure(model, self._parameters))

    def _take(self, structure: Structure) -> None:
        """Sort the parameters by the classes of `structure`."""
        self._structure, self._parts = structure, {}
        for parameter, name, block in zip(self._parameters, structure.of, self._blocks, strict=True):
            self._parts.setdefault((name, block), []).append(parameter)
        self._found("structure", structure.facts(self._blocks, [each.numel() for each in self._parameters]))

    def forget(self) -> None:
        """A step was given up."""
        self._gradients = {}

    def before_step(self, optimizer: OptimizerLike, sampled: bool) -> None:
        """The gradients as an optimizer uses them in a sampled step; before the first step, what all start from."""
        if not self._stepped:
            self._stepped = True
            self._look_again()
            self._start = _Start(self._starting_parts())
            self._start_state = digest(self._moments())
            self._found("optimizers", {"optimizers": [settings_of(each) for each in self._optimizers()]})
        if sampled:
            self._unreduced = unreduced_gradients(self._model()) if self._structure.kind in {FSDP, MIXED} else None
            own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            parts = {part: [p.grad for p in members if id(p) in own] for part, members in self._parts.items()}
            with_gradients = {part: grads for part, grads in parts.items() if any(g is not None for g in grads)}
            self._gradients[id(optimizer)] = _digests(with_gradients)

    def _look_again(self) -> None:
        """A model may be wrapped, and its wrapper get a communication hook, after `watch`; by its first step it has."""
        structure = find_structure(self._model(), self._parameters)
        if structure != self._structure and structure.kind != "unknown":
            self._take(structure)

    def _starting_parts(self) -> dict[_Part, list[nn.Parameter]]:
        """The parts whose starts are compared: shards by tensor, since some may begin as copies."""
        parts: dict[_Part, list[nn.Parameter]] = {}
        for parameter, name, of, block in zip(
            self._parameters, self._names, self._structure.of, self._blocks, strict=True
        ):
            parts.setdefault((of, name if of.startswith(SHARDED) else block), []).append(parameter)
        return parts

    def fill(self, row: ProbeRow) -> None:
        """Put everything into a row of the table `digests`."""
        gradients, self._gradients = list(self._gradients.values()), {}
        start, self._start = self._start, None
        if start is not None:
            row.put_many(start.values, start.by_part)
            row.put("start_state_digest", self._start_state)
        for series, found in (
            ("gradient_digest", gradients),
            ("parameter_digest", [_digests(self._parts)]),
        ):
            parts = [part for each in found for part in each.parts]
            if parts:
                row.put_many(_joined([each.values for each in found]), _by_part(series, parts))
        if moments := self._moments():
            row.put_many(digest(moments), lambda array: {"state_digest": float(array.reshape(-1)[0])})
        row.put("random_digest", digest(_random_states()))
        if self._unreduced is not None:
            row.put("unreduced_gradients", float(self._unreduced))

    def step_ended(self, row: ProbeRow, sampled: bool) -> None:
        """Count the step's collectives; note how often the parameters were changed, in case it is the last one."""
        before, self._collectives = self._collectives, collectives_so_far()
        if before is not None and self._collectives is not None:
            row.put("collectives", float(self._collectives - before))
        self._changes = None if sampled or not self._samples else self._counted()

    def fill_end(self, row: ProbeRow) -> None:
        """The parameters after the last step, unless they changed since: the best ones may have been loaded."""
        if self._changes is not None and self._changes == self._counted():
            end = _digests(self._parts)
            row.put_many(end.values, _by_part("end_digest", end.parts))

    def _counted(self) -> int:
        return sum(parameter._version for parameter in self._parameters if not parameter.is_inference())

    def buffers(self, model: nn.Module) -> dict[str, float]:
        """The digest of all floating-point buffers now. It waits for the device, as a validation's loss does."""
        floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        return {"buffers": float(digest(floats).item())} if floats else {}

    def _moments(self) -> list[Tensor]:
        states = [
            optimizer.state[parameter]
            for optimizer in self._optimizers()
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter in optimizer.state
        ]
        known = [state.get(key) for state in states for key in (*FIRST_MOMENTS, *SECOND_MOMENTS)]
        return [moment for moment in known if isinstance(moment, Tensor)]


class _Digests:
    """The digests of parts, still on the device."""

    def __init__(self, parts: list[_Part], values: Tensor) -> None:
        self.parts, self.values = parts, values


def _digests(parts: dict[_Part, list[nn.Parameter]] | dict[_Part, list[Tensor | None]]) -> _Digests:
    return _Digests(list(parts), _joined([digest(members) for members in parts.values()]))


def _joined(digests: list[Tensor]) -> Tensor:
    """On an accelerator if one of them is there, so that no copy to the host is waited for."""
    if not digests:
        return torch.empty(0, dtype=torch.int64)
    device = next((each.device for each in digests if each.device.type != "cpu"), digests[0].device)
    return torch.cat([each.reshape(-1).to(device, non_blocking=True) for each in digests])


def _by_part(series: str, parts: list[_Part]) -> Unpack:
    """A digest per class and block, and one per class; several optimizers may have their part in each."""

    def unpack(array: HostArray) -> Values:
        together: dict[_Part, list[int]] = {}
        for part, value in zip(parts, array.tolist(), strict=True):
            together.setdefault(part, []).append(value)
        digests = {part: found[0] if len(found) == 1 else joined_digest(found) for part, found in together.items()}
        values: Values = {f"{series}/{name}/{block}": float(value) for (name, block), value in digests.items()}
        for name in dict.fromkeys(name for name, _ in digests):
            values[f"{series}/{name}"] = float(joined_digest([digests[part] for part in digests if part[0] == name]))
        return values

    return unpack


class _Start:
    """The digests of what a rank starts from, and whether a part holds more than constants.

    Ones and zeros are equal on ranks that nobody made equal.
    """

    def __init__(self, parts: dict[_Part, list[nn.Parameter]]) -> None:
        digests = _digests(parts)
        self._parts = digests.parts
        self.values = torch.cat([digests.values, _joined([_is_random(members).long() for members in parts.values()])])

    def by_part(self, array: HostArray) -> Values:
        """By part and by class; 0 for a part of constants."""
        values = _by_part("start_digest", self._parts)(array[: len(self._parts)])
        for (name, block), random in zip(self._parts, array[len(self._parts) :].tolist(), strict=True):
            if not random:
                values[f"start_digest/{name}/{block}"] = 0.0
        return values


@torch.no_grad()
def _is_random(parameters: list[nn.Parameter]) -> Tensor:
    """Whether one of the parameters holds several values, on the device of the first one."""
    found = []
    for parameter in parameters:
        flat = local(parameter).reshape(-1)
        flat = flat[:: max(1, flat.numel() // _LOOKED_AT)]
        found.append((flat != flat[:1]).any())
    return torch.stack([each.to(found[0].device, non_blocking=True) for each in found]).any()


def _random_states() -> list[Tensor]:
    """The states of torch's generators, which lie in the host's memory."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(torch.cuda.get_rng_state())
    return states
