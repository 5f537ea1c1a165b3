"""Fine-tuning a pretrained mini-GPT on new sentences: the loss starts low because the model already knows much."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from pretrained import new_sentences, pretrained_gpt
from torch import nn

import steadyrun
from steadyrun.tutor.recipe import reduce_loss, token_losses

STEPS = 300
BATCH = 8
LR = 1e-4


def train(out: Path, seed: int = 0) -> None:
    model = pretrained_gpt(seed)
    train_set, val_set = new_sentences(corpus_seed=1)
    val_batch = val_set.batch(torch.arange(len(val_set.rows)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=STEPS)
    config = {
        "seed": seed,
        "init": "pretrained",
        "lr_max": LR,
        "lr_min": LR / 10,
        "schedule": "linear",
        "warmup_steps": 0,
        "total_steps": STEPS,
        "batch_size": BATCH,
        "clip": 1.0,
        "vocab_size": 512,
        "pad_id": 0,
        "reduction": "mean",
        "weight_decay": 0.01,
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(STEPS):
            batch = train_set.batch(torch.randint(len(train_set.rows), (BATCH,)))
            loss = reduce_loss(token_losses(model, batch), batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            run.step(loss, batch=batch)
            if step % 50 == 49:
                with torch.no_grad():
                    run.val(reduce_loss(token_losses(model, val_batch), val_batch), batches=[val_batch])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
