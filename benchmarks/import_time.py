"""How long `import steadyrun` takes, less what an empty Python takes: by the clock, and in processor time.

On a machine that others use only the processor time shows anything.

python benchmarks/import_time.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

_PROGRAMS = {"empty": "pass", "import": "import steadyrun", "with_record": "import steadyrun; steadyrun.record"}
_TIMES = 15


def seconds(program: str) -> tuple[float, float]:
    """Of one process: by the clock, and of the processor."""
    start, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", program], check=True)
    took, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return took, used


if __name__ == "__main__":
    seconds(_PROGRAMS["with_record"])
    measured = {name: [seconds(program) for _ in range(_TIMES)] for name, program in _PROGRAMS.items()}
    clock, processor = (
        {name: statistics.median(row[which] for row in rows) for name, rows in measured.items()} for which in (0, 1)
    )
    print(
        json.dumps(
            {
                f"{name}_{kind}": round(given[name] - given["empty"], 4)
                for kind, given in (("s", clock), ("cpu_s", processor))
                for name in ("import", "with_record")
            }
        )
    )
