"""Two ranks under torchrun of which rank 1 fails before its first step."""

import torch
import torch.distributed as dist
from common import data
from torch import nn

dist.init_process_group("gloo")
inputs, targets = data()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(25):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    if dist.get_rank() == 1:
        raise ValueError("a column is missing")
    optimizer.step()
