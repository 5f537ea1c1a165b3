"""Incidents on a GPU: what capture costs, that it does not wait for the device, and that replay finds the same.

The GPT of `gpu.py` (124M parameters, bf16) is recorded with and without capture, in turns. Then tutor runs on the GPU,
in fp16 and bf16, with and without a fault, are replayed.

    python benchmarks/gpu_incidents.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from gpu import ROUNDS, SEGMENT, Gpt2, waiting_calls
from torch import nn

import steadyrun
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.train import train_recorded

RUNS = [("lr-jump", "fp16"), ("lr-jump", "bf16"), ("lr-jump", "fp32"), ("log-of-zero", "fp32"), ("log-of-zero", "bf16")]
RUNS += [("infinite-embedding-gradient", "fp32"), ("fp16-overflow-constant-scale", "fp16")]


def loss_fn(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Captured(Gpt2):
    """The same, with capture on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, compiled=False)
        self.run.watch(self.model, self.optimizer, loss_fn=loss_fn)


def cost(folder: Path) -> dict[str, Any]:
    copies = {"recorded": Gpt2(folder / "plain", compiled=False), "captured": Captured(folder / "captured")}
    for copy in copies.values():
        copy.run._flusher.stop_monitor()
        copy.segment()
    times = dict.fromkeys(copies, 0.0)
    for _ in range(2 * ROUNDS):
        for name, copy in copies.items():
            times[name] += copy.segment()
    waits = {name: waiting_calls(copy) for name, copy in copies.items()}
    capture = copies["captured"].run._flusher.capture
    began = time.perf_counter()
    for copy in copies.values():
        copy.run.close()
    return {
        "step_ms": round(1e3 * times["recorded"] / (2 * ROUNDS * SEGMENT), 2),
        "captured_over_recorded": round(times["captured"] / times["recorded"], 4),
        "waiting_calls_in_20_unsampled_steps": waits,
        "checkpoints_kept": [each.step for each in capture._rolling.checkpoints],
        "closing_s": round(time.perf_counter() - began, 1),
        "problems": [
            (event.kind, event.fields.get("why"))
            for event in steadyrun.open_run(folder / "captured").events()
            if event.kind in ("probe-failed", "not-recorded")
        ],
    }


def replayed(folder: Path, fault: str, dtype: str) -> dict[str, Any]:
    path = folder / f"{fault}-{dtype}"
    train_recorded(load_recipe(fault, steps=FAULTS[fault].steps, dtype=dtype, device="cuda", dropout=0.1), path)
    result = steadyrun.replay(path)
    culprit = result.culprit
    return {
        "run": f"{fault} {dtype}",
        "incident": [result.incident.step, result.incident.kind],
        "proof": [result.proof.verdict, result.proof.compared, result.proof.largest, result.proof.first_different],
        "differences": [each.message for each in result.proof.differences],
        "first_bad": result.first_bad,
        "violent": None if result.violent is None else [result.violent.step, result.violent.parameter],
        "culprit": None if culprit is None else [culprit.stage, culprit.module, culprit.operation, culprit.cause],
        "precision": None if result.precision is None else result.precision.outcome,
    }


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    with tempfile.TemporaryDirectory() as folder:
        for fault, dtype in RUNS:
            print(json.dumps(replayed(Path(folder), fault, dtype)), flush=True)
        print(json.dumps(cost(Path(folder))), flush=True)
