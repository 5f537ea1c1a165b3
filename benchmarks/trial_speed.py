"""How much faster two workers train sixteen twins than one: one thread per twin in both, warm workers.

python benchmarks/trial_speed.py            a minute on two cores with nothing else running
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from steadyrun.trial.program_source import Program
from steadyrun.workers import Crew, Job, open_crew

TWINS, STEPS = 16, 200
FACTORY = f"{Path(__file__).parents[1] / 'tests' / 'trial' / 'trial_programs.py'}:wide"


def seconds(crew: Crew, label: str, count: int, steps: int) -> float:
    """How long the crew takes for so many unchanged twins."""
    program = Program(FACTORY, {"seed": 1}).as_json()
    began = time.perf_counter()
    for index in range(count):
        arguments = {"program": program, "seed": 1, "factor": "own", "steps": steps}
        crew.start(Job(f"{label} {index}", "steadyrun.trial.program_source:trained", arguments))
    failures = [done.failure for done in crew.finished() if done.failure]
    if failures:
        raise RuntimeError(failures[0])
    return time.perf_counter() - began


def main() -> None:
    took: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["STEADYRUN_SCRATCH"] = scratch
        for workers in (1, 2):
            with open_crew(f"local:{workers}") as crew:
                seconds(crew, "warm", 2 * workers, STEPS)  # imports, builds the program once per worker
                took[workers] = seconds(crew, "twin", TWINS, STEPS)
    ratio = took[1] / took[2]
    print(json.dumps({"twins": TWINS, "one": round(took[1], 2), "two": round(took[2], 2), "faster": round(ratio, 2)}))


if __name__ == "__main__":
    main()
