"""Recording on a GPU: what it costs, that no unsampled step waits for the device, and that the numbers are right.

A GPT of GPT-2's shape (124M parameters) in bf16 autocast, batch 16 x 1024, eager and compiled. Bare, recorded
and bare-again copies take turns in segments of 100 steps, with a synchronisation only at a segment's ends.

    python benchmarks/gpu.py            (needs torch with CUDA; nothing but numpy and pyarrow besides)
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import steadyrun
from steadyrun.probes.batch_hashes import arrays_of, example_hashes
from steadyrun.tutor.model import MiniGPT, ModelConfig, init_weights

SEGMENT, ROUNDS = 100, 4
WAITING_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


class Gpt2:
    def __init__(self, folder: Path | None, *, compiled: bool) -> None:
        torch.manual_seed(0)
        model = MiniGPT(ModelConfig(50304, 1024, 12, 768, 12))
        init_weights(model)
        self.model: Any = model.cuda()
        if compiled:
            self.model = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)
        self.data = torch.randint(0, 50304, (64, 16, 1025), device="cuda")
        self.turn = 0
        self.run = None
        if folder is not None:
            self.run = steadyrun.record(folder, config={"clip": 1.0, "dtype": "bf16"})
            self.run.watch(self.model, self.optimizer)

    def step(self) -> None:
        tokens = self.data[self.turn % 64]
        self.turn += 1
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(tokens[:, :-1])
        by_token = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
        loss = by_token.mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.run is not None:
            halves = by_token.detach().view(2, -1).mean(1)
            self.run.step(loss, batch=tokens, class_losses={"first": halves[0], "second": halves[1]})

    def segment(self) -> float:
        if self.run is not None:
            self.run._attachment.watcher.prepare(self.run._steps.next)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(SEGMENT):
            self.step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        if self.run is not None:
            self.run._attachment.watcher._forward.disarm()
        return seconds


def overhead(folder: Path, *, compiled: bool) -> dict[str, Any]:
    copies = [("bare", None), ("recorded", folder), ("control", None)]
    built = [(name, Gpt2(path, compiled=compiled)) for name, path in copies]
    built[1][1].run._flusher.stop_monitor()  # it goes by the clock, which here counts the other copies, too
    for _, copy in built:
        copy.segment()
    times: dict[str, float] = dict.fromkeys(("bare", "recorded", "control"), 0.0)
    for turn in range(ROUNDS):
        for place in range(3):
            name, copy = built[(place + turn) % 3]
            times[name] += copy.segment()
    waits = {name: waiting_calls(copy) for name, copy in built[:2]}
    built[1][1].run.close()
    view = steadyrun.open_run(folder)
    return {
        "compiled": compiled,
        "step_ms": round(1e3 * times["bare"] / (ROUNDS * SEGMENT), 2),
        "recorded_over_bare": round(times["recorded"] / times["bare"], 4),
        "bare_over_bare": round(times["control"] / times["bare"], 4),
        "monitor": monitor_share(folder.with_name(f"{folder.name}-monitored"), compiled=compiled),
        "waiting_calls_in_20_unsampled_steps": waits,
        "series": len(view.names()),
        "events": [(event.kind, event.fields.get("why", "")[:100]) for event in view.events()],
    }


def monitor_share(folder: Path, *, compiled: bool) -> dict[str, Any]:
    """One recorded copy alone: the time in which the live monitor looks."""
    copy = Gpt2(folder, compiled=compiled)
    monitor, looks = copy.run._flusher._monitor, []
    look = monitor.look

    def timed(step: int, turn: int) -> None:
        began = time.perf_counter()
        look(step, turn)
        looks.append(time.perf_counter() - began)

    monitor.look = timed
    took = sum(copy.segment() for _ in range(2 * ROUNDS))
    copy.run.close()
    return {"looks": len(looks), "longest_ms": round(1e3 * max(looks), 1), "share": round(sum(looks) / took, 4)}


def waiting_calls(copy: Gpt2) -> dict[str, int]:
    """Calls that make the host wait, in 20 steps that no probe samples but that flush; first as an error."""
    if copy.run is not None:
        copy.run._steps.next = 10_021
        copy.run._attachment.watcher.prepare(10_021)
        copy.run.flush()
        copy.run._flusher._flush_steps = 4
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(5):
        copy.step()
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(20):
            copy.step()
    counts = {event.key: event.count for event in seen.key_averages()}
    found = {name: counts.get(name, 0) for name in WAITING_CALLS}
    found["Memcpy DtoH"] = sum(count for name, count in counts.items() if "Memcpy DtoH" in name)
    found["aten::item"] = counts.get("aten::item", 0)
    return found


def correctness(folder: Path) -> dict[str, Any]:
    """The same numbers as on the CPU: norms, hashes, loss scale and skips, a NaN dated to its step, memory."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14)
    truth: list[float] = []
    with steadyrun.record(folder, every={"histograms": 5, "spectral": 1, "blocks": 1}) as run:
        run.watch(model, optimizer)
        for step in range(40):
            batch = torch.randn(32, 64, device="cuda")
            with torch.autocast("cuda", torch.float16):
                loss = model(batch).float().pow(2).mean() * (math.nan if step == 30 else 1.0)
            scaler.scale(loss).backward()
            squares = torch.stack([p.grad.double().pow(2).sum() for p in model.parameters()])
            truth.append(float(squares.sum().sqrt()) / scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.step(loss, batch=batch)
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(2**50, dtype=torch.uint8, device="cuda")
    view = steadyrun.open_run(folder)
    norms = view.series("grad_norm").values
    exact = [float(torch.linalg.svdvals(p.detach().float())[0]) for n, p in model.named_parameters() if n == "0.weight"]
    one = torch.randn(16, 33)
    same = example_hashes(arrays_of(one)).tolist() == example_hashes(arrays_of(one.cuda())).tolist()
    finite = [place for place in range(1, 40) if place != 30]  # at 0 the scaler is not known yet
    return {
        "grad_norm_right": all(abs(norms[i] / truth[i] - 1) < 1e-3 for i in finite),
        "nan_step": np.flatnonzero(np.isnan(view.series("loss").values)).tolist(),
        "skipped_steps": np.flatnonzero(view.series("skipped").values).tolist(),
        "loss_scale_after_nan": view.series("loss_scale").values[-1],
        "spectral_relative_error": abs(view.series("spectral_norm/0.weight").values[-1] / exact[0] - 1),
        "hash_same_on_cpu_and_gpu": same,
        "out_of_memory_events": len(view.events("out-of-memory")),
        "system": [n for n in view.names() if n.startswith(("memory", "gpu"))],
        "problems": [
            (e.kind, e.fields.get("why")) for e in view.events() if e.kind in ("probe-failed", "not-recorded")
        ],
        "dtype": view.manifest["inferred"].get("dtype"),
        "gpus": view.manifest["hardware"].get("gpus"),
    }


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"torch": torch.__version__, "correctness": correctness(Path(folder) / "check")}), flush=True)
        for compiled in (False, True):
            print(json.dumps(overhead(Path(folder) / f"run-{compiled}", compiled=compiled)), flush=True)
