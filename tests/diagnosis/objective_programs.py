"""Small programs with losses that do not simply fall: healthy ones, and the same with bugs that people write."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

SIDE = 12  # pixels


def shapes(count: int) -> tuple[Tensor, Tensor]:
    """Images of a square, a cross or a frame, of random size and position, in -1 to 1; and which it is."""
    kinds = torch.randint(3, (count,))
    rows = torch.arange(SIDE).view(1, SIDE, 1)
    columns = torch.arange(SIDE).view(1, 1, SIDE)
    middle = torch.randint(4, SIDE - 4, (2, count, 1, 1))
    radius = torch.randint(2, 4, (count, 1, 1))
    down, right = (rows - middle[0]).abs(), (columns - middle[1]).abs()
    inside = (down <= radius) & (right <= radius)
    drawn = torch.stack(
        [inside, inside & ((down == 0) | (right == 0)), inside & ((down == radius) | (right == radius))]
    )
    return 2.0 * drawn[kinds, torch.arange(count)].float()[:, None] - 1, kinds


class VAE(nn.Module):
    """Fully connected, with a code of eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 96), nn.ReLU(), nn.Linear(96, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, SIDE**2))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(images).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def vae(folder: Path, bug: str = "", steps: int = 600, seed: int = 0) -> steadyrun.Report:
    """Train on drawn shapes and check; `bug` names what is wrong."""
    torch.manual_seed(seed)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    weight = {"sign": -1.0, "forgotten": 0.0, "heavy": 100.0}.get(bug, 1.0)
    with steadyrun.record(folder, flush_seconds=60) as run:
        run.watch(model, optimizer, capture=False, monitor=False)
        for _ in range(steps):
            images = (shapes(64)[0] + 1) / 2
            logits, mean, log_variance = model(images)
            recon = functional.binary_cross_entropy_with_logits(logits, images.flatten(1), reduction="sum") / 64
            kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
            loss = recon + weight * kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=images)
            run.log(recon=recon, kl=kl)
    return steadyrun.check(folder)


def generator() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 16 * 9), nn.BatchNorm1d(16 * 9), nn.ReLU(), nn.Unflatten(1, (16, 3, 3)),
        nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def discriminator() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(16 * 9, 1),
    )  # fmt: skip


def gan(folder: Path, bug: str = "", steps: int = 600, seed: int = 0) -> steadyrun.Report:
    """A DCGAN on drawn shapes."""
    torch.manual_seed(seed)
    parts = nn.ModuleDict({"G": generator(), "D": discriminator()})
    rates = {"eager": (2e-2, 2e-4), "strong": (1e-5, 5e-3), "slow": (2e-4, 2e-4)}.get(bug, (1e-3, 5e-4))
    optimizers = [
        torch.optim.Adam(parts[side].parameters(), lr=rate, betas=(0.5, 0.999))
        for side, rate in zip("GD", rates, strict=True)
    ]
    judge = functional.binary_cross_entropy_with_logits
    with steadyrun.record(folder, flush_seconds=60) as run:
        run.watch(parts, optimizers, capture=False, monitor=False)
        for _ in range(steps):
            real = shapes(32)[0]
            noise = torch.randn(32, 16)
            if bug == "noise":  # the same for the whole batch
                noise = noise[:1].expand(32, 16)
            fake = parts["G"](noise)
            ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
            right = judge(parts["D"](real), ones) + judge(parts["D"](fake.detach()), zeros)
            optimizers[1].zero_grad()
            right.backward()
            optimizers[1].step()
            fooled = judge(parts["D"](fake), ones)
            optimizers[0].zero_grad()
            fooled.backward()
            optimizers[0].step()
            run.step(fooled, batch=real)
            run.log(loss_G=fooled, loss_D=right)
    return steadyrun.check(folder)


class Encoder(nn.Module):
    """A small convolutional network with a projection of 32 numbers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 9, 64), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(64, width)

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize(self.head(self.body(images)), dim=1)


def view(images: Tensor) -> Tensor:
    """Noise, and a shift by a pixel."""
    moved = torch.roll(images, (int(torch.randint(-1, 2, ())), int(torch.randint(-1, 2, ()))), (2, 3))
    return moved + 0.2 * torch.randn_like(images)


def simclr(folder: Path, bug: str = "", steps: int = 400, seed: int = 0) -> steadyrun.Report:
    """Two views of each image find each other."""
    torch.manual_seed(seed)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    size = {"batch": 2}.get(bug, 64)
    temperature = {"hot": 20.0, "cold": 1e-3}.get(bug, 0.2)
    with steadyrun.record(folder, flush_seconds=60) as run:
        run.watch(model, optimizer, capture=False, monitor=False)
        for _ in range(steps):
            images = shapes(size)[0]
            together = model(torch.cat([view(images), view(images)]))
            if bug == "positives":  # no negatives: every view only moves to its partner
                loss = (1 - (together[:size] * together[size:]).sum(1)).mean()
            else:
                scores = together @ together.T / temperature
                scores = scores.masked_fill(torch.eye(2 * size, dtype=torch.bool), -1e9)
                partners = torch.arange(2 * size).roll(size)
                if bug == "partners":  # each row's label is its neighbour
                    partners = torch.arange(2 * size).roll(1)
                loss = functional.cross_entropy(scores, partners)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=images)
    return steadyrun.check(folder)


class Denoiser(nn.Module):
    """Fully connected; the noise level is one more input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(SIDE**2 + 1, 192), nn.SiLU(), nn.Linear(192, 192), nn.SiLU())
        self.out = nn.Linear(192, SIDE**2)

    def forward(self, noisy: Tensor, level: Tensor) -> Tensor:
        return self.out(self.layers(torch.cat([noisy, level[:, None]], 1)))


def diffusion(folder: Path, bug: str = "", steps: int = 600, seed: int = 0) -> steadyrun.Report:
    """Predict the noise of noisy shapes."""
    torch.manual_seed(seed)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 50), 0)
    if bug == "schedule":  # not multiplied up: hardly any noise
        kept = 1 - torch.linspace(1e-5, 2e-4, 50)
    with steadyrun.record(folder, config={"prediction_type": "epsilon"}, flush_seconds=60) as run:
        run.watch(model, optimizer, capture=False, monitor=False)
        for _ in range(steps):
            clean = shapes(64)[0].flatten(1)
            times = torch.randint(50, (64,))
            noise, part = torch.randn_like(clean), kept[times][:, None]
            noisy = part.sqrt() * clean + (1 - part).sqrt() * noise
            target = torch.randn_like(clean) if bug == "noise" else noise
            if bug == "kind":  # the image instead of its noise
                target = clean
            losses = (model(noisy, times / 50) - target).square().mean(1)
            loss = losses.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=clean)
    return steadyrun.check(folder)
