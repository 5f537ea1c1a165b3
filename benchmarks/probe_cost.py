"""What each probe costs: host time and, on a GPU, device time, per sampled step and spread over all steps.

For every probe a process of its own trains the workload with that probe alone, at its default cadence (`--with`), or
with all probes but that one (`--without`); `none` has all sampled probes off and shows what an ordinary step costs, and
`bare` records nothing. Host time is that between two returns of the loop without any synchronisation, so on a GPU it is
what the host spends, hidden or not, unless a probe waits; `waits` counts the synchronising calls of sampled steps.
Device time is the sum of all kernels of a sampled step, beside that of `bare`.

    python benchmarks/probe_cost.py gpt124m --steps 320        (needs CUDA)
    python benchmarks/probe_cost.py gpt1.5b --steps 220        (needs CUDA)
    python benchmarks/probe_cost.py gpt17m --steps 220 --threads 1
    python benchmarks/probe_cost.py tutor --steps 620 --threads 1

`--launches` needs no GPU: the model lies on torch's `meta` device, which computes nothing, and the operators that
each probe calls are counted. Views and allocations launch no kernel and do not count; an operator on a list of tensors
counts once. It counts a sample after the first looks, in which everything is looked at more closely; of the spectral
norms it counts all parts, of which a step measures one.

    python benchmarks/probe_cost.py gpt124m --launches
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cost import SHAPES, WORKLOADS, Gpt, build

_FIRST = 25  # the early samples are over
_WAITING_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def one(name: str, probes: set[str], steps: int, threads: int | None, *, bare: bool) -> dict[str, Any]:
    """Train with these sampled probes alone; the times of its steps by the probes that were due."""
    import torch

    import steadyrun
    from steadyrun.probes.cadence import DEFAULTS

    if threads:
        torch.set_num_threads(threads)
    program, cuda = build(name), torch.cuda.is_available()
    every = {probe: count if probe in probes else 0 for probe, count in DEFAULTS.items()}
    sampled, ordinary, kernels = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        run = None
        if not bare:
            run = steadyrun.record(Path(folder) / "run", config=program.config, every=every)
            program.watch(run, monitor=False, capture=False)
        for number in range(steps):
            watcher = None if run is None else run._attachment.watcher
            due = watcher is not None and bool(watcher._sampling or watcher._spectral_parts)
            if cuda:
                torch.cuda.synchronize()
            before = time.perf_counter(), time.thread_time()
            program.step(run)
            took = time.perf_counter() - before[0] if cuda else time.thread_time() - before[1]
            if number >= _FIRST:
                (sampled if due else ordinary).append(took)
        if cuda:
            kernels = [_kernels(program, run, number) for number in _next_sampled(every, steps)]
        if run is not None:
            run.close()
    return {
        "host_sampled_ms": 1e3 * statistics.median(sampled or ordinary),
        "host_ordinary_ms": 1e3 * statistics.median(ordinary),
        "host_longest_ms": 1e3 * max(sampled, default=0.0),
        "sampled_share": len(sampled) / (len(sampled) + len(ordinary)),
        "kernels_ms": statistics.median(k["ms"] for k in kernels) if kernels else None,
        "launches": statistics.median(k["launches"] for k in kernels) if kernels else None,
        "waits": statistics.median(k["waits"] for k in kernels) if kernels else None,
    }


def _next_sampled(every: dict[str, int], steps: int) -> list[int]:
    """Two steps to come in which all of the probes are due."""
    most = max([1, *every.values()])
    first = -(-(steps + 1) // most) * most
    return [first, first + most]


def _kernels(program: Any, run: Any, number: int) -> dict[str, float]:
    """One step under the profiler, numbered so that the probes are due."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if run is not None:
        run._attachment.turn = number
        run._attachment.watcher.prepare(number)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        program.step(run)
        torch.cuda.synchronize()
    rows = seen.key_averages()
    return {
        "ms": sum(getattr(row, "self_device_time_total", 0.0) for row in rows) / 1e3,
        "launches": float(sum(row.count for row in rows if "LaunchKernel" in row.key)),
        "waits": float(sum(row.count for row in rows if row.key in _WAITING_CALLS)) - 1,  # our own
    }


_LOOKED_AT_CLOSELY = 8  # samples at the start of a run
_NO_KERNEL = ("empty", "detach", "_unsafe_view", "_reshape_alias", "lift_fresh", "alias", "set_")


