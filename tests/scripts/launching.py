"""Start a training script as a person does, with and without steadyrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import steadyrun

PROGRAMS = Path(__file__).parent / "programs"
SOURCES = Path(steadyrun.__file__).parents[1]


@dataclass(frozen=True)
class Launched:
    """A script that has ended."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def numbers(self) -> list[dict[str, float]]:
        """What the script knows about its own steps, as it printed it."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.numbers if name in row]

    def run(self, name: str) -> steadyrun.RunView:
        return steadyrun.open_run(self.folder / "experiments" / name)

    def series(self, name: str, of: str) -> np.ndarray:
        return self.run(of).series(name).values

    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "experiments").glob("*"))


def launch(
    folder: Path, *words: str, recorded: bool = True, stdin: str = "", program: tuple[str, ...] = (), **variables: str
) -> Launched:
    """`steadyrun run WORDS` in `folder`, or `python WORDS`; a word that names one of our programs becomes its path."""
    known = [str(PROGRAMS / word) if (PROGRAMS / word).is_file() else word for word in words]
    ours = ["-m", "steadyrun", "run"] if recorded else []
    paths = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, *program, *ours, *known]
    done = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True)
    return Launched(folder, done.returncode, done.stdout, done.stderr)
