"""A plain GAN on eight blobs in the plane: two networks, two optimizers, and losses that go nowhere by design."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import steadyrun

STEPS = 1000
BATCH = 128
LR = 1e-3
NOISE = 8


def real_points(count: int) -> Tensor:
    angle = torch.randint(8, (count,)) * (math.pi / 4)
    return 2 * torch.stack([angle.cos(), angle.sin()], dim=1) + 0.1 * torch.randn(count, 2)


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs)
    )


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    networks = nn.ModuleDict({"generator": mlp(NOISE, 2), "discriminator": mlp(2, 1)})
    generator, discriminator = networks["generator"], networks["discriminator"]
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=LR, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=LR, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    config = {"seed": seed, "lr_max": LR, "schedule": "constant", "batch_size": BATCH, "total_steps": STEPS}

    with steadyrun.record(out, config=config) as run:
        run.watch(networks, [g_optimizer, d_optimizer])
        for _ in range(STEPS):
            real = real_points(BATCH)
            fake = generator(torch.randn(BATCH, NOISE))
            d_loss = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)
            d_optimizer.zero_grad()
            d_loss.backward()
            d_optimizer.step()

            g_loss = bce(discriminator(fake), ones)
            g_optimizer.zero_grad()
            g_loss.backward()
            g_optimizer.step()
            run.step(g_loss, batch=real)
            run.log(d_loss=d_loss)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
