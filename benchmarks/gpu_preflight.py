"""Preflight and audits on an accelerator: a small GPT with one bug at a time, a healthy one in three formats.

python benchmarks/gpu_preflight.py

Prints what preflight and the audits say, whether training is bit for bit the same after preflight, and whether the
device survives an id beyond its table.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, WIDTH, LENGTH, BATCH = 256, 128, 64, 16
BUGS = (
    "",
    "softmax",
    "shifted-twice",
    "not-shifted",
    "no-zero-grad",
    "late-clip",
    "detached",
    "list",
    "replaced",
    "eval",
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = self.qkv(self.norm_1(x)).view(rows, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH + 2, WIDTH)
        blocks = [Block().to(DEVICE) for _ in range(3)]
        self.blocks: Any = blocks if bug == "list" else nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for place, block in enumerate(self.blocks):
            x = block(x)
            if self.bug == "detached" and place == 0:
                x = x.detach()
        scores = self.head(x)
        return scores.softmax(-1) if self.bug == "softmax" else scores


def batches(count: int, bug: str) -> list[tuple[Tensor, Tensor]]:
    made = torch.Generator().manual_seed(1)
    found = []
    for _ in range(count):
        start, step = (
            torch.randint(0, VOCABULARY, (BATCH, 1), generator=made),
            torch.randint(1, 5, (BATCH, 1), generator=made),
        )
        rows = ((start + step * torch.arange(LENGTH + 2)) % VOCABULARY).to(DEVICE)
        x, y = rows[:, :LENGTH], rows[:, 1 : LENGTH + 1]
        if bug == "shifted-twice":
            y = rows[:, 2:]
        found.append((x, x if bug == "not-shifted" else y))
    return found


def program(bug: str, dtype: str) -> tuple[steadyrun.Task, list[Any], dict[str, Any]]:
    torch.manual_seed(0)
    model = Gpt(bug).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if bug == "replaced":
        model.head = nn.Linear(WIDTH, VOCABULARY).to(DEVICE)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype)
    scaler = torch.amp.GradScaler(DEVICE) if dtype == "fp16" else None

    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        with nullcontext() if half is None else torch.autocast(DEVICE, half):
            scores = model(batch[0])
        return functional.cross_entropy(scores.float().flatten(0, 1), batch[1].flatten())

    def train_step(task: steadyrun.Task, batch: Any) -> Tensor:
        if bug != "no-zero-grad":
            optimizer.zero_grad()
        loss: Tensor = task.loss_fn(task.model, batch)
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        if bug != "late-clip":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
        if bug == "late-clip":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss.detach()

    config = {"vocab_size": VOCABULARY, "causal": True, "init": "random", "clip": 1.0, "dtype": dtype}
    data = batches(8, bug)
    return steadyrun.Task(model, optimizer, loss_fn, None, scaler, train_step, data, config=config), data, config


def train(folder: Path, bug: str, dtype: str, *, first: bool) -> tuple[str, list[float], str, float]:
    task, data, config = program(bug, dtype)
    said, seconds = "", 0.0
    if first:
        began = time.perf_counter()
        report = steadyrun.preflight(task)
        seconds = time.perf_counter() - began
        said = _words(report)
    losses = []
    with steadyrun.record(folder, config=config) as run:
        run.watch(task.model, task.optimizer, scaler=task.scaler)
        for step in range(120):
            losses.append(task.train_step(task, data[step % 8]) if task.train_step else None)
            run.step(losses[-1], batch=data[step % 8])
            if step == 60:
                task.model.eval()
                with torch.no_grad():
                    run.val(task.loss_fn(task.model, data[0]))
                if bug != "eval":
                    task.model.train()
    report = steadyrun.check(folder)
    failed = [asked.question.code for asked in report.walk.path if asked.answer.outcome == "failed"]
    return (
        said,
        [float(loss) for loss in losses if loss is not None],
        _words(report) + (f" FAILED {failed}" if failed else ""),
        seconds,
    )


def _words(report: steadyrun.Report) -> str:
    headline = report.headline
    failed = [asked.question.code for asked in report.walk.path if asked.answer.outcome == "failed"]
    told = "no fault" if headline is None else f"{headline.question.code} {headline.answer.outcome}"
    return told + (f" FAILED {failed}" if failed else "")


def survives() -> str:
    """An id beyond the table: preflight tells of it before the device is asked to look it up."""
    task, data, _ = program("", "fp32")
    data[0][0][0, 3] = VOCABULARY + 5
    report = steadyrun.preflight(task)
    torch.zeros(4, device=DEVICE).sum().item()  # raises where the device has failed
    return _words(report)


def main() -> None:
    print(f"{DEVICE}, torch {torch.__version__}, python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("fp32", "bf16", "fp16"):
            said, losses, audited, seconds = train(Path(folder, f"healthy-{dtype}"), "", dtype, first=True)
            _, again, _, _ = train(Path(folder, f"again-{dtype}"), "", dtype, first=False)
            same = (
                "the same"
                if losses == again
                else f"within {max(abs(a - b) for a, b in zip(losses, again, strict=True)):.2g}"
            )
            print(f"healthy {dtype}: preflight {said} ({seconds:.1f} s), audits {audited}; training after it {same}")
        for bug in BUGS[1:]:
            said, _, audited, _ = train(Path(folder, bug), bug, "bf16", first=True)
            print(f"{bug}: preflight {said}; audits {audited}")
        print(f"id beyond the table: preflight {survives()}, and the device works on")


if __name__ == "__main__":
    main()
