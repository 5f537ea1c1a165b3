"""The settings of the optimizers of each rank, beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from steadyrun.signals.ranks import Ranks


def unequal_settings(ranks: Ranks, group: Sequence[int]) -> Iterator[tuple[str, dict[int, Any]]]:
    """The settings that differ, such as `weight_decay of group 0`, with the value of each rank that has them."""
    yield from _unequal({rank: dict(_settings(ranks, rank)) for rank in group})


def unequal_sizes(ranks: Ranks, group: Sequence[int]) -> Iterator[tuple[str, dict[int, Any]]]:
    """The same for the number of parameters that each rank's optimizers step."""
    sizes = {rank: sum(_whole(each.get("parameters")) for each in _groups(ranks, rank)) for rank in group}
    yield from _unequal({rank: {"parameters": size} for rank, size in sizes.items() if size})


def _unequal(found: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[str, dict[int, Any]]]:
    for name in dict.fromkeys(name for settings in found.values() for name in settings):
        values = {rank: settings[name] for rank, settings in found.items() if name in settings}
        if any(value != next(iter(values.values())) for value in values.values()):
            yield name, values


def _settings(ranks: Ranks, rank: int) -> Iterator[tuple[str, Any]]:
    for index, each in enumerate(_groups(ranks, rank)):
        settings = each.get("settings")
        known = settings.items() if isinstance(settings, Mapping) else ()
        yield from ((f"{name} of group {index}", value) for name, value in known)


def _groups(ranks: Ranks, rank: int) -> Iterator[Mapping[str, Any]]:
    """The groups of all optimizers of a rank, one after the other."""
    optimizers = ranks.of(rank).optimizers.get("optimizers")
    for optimizer in optimizers if isinstance(optimizers, list) else []:
        groups = optimizer.get("groups") if isinstance(optimizer, Mapping) else None
        yield from (each for each in groups or [] if isinstance(each, Mapping))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
