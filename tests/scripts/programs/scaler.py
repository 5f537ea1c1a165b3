"""A loss scaler with accumulation; a step with an infinite gradient is skipped."""

import torch
from common import data, show
from torch import nn

torch.manual_seed(3)
inputs, targets = data()
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(30):
    total = 0.0
    for half in range(2):
        rows = torch.arange(16) + 16 * ((2 * step + half) % 8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(inputs[rows])
        loss = nn.functional.mse_loss(outputs.float(), targets[rows])
        scaler.scale(loss / 2).backward()
        total += loss.item() / 2
    if step == 12:
        model[0].weight.grad[0, 0] = float("inf")
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before = [parameter.clone() for parameter in model.parameters()]
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    moved = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    show(loss=total, skipped=not moved)
