"""Preflight of every program in one process group; rank 0 writes the answers to a file."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from preflight_programs import BROKEN, HEALTHY

import steadyrun
from steadyrun.preflight.rank_group import RankGroup, Watch
from steadyrun.report.preflight import run_on_ranks


def state(task: steadyrun.Task) -> list[Any]:
    """Parameters, buffers, gradients, moments, modes and random numbers of this rank."""
    model = task.model
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    tensors += [value for kept in task.optimizer.state.values() for value in kept.values()]
    shards = [getattr(tensor, "to_local", tensor.detach)().detach().clone() for tensor in tensors]
    return [*shards, torch.get_rng_state(), torch.tensor([module.training for module in model.modules()])]


def main(path: str) -> None:
    dist.init_process_group("gloo")
    group = RankGroup(Watch(120, lambda lines: print("\n".join(lines), file=sys.stderr)), 120)
    answers = {}
    for name, build in (HEALTHY | {name: build for name, (build, _) in BROKEN.items()}).items():
        task = build()
        before = state(task)
        report = run_on_ranks(task, group)
        after = state(task)
        untouched = len(before) == len(after) and all(map(torch.equal, before, after))
        headline = report.headline
        answers[name] = {
            "verdict": report.verdict,
            "headline": headline and f"{headline.question.code} {headline.answer.outcome}",
            "evidence": headline and headline.answer.message,
            "answers": {asked.question.code: asked.answer.kind for asked in report.walk.path},
            "untouched": group.gather(untouched),
            "verdicts": group.gather(report.verdict),
        }
    if group.rank == 0:
        Path(path).write_text(json.dumps(answers))
    group.close()
    dist.destroy_process_group()


main(sys.argv[1])
