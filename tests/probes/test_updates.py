"""The update recomputed from the moments: right for torch's Adam, and telling for one that is not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_programs import batch_of, loss_of, mlp, values

import steadyrun


class WithoutCorrection(torch.optim.Optimizer):
    """Adam whose moments are used as they are."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                first = state["exp_avg"] = state.get("exp_avg", 0.0) * 0.9 + 0.1 * p.grad
                second = state["exp_avg_sq"] = state.get("exp_avg_sq", 0.0) * 0.999 + 0.001 * p.grad**2
                state["step"] = state.get("step", 0) + 1
                p -= group["lr"] * first / (second.sqrt() + group["eps"])


def recorded(path: Path, make: Any, steps: int = 6) -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with steadyrun.record(path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(steps):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            scheduler.step()  # the rate has changed when run.step is called
            optimizer.zero_grad()
            run.step(loss)


@pytest.mark.parametrize(
    ("make", "decay"),
    [
        (lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.3), 0.3),
        (lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.3, fused=True), 0.3),
        (lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.3, foreach=True), 0.0),
    ],
    ids=["AdamW", "fused AdamW", "Adam"],
)
def test_torchs_own_optimizers_do_what_their_moments_say(tmp_path: Path, make: Any, decay: float) -> None:
    recorded(tmp_path, make)
    assert values(tmp_path, "update_scale/0") == pytest.approx([1.0] * 6, rel=1e-3)
    assert values(tmp_path, "update_decay/0") == pytest.approx([decay] * 6, abs=1e-2)
    assert max(values(tmp_path, "update_misfit/0")) < 1e-2


def test_missing_bias_correction_shows_its_factor(tmp_path: Path) -> None:
    recorded(tmp_path, lambda p: WithoutCorrection(p, lr=1e-2))
    expected = [(1 - 0.9**t) / (1 - 0.999**t) ** 0.5 for t in range(1, 7)]
    assert values(tmp_path, "update_scale/0") == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True)],
    ids=["SGD", "amsgrad"],
)
def test_other_rules_are_not_judged_by_adams(tmp_path: Path, make: Any) -> None:
    recorded(tmp_path, make)
    assert not [name for name in steadyrun.open_run(tmp_path).names() if name.startswith("update_scale")]
