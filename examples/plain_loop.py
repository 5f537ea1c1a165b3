"""A PyTorch loop of your own, recorded and checked.

python plain_loop.py                                   # healthy
python plain_loop.py experiments/too-high --lr 30      # a learning rate that breaks it
steadyrun dashboard experiments/too-high --open
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steadyrun

parser = argparse.ArgumentParser()
parser.add_argument("run", nargs="?", default="experiments/plain-loop", help="the run directory")
parser.add_argument("--lr", type=float, default=3e-3)
args = parser.parse_args()

config = {  # what the run is meant to do; steadyrun compares it with what happens
    "seed": 0,
    "lr_max": args.lr,
    "schedule": "cosine",
    "lr_min": 0.0,
    "total_steps": 300,
    "batch_size": 32,
    "clip": 1.0,
    "num_classes": 5,
}

torch.manual_seed(config["seed"])
inputs = torch.randn(3520, 20)
labels = inputs[:, :5].argmax(dim=1)  # the class is the largest of the first five inputs
loader = DataLoader(TensorDataset(inputs[:3200], labels[:3200]), batch_size=config["batch_size"], shuffle=True)
val_loader = DataLoader(TensorDataset(inputs[3200:], labels[3200:]), batch_size=320)

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr_max"])
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config["total_steps"])


def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


with steadyrun.record(args.run, config=config, resume=False) as run:
    run.watch(
        model,
        optimizer,
        scheduler=scheduler,
        loss_fn=loss_fn,  # captures incidents, so that a failing step can be replayed
        loader=loader,
        preflight={"val_loader": val_loader},  # tests model, loss and data before the first step
    )
    for _epoch in range(3):
        for batch in loader:
            loss = loss_fn(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch)  # once per optimizer step; no .item() needed
        with torch.no_grad():
            batches = list(val_loader)
            val_loss = sum(loss_fn(model, batch) for batch in batches) / len(batches)
            run.val(val_loss, batches=batches)  # the batches let check find examples shared with training

print(steadyrun.check(args.run))
