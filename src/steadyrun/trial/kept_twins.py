"""A cache of finished twins outside the run directory, valid while the program is unchanged."""

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
    """The finished twins of one program, one JSON line each; in memory only without a file."""

    path: Path | None
    _curves: dict[tuple[str, int], Curve] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, twin: Twin) -> KeptTwins:
        """The kept twins of a factory's program; a live task cannot be recognised again."""
        if not program.factory:
            return cls(None)
        kept = cls(_folder() / f"{_fingerprint(program, twin)}.jsonl")
        kept._read()
        return kept

    def get(self, factor: str, seed: int) -> Curve | None:
        return self._curves.get((factor, seed))

    def add(self, curve: Curve) -> None:
        """Keep a finished twin; one that raised is retried the next time."""
        if self.path is None or curve.raised:
            return
        self._curves[curve.factor, curve.seed] = curve
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(dumps(curve.as_json()) + "\n")
        except OSError:  # a full or read-only disk: the trial continues without keeping twins
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
            except (ValueError, TypeError, AttributeError):  # a truncated line
                continue
            self._curves[curve.factor, curve.seed] = curve


def _folder() -> Path:
    given = os.environ.get(_FOLDER)
    return (Path(given).expanduser() if given else Path.home() / ".cache" / "steadyrun") / "trials"


def _fingerprint(program: Program, twin: Twin) -> str:
    """A hash of the program: code, config, first weights, batches, settings and number of steps."""
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
    """Hashes of the user's loaded source files beside the factory and below the working directory."""
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
