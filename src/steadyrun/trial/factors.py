"""The changes of a trial, from simple to invasive, and the reasons why some do not apply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from steadyrun.errors import UsageError
from steadyrun.trial.data_changes import data_changes
from steadyrun.trial.factor import OWN_TWIN, USER, USER_PREFIX, Factor, NotVaried, rate_factor
from steadyrun.trial.part_changes import invasive, parts, terms
from steadyrun.trial.settings import rates, settings
from steadyrun.trial.twin import Twin


def factors_for(twin: Twin) -> tuple[list[Factor], list[NotVaried]]:
    """The changes that apply to this program, in their order, and those that do not."""
    usable: list[Factor] = []
    left: list[NotVaried] = []
    for made in _all(twin):
        if isinstance(made, Factor):
            usable.append(made)
        else:
            left.append(made)
    return usable, left


def factor_named(name: str, known: Iterable[Factor]) -> Factor:
    """The change of this name among those that apply; the user's own is already in the config."""
    if name == OWN_TWIN.name:
        return OWN_TWIN
    if match := re.fullmatch(r"rate\*(?P<times>[0-9.e+-]+)", name):
        return rate_factor(float(match["times"]))
    if name.startswith(USER_PREFIX):
        return replace(OWN_TWIN, name=name, group=USER)
    found = next((factor for factor in known if factor.name == name), None)
    if found is None:
        raise UsageError(
            f"this program has no change {name!r}; choose one of: {', '.join(factor.name for factor in known)}"
        )
    return found


def _all(twin: Twin) -> Iterator[Factor | NotVaried]:
    for section in (rates, settings, data_changes, parts, terms, invasive):
        yield from section(twin)
