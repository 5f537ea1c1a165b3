"""The run directory at size: a million steps of 100 series, and a step of 400.

python benchmarks/store.py
"""

from __future__ import annotations

import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from steadyrun.store.reader import open_run
from steadyrun.store.writer import RunWriter

FLUSH = 500


def measure(steps: int, series: int) -> dict[str, object]:
    root = Path(tempfile.mkdtemp())
    try:
        return _measure(root, steps, series)
    finally:
        shutil.rmtree(root)


def _measure(root: Path, steps: int, series: int) -> dict[str, object]:
    names = [f"series/{place}" for place in range(series)]
    noise = np.random.default_rng(0).standard_normal((1000, series)).tolist()
    rows = [dict(zip(names, row, strict=True)) for row in noise]
    writer = RunWriter(root)
    writer.save_manifest(state="running")
    writer.define("steps", names)
    memory, spent = [], 0.0
    for step in range(steps):
        row = rows[step % 1000]
        start = time.perf_counter()
        writer.append("steps", step, row, 0.0)
        if step % FLUSH == FLUSH - 1:
            writer.flush()
        spent += time.perf_counter() - start
        if step % max(1, steps // 10) == 0:
            memory.append(round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    live = _read(root, names[7], steps)
    start = time.perf_counter()
    writer.close()
    closing = time.perf_counter() - start
    memory.append(round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    return {
        "steps": steps,
        "series": series,
        "store_us_per_step": round(1e6 * spent / steps, 2),
        "with_compaction_us_per_step": round(1e6 * (spent + closing) / steps, 2),
        "read_one_series_while_running_s": live,
        "read_one_series_closed_s": _read(root, names[7], steps),
        "peak_memory_mib": memory,
        "size_mib": round(size / 2**20, 1),
    }


def _read(root: Path, name: str, steps: int) -> float:
    start = time.perf_counter()
    found = open_run(root).series(name)
    seconds = time.perf_counter() - start
    assert len(found) == steps
    return round(seconds, 3)


if __name__ == "__main__":
    print(json.dumps(measure(50_000, 400)), flush=True)
    print(json.dumps(measure(1_000_000, 100)), flush=True)
