"""The manifest names how much each module drops."""

from pathlib import Path

import torch
from torch import nn

import steadyrun
from steadyrun.probes.description import dropout_rates


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9))
        self.none = nn.Dropout(0.0)
        self.channels = nn.Dropout2d(0.2)
        self.attention = nn.MultiheadAttention(4, 1, dropout=0.3)
        self.memory = nn.LSTM(4, 4, num_layers=2, dropout=0.4)


def test_the_rate_of_every_module_that_drops() -> None:
    assert dropout_rates(Model()) == {"first.1": 0.9, "channels": 0.2, "attention": 0.3, "memory": 0.4}


def test_a_recorded_run_has_them(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    with steadyrun.record(tmp_path) as run:
        run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert steadyrun.open_run(tmp_path).manifest["model"]["dropout"] == {"1": 0.5}
