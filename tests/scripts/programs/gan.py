"""Generator and discriminator: two optimizers, disjoint parameters, three backward passes per round."""

import torch
from common import data, show
from torch import nn

torch.manual_seed(3)
real = data()[0]
loader = torch.utils.data.DataLoader(real, batch_size=32, shuffle=True)
netG = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
netD = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
for _epoch in range(10):
    for batch in loader:
        ones, zeros = torch.ones(len(batch), 1), torch.zeros(len(batch), 1)
        netD.zero_grad()
        loss_real = criterion(netD(batch), ones)
        loss_real.backward()
        fake = netG(torch.randn(len(batch), 4))
        loss_fake = criterion(netD(fake.detach()), zeros)
        loss_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        loss_g = criterion(netD(fake), ones)
        loss_g.backward()
        optimizerG.step()
        show(loss=loss_g, loss_netG=loss_g, loss_netD=loss_real + loss_fake)
