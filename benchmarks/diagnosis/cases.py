"""The cases: which bug is built into which program, and which healthy runs there are."""

from __future__ import annotations

import fnmatch
import importlib
from dataclasses import dataclass, field
from typing import Any

from diagnosis.causes import CAUSES

# Program: bugs that are natural in it. A bug with several programs has to be found in each of them.
BUGGY: dict[str, str] = {
    "char_gpt": """A1 A2 A3 A6 A7 A12 A15 A16 A17 A19 A21 A22 A23 A25 A26 A27 A28 A29 A30 A31 A33
                   B2 B6 B11 B14 B15 B16 B18 B19 B21 B22 B29 B30 B31 C15 C16""",
    "mlp": """A1 A2 A3 A4 A6 A7 A8 A10 A15 A16 A17 A19 A27 A28 A29 A30 A31 A33 A34
              B1 B2 B4 B5 B9 B10 B18 B19 B20 B21 B23 B30 C18 C19""",
}

# Name: program and the settings that make it different. All of them are as they should be.
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    "char-gpt": ("char_gpt", {}),
    "mlp": ("mlp", {}),
}


@dataclass(frozen=True)
class Case:
    """One run to be judged; `bug` is None where nothing is wrong with it."""

    name: str
    program: str
    bug: str | None
    seed: int
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> Any:
        try:
            return importlib.import_module(f"diagnosis.programs.{self.program}")
        except ModuleNotFoundError as problem:
            if problem.name != f"diagnosis.programs.{self.program}":
                raise
            return importlib.import_module(f"diagnosis.healthy.{self.program}")


def cases(seeds: int = 3, only: str = "*") -> list[Case]:
    """All cases whose name fits; `only` may be a pattern such as 'mlp-A*'."""
    found = []
    for program, bugs in BUGGY.items():
        for bug in bugs.split():
            assert bug in CAUSES, bug
            found += [Case(f"{program}-{bug}-{seed}", program, bug, seed) for seed in range(1, seeds + 1)]
    for name, (program, changes) in HEALTHY.items():
        found.append(Case(f"healthy-{name}", program, None, 1, changes))
    return [case for case in found if fnmatch.fnmatchcase(case.name, only)]
