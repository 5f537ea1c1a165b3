"""The Trainer's callback on a GPU: a small causal LM in fp16 and bf16, healthy and with a NaN, with and without it.

    python benchmarks/gpu_transformers.py            (needs torch with CUDA and transformers; --device cpu: bf16 alone)

Prints a line per run: whether losses and weights are those of a training without the callback (and whether two such
trainings are alike at all), how far the recorded losses and gradient norms are from the Trainer's log, the verdict, and
how often an ordinary step waited for the device in steadyrun. Fails where one of them is wrong.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

import steadyrun
from steadyrun.integrations.transformers import SteadyrunCallback

VOCAB, WIDTH, BREAKS_AT = 256, 64, 100


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    chance = torch.Generator().manual_seed(seed)
    start, stride = (torch.randint(low, VOCAB, (count, 1), generator=chance) for low in (0, 1))
    ids = (start + stride % 7 * torch.arange(WIDTH)) % VOCAB
    noise = torch.rand(ids.shape, generator=chance) < 0.1
    ids = torch.where(noise, torch.randint(0, VOCAB, ids.shape, generator=chance), ids)
    return [{"input_ids": row, "labels": row} for row in ids]


class Program(Trainer):
    """The Trainer; with `breaks`, one weight becomes NaN after a while, and the Trainer's log hides it."""

    breaks = False

    def training_step(self, model: Any, *given: Any, **named: Any) -> torch.Tensor:
        if self.breaks and self.state.global_step == BREAKS_AT:
            with torch.no_grad():
                next(model.parameters())[3] = math.nan
        return super().training_step(model, *given, **named)


class Waits(TrainerCallback):
    """Counts the warnings of torch about waits that come from steadyrun's files: after the first step, which reads
    the initial weights, and until the last ones."""

    def __init__(self, seen: list[Any], until: int) -> None:
        self.seen, self.until, self.found = seen, until, 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        if state.global_step in {1, self.until}:
            self.found = sum("steadyrun" in each.filename for each in self.seen) - self.found


def build(folder: Path, dtype: str, device: str, steps: int, callbacks: list[Any], *, breaks: bool = False) -> Program:
    set_seed(1)
    size = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, num_key_value_heads=4, **size))
    arguments = TrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        warmup_steps=20,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=device == "cpu",
        fp16=dtype == "fp16",
        bf16=dtype == "bf16",
    )
    data = {"train_dataset": texts(4096, 0), "eval_dataset": texts(128, 1)}
    trainer = Program(model, arguments, **data, callbacks=callbacks)
    trainer.breaks = breaks
    return trainer


def trained(trainer: Program) -> float:
    before = time.perf_counter()
    trainer.train()
    return time.perf_counter() - before


def logged(trainer: Program, name: str) -> np.ndarray[Any, Any]:
    return np.array([entry[name] for entry in trainer.state.log_history if name in entry])


def alike(one: Program, two: Program) -> bool:
    weights = zip(one.model.parameters(), two.model.parameters(), strict=True)
    same = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in weights)
    return same and np.array_equal(logged(one, "loss"), logged(two, "loss"), equal_nan=True)


def off(recorded: Any, said: np.ndarray[Any, Any]) -> float:
    """The largest relative distance where both are finite."""
    keep = np.isfinite(recorded) & np.isfinite(said)
    return float(np.max(np.abs(recorded[keep] - said[keep]) / np.maximum(1e-9, np.abs(said[keep]))))


def waits(folder: Path, dtype: str, device: str) -> int:
    """How often steadyrun waits for the device in 40 steps without sampled probes, monitor and flush."""
    if device == "cpu":
        return 0
    quiet = SteadyrunCallback(folder / "quiet", every=0, monitor=False, flush_seconds=1e9, flush_steps=10_000)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        counting = Waits(seen, 40)
        trainer = build(folder / "output", dtype, device, 45, [quiet, counting])
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trainer.train()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return counting.found


def compare(folder: Path, dtype: str, device: str, steps: int, *, breaks: bool) -> bool:
    bare, again = (build(folder / "output", dtype, device, steps, [], breaks=breaks) for _ in range(2))
    recorded = build(folder / "output", dtype, device, steps, [SteadyrunCallback(folder / "run")], breaks=breaks)
    seconds = [trained(each) for each in (bare, again, recorded)]
    view, report = steadyrun.open_run(folder / "run"), steadyrun.check(folder / "run")
    control, same = alike(bare, again), alike(bare, recorded)
    finite = slice(None, BREAKS_AT) if breaks else slice(None)
    loss_off = off(view.series("loss").values[finite], logged(recorded, "loss")[finite])
    norm_off = off(view.series("grad_norm").values[finite], logged(recorded, "grad_norm")[finite])
    leaf = report.leaf
    found = "" if leaf is None else f"{leaf.question.code} {leaf.answer.outcome} at step {leaf.answer.step}"
    first = int(np.argmax(~np.isfinite(view.series("loss").values)))
    waiting = 0 if breaks else waits(folder, dtype, device)
    right = (same or not control) and loss_off < 1e-4 and norm_off < 1e-3 and waiting == 0
    right &= (leaf is not None and first == BREAKS_AT) if breaks else leaf is None
    right &= not view.events("probe-failed")
    skipped = int(np.sum(view.series("skipped").values > 0))
    print(
        f"{'ok ' if right else 'NOT'} {dtype} {'nan    ' if breaks else 'healthy'} same as without: {same} "
        f"(two without: {control}); loss off by {loss_off:.1e}, norm by {norm_off:.1e}; skipped {skipped}; "
        f"waits {waiting}; {seconds[2] / seconds[1]:.2f}x; {report.verdict} {found}",
        flush=True,
    )
    for event in view.events("probe-failed"):
        print(f"    {event.fields}")
    return bool(right)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    options.add_argument("--steps", type=int, default=200)
    given = options.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    right = True
    for dtype in ("fp16", "bf16") if given.device == "cuda" else ("bf16",):
        for breaks in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                right &= compare(Path(folder), dtype, given.device, given.steps, breaks=breaks)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
