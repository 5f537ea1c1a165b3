"""`steadyrun check` on a job of 1,024 ranks: seconds and memory, healthy and with one odd rank.

python benchmarks/ranks_size.py [RANKS] [STEPS]
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from steadyrun.store.ranks import rank_range
from steadyrun.store.writer import RunWriter

RANKS, STEPS = 1024, 2000
EVERY, BLOCKS, EXAMPLES, BATCH = 50, 12, 16, 16
CODE = """
import json, re, sys, time
from pathlib import Path
import steadyrun
start, busy = time.perf_counter(), time.process_time()
report = steadyrun.check(sys.argv[1])
seconds, busy = time.perf_counter() - start, time.process_time() - busy
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
found = [f"{a.question.code}:{a.answer.outcome}" for a in report.walk.path if a.answer.kind in ("fault", "suspect")]
ranks = {a.question.code: a.answer.kind for a in report.walk.path if a.question.code[0] == "R"}
head = report.headline
print(json.dumps({"check_s": round(seconds, 2), "check_cpu_s": round(busy, 2), "peak_memory_mib": round(peak),
                  "found": found,
                  "headline": head and head.answer.message, "answers": ranks}))
"""


def structure(ranks: int) -> dict[str, object]:
    """All ranks hold the same parameters."""
    blocks = {f"block{index}": "replicated" for index in range(BLOCKS)}
    everyone = rank_range(list(range(ranks)))
    return {
        "parallelism": "ddp",
        "classes": {"replicated": {"replicas": everyone, "shards": [0]}},
        "blocks": blocks,
        "broadcast_buffers": True,
    }


def digests(kind: int, samples: int, odd: bool) -> dict[str, np.ndarray]:
    """The digests of one rank; an odd one holds other parameters from the middle on."""
    columns = {}
    for number, name in enumerate(("gradient_digest", "parameter_digest")):
        for block in ("", *(f"/block{index}" for index in range(BLOCKS))):
            values = np.random.default_rng((kind, number, len(block))).integers(1, 2**50, samples).astype(float)
            if odd and number:
                values[samples // 2 :] += 1
            columns[f"{name}/replicated{block}"] = values
    return columns


def write_rank(root: Path, rank: int, ranks: int, steps: int, *, odd: bool, closed: bool = True) -> RunWriter:
    """The files of one rank as a recorder writes them."""
    writer = RunWriter(root, rank)
    if rank == 0:
        writer.save_manifest(state="finished" if closed else "running", config={"num_classes": 10}, inferred={})
    writer.event("start", 0, attempt=1)
    writer.event("process", None, rank=rank, world=ranks, host=f"host{rank // 8}", pid=rank)
    writer.event("structure", None, **structure(ranks))
    loader = {"batches": steps // 2, "sampler": "DistributedSampler", "shuffles": True, "batch_size": BATCH}
    writer.event("loader", 0, **loader, num_replicas=ranks, rank=rank, seed=0, epoch=0, dataset_size=10**7)
    for step in range(steps // 10, steps, steps // 10):
        writer.event("validation", step, values={"val_loss": 0.4 + 2 * math.exp(-step / 200)}, buffers=float(step))
    at, times = np.arange(steps), np.full(steps, time.time() + rank)
    source = np.random.default_rng(rank)
    shared = np.random.default_rng(0).standard_normal(steps)
    columns = {
        "loss": 0.3 + (math.log(10) - 0.3) * np.exp(-at / 200) + 0.02 * source.standard_normal(steps),
        "grad_norm": 2.5 + 0.3 * shared,
        "grad_norm_applied": np.ones(steps),
        "clip_threshold": np.ones(steps),
        "clipped": np.ones(steps),
        "lr/0": np.full(steps, 1e-3),
        "skipped": np.zeros(steps),
        "backwards": np.ones(steps),
        "examples": np.full(steps, float(BATCH)),
        "batch_hash": source.integers(1, 2**50, steps).astype(float),
        "step_time": np.full(steps, 0.1),
    }
    columns |= {f"time/{part}": np.full(steps, 0.02) for part in ("data", "forward", "backward", "update", "busy")}
    writer.write("steps", at, times, columns)
    samples = len(range(0, steps, EVERY))
    writer.write("digests", np.arange(0, steps, EVERY), times[:samples], digests(1, samples, odd))
    norms = {f"block_param_norm/block{index}": np.full(samples, 3.0) for index in range(BLOCKS)}
    writer.write("samples", np.arange(0, steps, EVERY), times[:samples], norms)
    seen = steps * EXAMPLES
    hashes = {"example_hash/train": source.integers(1, 2**50, seen).astype(float)}
    writer.write("examples", np.repeat(at, EXAMPLES), np.repeat(times, EXAMPLES), hashes)
    if closed:
        writer.close()
    else:
        writer.flush()
    return writer


def main() -> None:
    ranks, steps = (*map(int, sys.argv[1:]), *(RANKS, STEPS)[len(sys.argv) - 1 :])
    for case, odd, closed in (("healthy", (), True), ("odd rank", (17,), True), ("running", (), False)):
        with tempfile.TemporaryDirectory() as folder:
            root, began = Path(folder) / "run", time.perf_counter()
            for rank in range(ranks):
                write_rank(root, rank, ranks, steps, odd=rank in odd, closed=closed)
            written = round(time.perf_counter() - began, 1)
            done = subprocess.run([sys.executable, "-c", CODE, str(root)], capture_output=True, text=True, check=True)
        print(json.dumps({"case": case, "ranks": ranks, "steps": steps, "write_s": written, **json.loads(done.stdout)}))


if __name__ == "__main__":
    main()