def launches(name: str) -> None:
    """Print a table of the operators that each probe adds to a sampled step."""
    import torch

    from steadyrun.probes import row_queue
    from steadyrun.probes.cadence import DEFAULTS

    row_queue._to_host = lambda joined: torch.zeros(joined.shape, dtype=joined.dtype)
    bare = _operators(name, None)
    names = [probe for probe, count in DEFAULTS.items() if count and probe not in ("digests", "system")]
    ordinary = _operators(name, set())
    print(
        f"`{name}` in float32: a bare step calls {bare} operators, an ordinary recorded one {ordinary - bare} more.\n"
    )
    print("| probe | every | operators more, sampled step | per step |\n|---|---|---|---|")
    total = 0.0
    for probe in names:
        more = _operators(name, {probe}) - ordinary
        total += more / DEFAULTS[probe]
        print(f"| {probe} | {DEFAULTS[probe]} | {more} | {more / DEFAULTS[probe]:.2f} |", flush=True)
    print(f"| all | | | {total:.2f}, {100 * total / bare:.2f}% of a bare step's |")


def _operators(name: str, probes: set[str] | None) -> int:
    """The operators of one step in which these probes are due; None records nothing."""
    import steadyrun
    from steadyrun.probes.cadence import DEFAULTS
    from steadyrun.program.torch_compat import TorchDispatchMode

    class Operators(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += not (func.is_view or func.__name__.startswith(_NO_KERNEL))
            return func(*args, **(kwargs or {}))

    program = Gpt(name, device="meta")
    with tempfile.TemporaryDirectory() as folder:
        run = None
        if probes is not None:
            every = {probe: count if probe in probes else 0 for probe, count in DEFAULTS.items()}
            run = steadyrun.record(Path(folder) / "run", every=every, flush_steps=10**6, flush_seconds=1e6)
            program.watch(run, monitor=False, capture=False)
        for sample in range(1, _LOOKED_AT_CLOSELY + 2):
            if run is not None:
                number = sample * max(DEFAULTS.values())
                watcher = run._attachment.watcher
                run._attachment.turn = number
                watcher.prepare(number)
                watcher._spectral_parts = list(range(watcher._spectral.parts)) if "spectral" in probes else []
            with Operators() as seen:
                program.step(run)
        if run is not None:
            run.close()
    return int(seen.count)


def table(options: argparse.Namespace) -> None:
    from steadyrun.probes.cadence import DEFAULTS

    names = [name for name, count in DEFAULTS.items() if count]
    plans = {"bare": "", "none": "", **{name: name for name in names}, "all": ",".join(names)}
    if options.without:
        plans |= {f"all but {name}": ",".join(other for other in names if other != name) for name in names}
    results: dict[str, dict[str, Any]] = {}
    for label, probes in plans.items():
        command = [sys.executable, __file__, options.workload, "--steps", str(options.steps), "--one", probes]
        command += ["--bare"] if label == "bare" else []
        command += ["--threads", str(options.threads)] if options.threads else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{label}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        results[label] = json.loads(done.stdout.strip().splitlines()[-1])
        print(json.dumps({"probe": label, **results[label]}), file=sys.stderr, flush=True)
    base, bare = results["none"], results["bare"]
    print(f"`{options.workload}`: a bare step takes {bare['host_ordinary_ms']:.2f} ms of the host; recording without")
    print(f"samples adds {base['host_ordinary_ms'] - bare['host_ordinary_ms']:.3f} ms to each.\n")
    print(
        "| probe | every | host, sampled step | per step | kernels | launches | waits |\n|---|---|---|---|---|---|---|"
    )
    for label, row in results.items():
        if label in ("bare", "none"):
            continue
        every = DEFAULTS.get(label, 50)
        more = row["host_sampled_ms"] - row["host_ordinary_ms"]
        device = [
            "" if row[key] is None or base[key] is None else f"{row[key] - base[key]:.2f}"
            for key in ("kernels_ms", "launches", "waits")
        ]
        spread = more * row["sampled_share"]
        print(f"| {label} | {every} | {more:.2f} ms | {spread:.3f} ms | {' | '.join(device)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--without", action="store_true", help="also measure all probes but one")
    parser.add_argument("--launches", action="store_true", help="count operators on the meta device, for a GPT")
    parser.add_argument("--one", help="probes, separated by commas: measure them in this process")
    parser.add_argument("--bare", action="store_true", help="record nothing")
    chosen = parser.parse_args()
    if chosen.launches:
        if chosen.workload not in SHAPES:
            parser.error(f"--launches counts for {', '.join(SHAPES)}")
        launches(chosen.workload)
    elif chosen.one is not None:
        wanted = {probe for probe in chosen.one.split(",") if probe}
        print(json.dumps(one(chosen.workload, wanted, chosen.steps, chosen.threads, bare=chosen.bare)))
    else:
        table(chosen)
