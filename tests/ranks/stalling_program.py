"""A program for two ranks, started without a launcher: python stalling_program.py FOLDER RANK CASE.

Ranks find each other through a file. What a case does next is decided by files that the test makes, never by a time.
"""

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import steadyrun

FOLDER, RANK, CASE = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
STALLS, EARLY, STEPS = 6, 8, 30
TIMEOUT = timedelta(seconds=8 if CASE == "unequal" else 300)


def wait_for(name: str) -> None:
    """Wait until the test has made a file."""
    while not (FOLDER / name).exists():
        time.sleep(0.05)


def batches(case: str) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of this rank: as many as the case wants, slow or stalling where it wants that."""
    count = {"unequal": EARLY if RANK == 0 else EARLY + 2, "stall": 1_000_000}.get(case, STEPS)
    for step in range(count):
        source = torch.Generator().manual_seed(10 * step + RANK)
        if RANK == 1 and case == "stall" and step == STALLS:
            wait_for("go on")
        if RANK == 1 and case == "slow":
            time.sleep(0.1)
        yield torch.randn(16, 8, generator=source), torch.randint(0, 3, (16,), generator=source)


def train(case: str, group: dist.ProcessGroup) -> None:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3)), process_group=group
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    stall_seconds = 0.5 if case == "stall" else None
    with steadyrun.record(FOLDER / case, flush_seconds=0.2, stall_seconds=stall_seconds) as run:
        run.watch(model, optimizer, monitor=False)
        for batch in batches(case):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch)


dist.init_process_group("gloo", init_method=f"file://{FOLDER / 'store'}", rank=RANK, world_size=2)
dist.barrier()
short = dist.new_group(timeout=TIMEOUT)
for each in CASE.split(","):
    train(each, short)
if CASE == "unequal":
    wait_for("leave")
dist.barrier()
