"""Twins that have ended are kept outside of the run directory; while the program is the same, none is trained again."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from steadyrun.program.training_changes import groups_of
from steadyrun.store.jsonio import dumps, loads
from steadyrun.trial.curve import Curve
from steadyrun.trial.program_source import Program
from steadyrun.trial.twin import Twin
from steadyrun.version import __version__

_FOLDER = "STEADYRUN_SCRATCH"
_LARGEST = 16 * 2**20  # bytes of one file of twins


@dataclass
class KeptTwins:
    """The ended twins of one program, one JSON line each; without a file they are forgotten at the end."""

    path: Path | None
    _curves: dict[tuple[str, int], Curve] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, twin: Twin) -> KeptTwins:
        """Those of a program that a factory builds; what a live task's functions do cannot be recognised again."""
        if not program.factory:
            return cls(None)
        kept = cls(_folder() / f"{_fingerprint(program, twin)}.jsonl")
        kept._read()
        return kept

    def get(self, factor: str, seed: int) -> Curve | None:
        return self._curves.get((factor, seed))

    def add(self, curve: Curve) -> None:
        """Keep a twin that has ended by itself; one that raised is tried again the next time."""
        if self.path is None or curve.raised:
            return
        self._curves[curve.factor, curve.seed] = curve
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(dumps(curve.as_json()) + "\n")
        except OSError:  # a full or read-only disk: the trial goes on, and is not kept
            self.path = None

    def _read(self) -> None:
        assert self.path is not None
        try:
            lines = self.path.read_bytes()[:_LARGEST].splitlines()
        except OSError:
            return
        for line in lines:
            try:
                curve = Curve.of(loads(line))
            except (ValueError, TypeError, AttributeError):  # cut off in the middle of a line
                continue
            self._curves[curve.factor, curve.seed] = curve


def _folder() -> Path:
    given = os.environ.get(_FOLDER)
    return (Path(given).expanduser() if given else Path.home() / ".cache" / "steadyrun") / "trials"


def _fingerprint(program: Program, twin: Twin) -> str:
    """The same for the same program: its code, configuration, first weights, batches, settings and number of steps."""
    settings = [
        {name: repr(value) for name, value in group.items() if name != "params"} for group in groups_of(twin.task)
    ]
    parts = {
        "program": program.as_json(),
        "start": twin.start,
        "data": twin.data.fingerprint(),
        "settings": settings,
        "steps": twin.steps,
        "code": _code(program.factory),
        "versions": [__version__, torch.__version__, sys.version],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()[:24]


def _code(factory: str) -> list[str]:
    """Hashes of the user's source files that are loaded: beside the factory, and below the working directory."""
    source = factory.rpartition(":")[0]
    roots = {Path.cwd().resolve()}
    if source.endswith(".py"):
        roots.add(Path(source).expanduser().resolve().parent)
    files = {
        Path(file).resolve() for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))
    }
    mine = [file for file in files if file.suffix == ".py" and any(root in file.parents for root in roots)]
    return sorted(_hash(file) for file in mine if "site-packages" not in file.parts)


def _hash(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return str(file)
