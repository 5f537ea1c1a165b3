"""Each fault really is in the program, while what is declared stays what was meant."""

import pytest
import torch
from torch import Tensor, nn

from steadyrun.tutor.config import declared
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.train import start, train


def earlier_logit_moves(model: nn.Module) -> bool:
    """Whether changing the last token changes a logit before it."""
    model.eval()
    tokens = torch.tensor([[1, 20, 30, 40, 50, 60]])
    changed = tokens.clone()
    changed[0, -1] = 99
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert not torch.equal(before[:, -1], after[:, -1])
    return not torch.equal(before[:, :-1], after[:, :-1])


def learning_rates(fault: str) -> list[float]:
    used: list[float] = []
    train(load_recipe(fault, steps=60), on_step=lambda step, loss, lr, norm: used.append(lr))
    return used


def first_gradient_norm(fault: str) -> float:
    norms: list[Tensor] = []
    train(load_recipe(fault, steps=1), on_step=lambda step, loss, lr, norm: norms.append(norm))
    return norms[0].item()


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_trains_and_declares_the_same_intent(name: str) -> None:
    recipe = load_recipe(name, steps=2)
    assert declared(recipe.config, 1.0) == declared(load_recipe(steps=2).config, 1.0)
    assert len(train(recipe).losses) == 2
    assert FAULTS[name].name == name
    assert FAULTS[name].summary
    assert FAULTS[name].change


def test_healthy_attention_is_causal() -> None:
    assert not earlier_logit_moves(start(load_recipe()).model)


def test_broken_mask_lets_the_future_in() -> None:
    assert earlier_logit_moves(start(load_recipe("broken-mask")).model)


def test_bad_init_is_a_hundred_times_too_wide() -> None:
    torch.manual_seed(0)
    healthy = start(load_recipe()).model
    torch.manual_seed(0)
    faulty = start(load_recipe("bad-init")).model
    for right, wrong in zip(healthy.parameters(), faulty.parameters(), strict=True):
        if right.ndim >= 2:
            torch.testing.assert_close(wrong, 100 * right)
        else:
            assert torch.equal(wrong, right)


def test_bad_init_shows_at_the_first_step() -> None:
    assert train(load_recipe("bad-init", steps=1)).losses[0] > 20
    assert first_gradient_norm("bad-init") > 30
    assert first_gradient_norm("healthy") < 10


def test_no_warmup_starts_at_the_top() -> None:
    faulty = learning_rates("no-warmup")
    assert faulty[0] == pytest.approx(3e-4)
    assert faulty[11] == pytest.approx(3e-4, rel=0.1)
    healthy = learning_rates("healthy")
    assert healthy[0] == pytest.approx(3e-4 / 12)
    assert healthy[11] == pytest.approx(3e-4)


def test_an_unknown_fault_lists_the_known() -> None:
    with pytest.raises(ValueError, match="unknown fault 'sabotage'; known: healthy, bad-init"):
        load_recipe("sabotage")
