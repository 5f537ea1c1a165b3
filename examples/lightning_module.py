"""A LightningModule, recorded by a callback: one line.

pip install "steadyrun[lightning]"
python lightning_module.py                                  # healthy
python lightning_module.py experiments/too-high --lr 30     # a learning rate that breaks it
"""

import argparse

import lightning.pytorch as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from steadyrun.integrations.lightning import SteadyrunCallback

parser = argparse.ArgumentParser()
parser.add_argument("run", nargs="?", default="experiments/lightning", help="the run directory")
parser.add_argument("--lr", type=float, default=3e-3)
args = parser.parse_args()


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))

    def training_step(self, batch, _index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _index):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=args.lr)


lightning.seed_everything(0)
inputs = torch.randn(2880, 20)
labels = inputs[:, :5].argmax(dim=1)  # the class is the largest of the first five inputs
loader = DataLoader(TensorDataset(inputs[:2560], labels[:2560]), batch_size=32, shuffle=True)
val_loader = DataLoader(TensorDataset(inputs[2560:], labels[2560:]), batch_size=320)

config = {"num_classes": 5, "lr_max": args.lr, "schedule": "constant"}
trainer = lightning.Trainer(
    max_epochs=4,
    gradient_clip_val=1.0,
    callbacks=[SteadyrunCallback(args.run, config=config)],  # this line
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Classifier(), loader, val_loader)

print(steadyrun.check(args.run))
