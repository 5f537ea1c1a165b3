"""What the digests cost that ranks are compared by: the 17M GPT on two ranks (DDP, gloo, CPU), with and without them.

Both ways record everything else and take turns in the same two processes. The steps from the 21st on count, so that a
sample falls on one step in fifty. `ratio` is that of the wall time, `thread_ratio` that of the processor time of the
training thread: on a machine that others use this is the one to look at. `fraction` is the processor time within the
probe itself, relative to that of all counted steps: it has no noise of the steps in it. `early_fraction` is the same of
the first 20 steps, six of which are sampled. `digest_ms` is one digest of all parameters.

    python benchmarks/rank_cost.py --steps 70 --rounds 2
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

_FIRST = 20  # steps that do not count


class Watch:
    """Adds up the processor time of the training thread within some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args)
            finally:
                self.seconds += time.thread_time() - start

        return timed


def measure(folder: Path, steps: int, rounds: int) -> None:
    """One rank: train both ways in turn, print what they took."""
    import torch
    import torch.distributed as dist
    from cost import Gpt

    from steadyrun.probes import digests
    from steadyrun.probes.tensor_digests import digest

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gpt = Gpt("gpt17m")
    parameters = list(gpt.model.parameters())
    gpt.model = torch.nn.parallel.DistributedDataParallel(gpt.model)
    watch = Watch()
    for name in ("before_step", "fill"):
        setattr(digests.DigestProbe, name, watch.around(getattr(digests.DigestProbe, name)))
    taken: dict[str, list[list[float]]] = {"off": [], "on": []}
    within: dict[str, list[float]] = {"early": [0.0, 0.0], "later": [0.0, 0.0]}
    for turn in range(rounds):
        for way, every in (("off", 0), ("on", 50)):
            dist.barrier()
            taken[way].append(_train(gpt, folder / f"{way}-{turn}", every, steps, watch, within))
    one = min(_seconds(lambda: digest(parameters)) for _ in range(5))
    if dist.get_rank() == 0:
        wall, thread = (
            sum(each[index] for each in taken["on"]) / sum(each[index] for each in taken["off"]) for index in (0, 1)
        )
        result = {
            "parameters": sum(parameter.numel() for parameter in parameters),
            "steps": rounds * (steps - _FIRST),
            "step_ms": 1000 * sum(each[1] for each in taken["off"]) / (rounds * (steps - _FIRST)),
            "ratio": wall,
            "thread_ratio": thread,
            "fraction": within["later"][0] / within["later"][1],
            "early_fraction": within["early"][0] / within["early"][1],
            "digest_ms": 1000 * one,
        }
        print(json.dumps({name: round(value, 5) for name, value in result.items()}, indent=1))
    dist.barrier()
    dist.destroy_process_group()


def _train(gpt: Any, folder: Path, every: int, steps: int, watch: Watch, within: dict[str, list[float]]) -> list[float]:
    """Wall and thread seconds of the counted steps."""
    import steadyrun

    with steadyrun.record(folder, gpt.config, every={"digests": every}) as run:
        gpt.watch(run, monitor=False, capture=False)
        marks = [(time.perf_counter(), time.thread_time(), watch.seconds)]
        for step in range(steps):
            gpt.step(run)
            if step + 1 in {_FIRST, steps}:
                marks.append((time.perf_counter(), time.thread_time(), watch.seconds))
    if every:
        for name, (before, after) in zip(("early", "later"), pairwise(marks), strict=True):
            within[name][0] += after[2] - before[2]
            within[name][1] += after[1] - before[1]
    return [marks[2][0] - marks[1][0], marks[2][1] - marks[1][1]]


def _seconds(action: Callable[[], object]) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="of a rank that was started by this program")
    given = parser.parse_args()
    if given.folder is not None:
        measure(given.folder, given.steps, given.rounds)
        return
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port, __file__]
        options = ["--steps", str(given.steps), "--rounds", str(given.rounds), "--folder", folder]
        raise SystemExit(subprocess.run([sys.executable, *words, *options], check=False).returncode)


if __name__ == "__main__":
    main()
