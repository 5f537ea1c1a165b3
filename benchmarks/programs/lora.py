"""Low-rank adapters on a frozen pretrained mini-GPT: most parameters never move and are not meant to."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from pretrained import new_sentences, pretrained_gpt
from torch import Tensor, nn

import steadyrun
from steadyrun.tutor.recipe import reduce_loss, token_losses

STEPS = 300
BATCH = 8
LR = 2e-3
RANK = 4


class Adapted(nn.Module):
    """A frozen linear layer plus a low-rank one that begins as zero."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


def adapt(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.blocks:
        block.attention.qkv = Adapted(block.attention.qkv)
        block.feed_forward.up = Adapted(block.feed_forward.up)
        block.feed_forward.down = Adapted(block.feed_forward.down)
    model.head = Adapted(model.head)
    return model


def train(out: Path, seed: int = 0) -> None:
    model = adapt(pretrained_gpt(seed))
    train_set, val_set = new_sentences(corpus_seed=1)
    val_batch = val_set.batch(torch.arange(len(val_set.rows)))
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=LR, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    config = {
        "seed": seed,
        "init": "pretrained",
        "lr_max": LR,
        "lr_min": 0.0,
        "schedule": "cosine",
        "warmup_steps": 0,
        "total_steps": STEPS,
        "batch_size": BATCH,
        "vocab_size": 512,
        "pad_id": 0,
        "reduction": "mean",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(STEPS):
            batch = train_set.batch(torch.randint(len(train_set.rows), (BATCH,)))
            loss = reduce_loss(token_losses(model, batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(loss, batch=batch)
            if step % 50 == 49:
                with torch.no_grad():
                    run.val(reduce_loss(token_losses(model, val_batch), val_batch), batches=[val_batch])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
