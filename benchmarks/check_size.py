"""`steadyrun check` on a run of a million steps and a hundred series: seconds and memory, while it runs and closed.

python benchmarks/check_size.py
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from steadyrun.signals.declared_schedule import SchedulePlan
from steadyrun.store.writer import RunWriter

STEPS, SERIES, FLUSH = 1_000_000, 100, 500
CONFIG = {
    "vocab_size": 512,
    "init": "random",
    "lr_max": 1e-3,
    "lr_min": 1e-4,
    "warmup_steps": 2000,
    "total_steps": STEPS,
    "schedule": "cosine",
    "clip": 1.0,
}
CODE = """
import json, re, sys, time
from pathlib import Path
import steadyrun
start = time.perf_counter()
report = steadyrun.check(sys.argv[1], everything=True)
seconds = time.perf_counter() - start
# Not getrusage, which counts what the parent process had when it forked.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
answers = "".join(asked.answer.kind[0] for asked in report.walk.path)
print(json.dumps({"check_s": round(seconds, 2), "peak_memory_mib": round(peak), "answers": answers}))
"""


def write(root: Path) -> RunWriter:
    """A healthy-looking run; what the questions read is there under its real names."""
    steps = np.arange(float(STEPS))
    noise = np.random.default_rng(0).standard_normal(STEPS)
    columns = {
        "loss": 1.5 + (math.log(512) - 1.5) * np.exp(-steps / 5000) + 0.05 * noise,
        "grad_norm": 2.5 + 0.3 * noise,
        "grad_norm_applied": np.ones(STEPS),
        "clip_threshold": np.ones(STEPS),
        "clipped": np.ones(STEPS),
        "lr/0": SchedulePlan("cosine", 1e-3, 1e-4, 2000, STEPS).rate(steps),
        "backwards": np.ones(STEPS),
        "backward_loss": 2.0 + 0.05 * noise,
        "skipped": np.zeros(STEPS),
        "scheduler_steps": steps + 1,
        "tokens": np.full(STEPS, 1000.0),
        "batch_index": steps,
    }
    columns["loss"][0] = math.log(512)
    names = [*columns, *(f"series/{place}" for place in range(SERIES - len(columns)))]
    writer = RunWriter(root)
    writer.save_manifest(state="running", config=CONFIG)
    writer.define("steps", names)
    rows = np.stack([columns.get(name, noise) for name in names], axis=1)
    for step, row in enumerate(rows):
        writer.append("steps", step, dict(zip(names, row.tolist(), strict=True)), 0.0)
        if step % FLUSH == FLUSH - 1:
            writer.flush()
        if step % (STEPS // 20) == STEPS // 20 - 1:
            writer.event("validation", step, values={"val_loss": 1.7})
    return writer


def check(root: Path, state: str) -> None:
    found = subprocess.run([sys.executable, "-c", CODE, str(root)], check=True, capture_output=True, text=True)
    print(json.dumps({"steps": STEPS, "series": SERIES, "state": state, **json.loads(found.stdout)}), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        writer = write(run)
        check(run, "running")
        writer.save_manifest(state="finished")
        writer.close()
        check(run, "closed")
