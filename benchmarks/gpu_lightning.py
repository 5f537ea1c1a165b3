"""The Lightning callback on a GPU: a small GPT in fp16-mixed and bf16-mixed, with the callback and without.

    python benchmarks/gpu_lightning.py            (needs torch with CUDA, and lightning; --accelerator cpu to compare)

Prints one line per run and fails where the losses or the parameters differ from those of the run without the callback
(unless that does not repeat itself), where a healthy run has a fault, or where a loss of NaN is not caught.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from steadyrun.integrations.lightning import SteadyrunCallback

VOCAB, LENGTH, WARMUP = 64, 32, 40


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, 4, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(lightning.LightningModule):
    """Keeps its own losses on the device, so that runs can be compared."""

    def __init__(
        self, steps: int, rate: float = 3e-3, log_of_softmax: bool = False, width: int = 128, layers: int = 4
    ) -> None:
        super().__init__()
        self.steps, self.rate, self.log_of_softmax = steps, rate, log_of_softmax
        width, layers = 128, 4
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)
        for table in (self.tokens, self.places, self.head):
            nn.init.normal_(table.weight, std=0.02)
        self.losses: list[Tensor] = []

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def training_step(self, batch: Any, _number: int) -> Tensor:
        (ids,) = batch
        scores, targets = self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        if self.log_of_softmax:  # the bug: what is nearly impossible becomes zero, and its logarithm infinite
            chosen = scores.softmax(dim=-1).gather(1, targets[:, None])
            loss = -chosen.log().mean()
        else:
            loss = nn.functional.cross_entropy(scores.float(), targets)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        matrices = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=(0.9, 0.95))

        def share(step: int) -> float:
            if step < WARMUP:
                return (step + 1) / WARMUP
            return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (self.steps - WARMUP))))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def text() -> DataLoader[Any]:
    """Counting upwards by one or two, with slips."""
    draw = torch.Generator().manual_seed(5)
    ids = [torch.randint(0, VOCAB, (4096,), generator=draw)]
    for _ in range(LENGTH):
        slip = torch.rand(4096, generator=draw) < 0.05
        step = torch.where(slip, torch.randint(0, VOCAB, (4096,), generator=draw), 1 + ids[0] % 2)
        ids.append((ids[-1] + step) % VOCAB)
    data = TensorDataset(torch.stack(ids, dim=1))
    return DataLoader(data, 32, shuffle=True, generator=torch.Generator().manual_seed(1))


def train(given: argparse.Namespace, precision: str, callbacks: list[Any], **options: Any) -> tuple[Gpt, float]:
    lightning.seed_everything(0, verbose=False)
    module = Gpt(given.steps, **options)
    trainer = lightning.Trainer(
        accelerator=given.accelerator,
        devices=1,
        precision=precision,
        max_steps=given.steps,
        gradient_clip_val=1.0,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(module, text())
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return module, time.perf_counter() - start


def same(one: Gpt, two: Gpt) -> bool:
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    losses = torch.stack(one.losses), torch.stack(two.losses)
    return torch.equal(*losses) and all(torch.equal(a.cpu(), b.cpu()) for a, b in pairs)


def healthy(given: argparse.Namespace, precision: str, folder: Path) -> bool:
    plain, _ = train(given, precision, [])
    again, before = train(given, precision, [])
    callback = SteadyrunCallback(folder, config={"vocab_size": VOCAB, "causal": True})
    recorded, after = train(given, precision, [callback])
    view, report = steadyrun.open_run(folder), steadyrun.check(folder)
    repeats, equal = same(plain, again), same(plain, recorded)
    kept = view.series("loss").values
    told = torch.stack(recorded.losses).double().cpu()
    right = len(kept) == given.steps and torch.allclose(torch.from_numpy(kept.copy()), told, rtol=1e-6, atol=0)
    skipped = int((view.series("skipped").values > 0).sum())
    print(
        f"{precision:<12} healthy   repeats itself: {repeats}  same with callback: {equal}  losses right: {right}  "
        f"skipped steps: {skipped}  verdict: {report.verdict}  time {after / before:.3f}x",
        flush=True,
    )
    if report.verdict == "fault":
        print(report)
    return (equal or not repeats) and right and report.verdict != "fault"


def broken(given: argparse.Namespace, precision: str, folder: Path) -> bool:
    callback = SteadyrunCallback(folder, on_fault="stop")
    stopped = ""
    try:
        train(given, precision, [callback], rate=1.0, log_of_softmax=True)
    except steadyrun.FaultFound as found:
        stopped = f"{found.found.code} {found.found.outcome}"
    headline = steadyrun.check(folder).headline
    code = "" if headline is None else f"{headline.question.code} {headline.answer.outcome}"
    print(f"{precision:<12} NaN       stopped by: {stopped or 'nothing'}  headline: {code or 'none'}", flush=True)
    return bool(stopped) and code.startswith(("D1", "D3", "C", "S"))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--accelerator", default="cuda")
    options.add_argument("--steps", type=int, default=400)
    given = options.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    formats = ["32-true", "bf16-mixed"] if given.accelerator == "cpu" else ["bf16-mixed", "16-mixed"]
    right = True
    with tempfile.TemporaryDirectory() as folder:
        for precision in formats:
            right &= healthy(given, precision, Path(folder) / f"healthy-{precision}")
            right &= broken(given, precision, Path(folder) / f"broken-{precision}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
