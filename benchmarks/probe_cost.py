"""What each probe costs: host time and, on a GPU, device time, of a sampled step and spread over all steps.

One process trains the workload bare, recorded without samples, with each probe alone, and with all. A probe is made due
again and again, with an ordinary step after each sample; the first samples, which look more closely, do not count. Host
time is that of the loop until it has the next step queued, beginning with an idle GPU: what the host spends, hidden
behind the GPU's work or not, unless a probe waits; `waits` counts the synchronising calls of a sampled step. Kernels
are the device time of a sampled step beyond that of an ordinary one.

    python benchmarks/probe_cost.py gpt124m                    (needs CUDA)
    python benchmarks/probe_cost.py gpt1.5b --samples 3        (needs CUDA)
    python benchmarks/probe_cost.py gpt17m --threads 1
    python benchmarks/probe_cost.py tutor --samples 40 --threads 1

`--launches` needs no GPU: the model lies on torch's `meta` device, which computes nothing, and the operators that
each probe calls are counted. Views and allocations launch no kernel and do not count; an operator on a list of tensors
counts once. Of the spectral norms it counts all parts, of which a step measures one.

    python benchmarks/probe_cost.py gpt124m --launches
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost import SHAPES, WORKLOADS, Gpt, build

_NOT_OF_ONE_MODEL = ("digests",)  # only with several processes
_LOOKED_AT_CLOSELY = 8  # samples at the start of a run
_WAITING_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


@dataclass
class Cost:
    """Of one step, sampled or ordinary: milliseconds of the host, and on a GPU what the device does."""

    host: float
    kernels: float = 0.0
    launches: float = 0.0
    waits: float = 0.0

    def beyond(self, other: Cost) -> Cost:
        return Cost(
            self.host - other.host,
            self.kernels - other.kernels,
            self.launches - other.launches,
            self.waits - other.waits,
        )


def measure(program: Any, probes: set[str] | None, samples: int) -> tuple[Cost, Cost, int]:
    """A sampled and an ordinary step with these probes, and the parts of the spectral norms; None records nothing."""
    import steadyrun
    from steadyrun.probes.cadence import DEFAULTS

    sampled, ordinary, parts, run = [], [], 1, None
    with tempfile.TemporaryDirectory() as folder:
        if probes is not None:
            every = {probe: count if probe in probes else 0 for probe, count in DEFAULTS.items()}
            run = steadyrun.record(Path(folder) / "run", config=program.config, every=every)
            program.watch(run, monitor=False, capture=False)
            parts = run._attachment.watcher._spectral.parts
        for number in range(1, _LOOKED_AT_CLOSELY + samples + 1):
            _make_due(run, probes, number, parts)
            sampled.append(_host_time(program, run))
            _make_due(run, set(), number, parts)
            ordinary.append(_host_time(program, run))
        _make_due(run, probes, number + 1, parts)
        due = _device_work(program, run)
        _make_due(run, set(), number + 1, parts)
        other = _device_work(program, run)
        if run is not None:
            run.close()
    host = [statistics.median(times[_LOOKED_AT_CLOSELY:]) for times in (sampled, ordinary)]
    return Cost(host[0], *due), Cost(host[1], *other), parts


def _make_due(run: Any, probes: set[str] | None, number: int, parts: int) -> None:
    """Let the coming step sample these probes, one part of the spectral norms; none of them in an ordinary step."""
    from steadyrun.probes.cadence import DEFAULTS

    if run is None:
        return
    watcher, period = run._attachment.watcher, max(DEFAULTS.values())
    run._attachment.turn = number * period + (0 if probes else 7)
    watcher.prepare(run._attachment.turn)
    watcher._spectral_parts = _spectral_parts(number, parts) if probes and "spectral" in probes else []


def _spectral_parts(number: int, parts: int) -> list[int]:
    """All of them at first, since a matrix without a kept vector takes twice the steps; then one after the other."""
    return list(range(parts)) if number <= _LOOKED_AT_CLOSELY else [number % parts]


def _host_time(program: Any, run: Any) -> float:
    import torch

    cuda = torch.cuda.is_available()
    clock = time.perf_counter if cuda else time.thread_time
    if cuda:
        torch.cuda.synchronize()
    before = clock()
    program.step(run)
    return 1e3 * (clock() - before)


def _device_work(program: Any, run: Any) -> tuple[float, float, float]:
    """Milliseconds of kernels, launches and waits of one step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return 0.0, 0.0, 0.0
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        program.step(run)
        torch.cuda.synchronize()
    rows = seen.key_averages()
    return (
        sum(getattr(row, "self_device_time_total", 0.0) for row in rows) / 1e3,
        float(sum(row.count for row in rows if "LaunchKernel" in row.key)),
        float(sum(row.count for row in rows if row.key in _WAITING_CALLS)) - 1,  # our own
    )


def table(name: str, samples: int) -> None:
    """Print a row for each probe, and one for all together."""
    from steadyrun.probes.cadence import DEFAULTS

    program = build(name)
    _, bare, _ = measure(program, None, samples)
    _, none, _ = measure(program, set(), samples)
    print(f"`{name}`: a bare step takes {bare.host:.2f} ms of the host; recording without samples adds")
    print(f"{none.host - bare.host:.3f} ms to each.\n")
    print(
        "| probe | every | host, sampled step | per step | kernels | launches | waits |\n|---|---|---|---|---|---|---|"
    )
    names = [probe for probe, every in DEFAULTS.items() if every and probe not in _NOT_OF_ONE_MODEL]
    total = 0.0
    for probe in names:
        sampled, ordinary, parts = measure(program, {probe}, samples)
        more = sampled.beyond(ordinary)
        spread = more.host / DEFAULTS[probe] * (parts if probe == "spectral" else 1)
        total += spread
        each = f"{DEFAULTS[probe]}" + (f", {parts} parts" if probe == "spectral" else "")
        device = f"{more.kernels:.2f} ms | {more.launches:.0f} | {more.waits:.0f}"
        print(f"| {probe} | {each} | {more.host:.2f} ms | {spread:.3f} ms | {device} |", flush=True)
    sampled, ordinary, _ = measure(program, set(names), samples)
    more = sampled.beyond(ordinary)
    device = f"{more.kernels:.2f} ms | {more.launches:.0f} | {more.waits:.0f}"
    print(f"| all at one step | | {more.host:.2f} ms | {total:.3f} ms | {device} |", flush=True)


_NO_KERNEL = ("empty", "detach", "_unsafe_view", "_reshape_alias", "lift_fresh", "alias", "set_")


def launches(name: str) -> None:
    """Print a table of the operators that each probe adds to a sampled step."""
    import torch

    from steadyrun.probes import row_queue
    from steadyrun.probes.cadence import DEFAULTS

    row_queue._to_host = lambda joined: torch.zeros(joined.shape, dtype=joined.dtype)
    bare = _operators(name, None)
    names = [probe for probe, count in DEFAULTS.items() if count and probe not in (*_NOT_OF_ONE_MODEL, "system")]
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--samples", type=int, default=5, help="sampled steps that count, of each probe")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--launches", action="store_true", help="count operators on the meta device, for a GPT")
    chosen = parser.parse_args()
    if chosen.threads:
        import torch

        torch.set_num_threads(chosen.threads)
    if not chosen.launches:
        table(chosen.workload, chosen.samples)
    elif chosen.workload in SHAPES:
        launches(chosen.workload)
    else:
        parser.error(f"--launches counts for {', '.join(SHAPES)}")
