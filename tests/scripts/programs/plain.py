"""A loop at module level: loader, scheduler, clipping, validation, a checkpoint. Arguments by argparse."""

import argparse
import sys

assert not {"torch", "numpy", "pyarrow"} & set(sys.modules), "the script imports first"

import torch
from common import data, show
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--dir", default="weights.pt")  # an option that steadyrun has as well
parser.add_argument("--model", default="small")
args = parser.parse_args()

torch.manual_seed(3)
inputs, targets = data()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
for _epoch in range(args.epochs):
    for batch, wanted in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(batch), wanted)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        lr = optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()
        show(loss=loss, grad_norm=norm, lr=lr)
    net.eval()
    with torch.no_grad():
        nn.functional.mse_loss(net(inputs), targets)
    net.train()
torch.save(net.state_dict(), args.dir)
