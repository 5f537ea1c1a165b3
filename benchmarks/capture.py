"""What capturing incidents costs, at its defaults: of the training loop's time, of a second core, and of memory.

One copy trains. The time that the training thread spends in capture (keeping the batch, reading random states, copying
the state) is added up, and so is the CPU time of the thread that writes.

    python benchmarks/capture.py gpt17m --steps 600
    python benchmarks/capture.py tutor --steps 2000 --threads 1
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from overhead import WORKLOADS, Clock


def measure(name: str, steps: int) -> dict[str, object]:
    loop, copies, writing = Clock(), Clock(), []
    with tempfile.TemporaryDirectory() as folder:
        copy = WORKLOADS[name](Path(folder) / "run")
        copy.run._flusher.stop_monitor()
        capture = copy.run._flusher.capture
        _timed(capture, "step_ended", loop)
        _timed(capture._checkpointing, "take", copies)
        capture._boundary._crossed = _timing(capture._crossed, loop)
        _count_writing(capture._worker, writing)
        for _ in range(5):
            copy.step()
        loop.wall.clear()
        largest, began = 0, time.perf_counter()
        for _ in range(steps):
            copy.step()
            largest = max(largest, capture._ring.nbytes)
        took = time.perf_counter() - began
        capture._worker.wait()
        size = sum(tensor.nbytes for tensor in capture._checkpointing._pool._buffers.values())
        copy.run.close()
    return {
        "workload": name,
        "steps": steps,
        "threads": torch.get_num_threads(),
        "step_ms": round(1e3 * took / steps, 2),
        "in_the_loop": round(sum(loop.wall) / took, 4),
        "of_it_copying": round(sum(copies.wall) / took, 4),
        "writing_cpu": round(sum(writing) / took, 4),
        "together": round((sum(loop.wall) + sum(writing)) / took, 4),
        "checkpoints": len(copies.wall),
        "checkpoint_mib": round(size / 2**20, 1),
        "ordinary_step_us": round(1e6 * sorted(loop.wall)[len(loop.wall) // 2], 1),
        "ring_mib": round(largest / 2**20, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _timed(held: Any, name: str, clock: Clock) -> None:
    setattr(held, name, _timing(getattr(held, name), clock))


def _timing(action: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return action(*given, **named)
        finally:
            clock.wall.append(time.perf_counter() - began)

    return timed


def _count_writing(worker: Any, spent: list[float]) -> None:
    original = worker.do

    def do(job: Callable[[], None], **given: bool) -> None:
        def counted() -> None:
            began = time.thread_time()
            try:
                job()
            finally:
                spent.append(time.thread_time() - began)

        original(counted, **given)

    worker.do = do


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(options.workload, options.steps)))
