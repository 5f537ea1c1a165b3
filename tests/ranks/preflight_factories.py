"""Functions for `steadyrun preflight` under torchrun."""

import os
import time
from typing import Any

import preflight_programs as programs
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

import steadyrun


def healthy() -> steadyrun.Task:
    """Leaves the process group to preflight."""
    data = programs.dataset()
    sampler = DistributedSampler(data, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
    step = programs.averaging(divide=True)
    return programs.plain(train_step=step, loader=DataLoader(data, 8, sampler=sampler))


def made_by_the_script() -> steadyrun.Task:
    """Needs a process group, which its script makes before it calls this."""
    return programs.ddp()


def same_data() -> steadyrun.Task:
    dist.init_process_group("gloo")
    return programs.BROKEN["no sampler"][0]()


def fails_on_one_rank() -> steadyrun.Task:
    dist.init_process_group("gloo")

    def loss_fn(model: Any, batch: Any) -> Tensor:
        if dist.get_rank() == 1:
            raise IndexError("row 9 of 8")
        return programs.loss_fn(model, batch)

    return programs.ddp(loss_fn=loss_fn)


def stalls_on_one_rank() -> steadyrun.Task:
    if os.environ["RANK"] == "1":
        time.sleep(600)
    dist.init_process_group("gloo")
    return programs.ddp()
