"""How long `import steadyrun` takes, less what an empty Python takes.

python benchmarks/import_time.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time


def seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    seconds("import steadyrun")
    empty = statistics.median(seconds("pass") for _ in range(15))
    full = statistics.median(seconds("import steadyrun") for _ in range(15))
    record = statistics.median(seconds("import steadyrun; steadyrun.record") for _ in range(15))
    print(json.dumps({"import_s": round(full - empty, 4), "with_record_s": round(record - empty, 4)}))
