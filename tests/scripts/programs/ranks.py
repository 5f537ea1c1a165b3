"""Two ranks under torchrun, with DistributedDataParallel over gloo."""

import torch
import torch.distributed as dist
from common import data, show
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(3)
inputs, targets = data()
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(25):
    rows = torch.arange(16) + 16 * ((2 * step + rank) % 8)
    loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(loss=loss, rank=rank)
store = dist.distributed_c10d._get_default_store()
store.set(f"done {rank}", "")
store.wait(["done 0", "done 1"])
dist.destroy_process_group()
