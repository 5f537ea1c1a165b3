"""Each fault really is in the program, and shows in a fact one can check; what is declared stays what was meant."""

import math
import re
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.tutor.config import declared
from steadyrun.tutor.data import Data
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.recipe import TrainState
from steadyrun.tutor.tokenizer import PAD_ID
from steadyrun.tutor.train import start, train, train_recorded, train_step

# What these faults declare otherwise than the healthy program: the mistake is in the numbers, or needs them.
DECLARED = {
    "fp16-collapse": {"dtype"},
    "fp16-overflow-constant-scale": {"dtype"},
    "inverted-cosine": {"lr_max", "lr_min"},
    "lr-too-high": {"lr_max"},
    "lr-too-low": {"lr_max", "lr_min"},
    "missing-division": {"accumulation"},
    "rare-token-spike": {"clip"},
    "unclipped": {"lr_max", "lr_min", "clip", "schedule"},
}


def started(fault: str) -> tuple[TrainState, Data]:
    recipe = load_recipe(fault)
    torch.manual_seed(0)
    return start(recipe), recipe.load_data(recipe.config)


def after_steps(fault: str, steps: int) -> TrainState:
    recipe = load_recipe(fault)
    state, data = started(fault)
    for _ in range(steps):
        train_step(recipe, state, [data.train_batch(range(8)) for _ in range(recipe.config.accumulation)])
    return state


def gradient_norms(fault: str, steps: int, **settings: int) -> list[float]:
    norms: list[Tensor] = []
    train(load_recipe(fault, steps=steps, **settings), on_step=lambda step, loss, lr, norm: norms.append(norm))
    return [norm.item() for norm in norms]


def change_of(before: nn.Module, after: nn.Module) -> list[float]:
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    return [(right - left).abs().max().item() for left, right in pairs]


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


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_trains_and_declares_the_same_intent(name: str) -> None:
    recipe = load_recipe(name, steps=2)
    told, meant = declared(recipe.config, 1.0), declared(load_recipe(steps=2).config, 1.0)
    assert {key for key in meant if told[key] != meant[key]} == DECLARED.get(name, set())
    assert len(train(recipe).losses) == 2
    assert FAULTS[name].name == name
    assert FAULTS[name].summary
    assert FAULTS[name].change
    assert re.fullmatch(r"(C\d\.\d|D\d(\.\d)?|S\d\.\d|A\d\.\d)?", FAULTS[name].leaf)


def test_the_healthy_program_ends_at_no_leaf() -> None:
    assert FAULTS["healthy"].leaf == ""


def test_an_unknown_fault_lists_the_known() -> None:
    with pytest.raises(ValueError, match="unknown fault 'sabotage'; choose one of: healthy, bad-init"):
        load_recipe("sabotage")


# -- the start --------------------------------------------------------------------------------------


def test_bad_init_is_a_hundred_times_too_wide() -> None:
    healthy, faulty = started("healthy")[0].model, started("bad-init")[0].model
    for right, wrong in zip(healthy.parameters(), faulty.parameters(), strict=True):
        if right.ndim >= 2:
            torch.testing.assert_close(wrong, 100 * right)
        else:
            assert torch.equal(wrong, right)


def test_bad_init_shows_at_the_first_step() -> None:
    assert train(load_recipe("bad-init", steps=1)).losses[0] > 20
    assert gradient_norms("bad-init", 1)[0] > 30
    assert gradient_norms("healthy", 1)[0] < 10


def test_head_bias_prefers_the_rarest_tokens() -> None:
    state, data = started("head-bias")
    bias = state.model.get_parameter("head.bias")
    seen = {token for row in data.train for token in row}
    assert int(bias.argmax()) not in seen
    assert all(bias[token] < bias.max() for token in seen)
    assert train(load_recipe("head-bias", steps=1)).losses[0] > 8


def test_wrong_reduction_multiplies_the_loss_by_the_number_of_tokens() -> None:
    state, data = started("healthy")
    batch = data.train_batch(range(8))
    tokens = (batch["targets"] != PAD_ID).sum().item()
    summed = load_recipe("wrong-reduction").loss(state.model, batch)
    assert summed.item() == pytest.approx(tokens * load_recipe().loss(state.model, batch).item(), rel=1e-5)
    assert gradient_norms("wrong-reduction", 1)[0] > 100


def test_loaded_checkpoint_knows_the_sentences_already() -> None:
    assert train(load_recipe("loaded-checkpoint", steps=1)).losses[0] < 4


# -- the data and the loss --------------------------------------------------------------------------


def test_degenerate_data_gives_no_loss_and_no_gradient() -> None:
    assert train(load_recipe("degenerate-data", steps=3)).losses == [0.0, 0.0, 0.0]
    assert gradient_norms("degenerate-data", 3) == [0.0, 0.0, 0.0]


def test_constant_target_asks_for_one_token() -> None:
    targets = started("constant-target")[1].train_batch(range(8))["targets"]
    assert set(targets[targets != PAD_ID].tolist()) == {1}
    losses = train(load_recipe("constant-target", steps=100)).losses
    assert losses[0] == pytest.approx(math.log(512), abs=0.3)
    assert losses[-1] < 1


def test_loss_mask_leaves_one_token() -> None:
    state, data = started("loss-mask")
    losses = load_recipe("loss-mask").token_losses(state.model, data.train_batch(range(8)))
    assert torch.count_nonzero(losses) == 1


def test_overfit_sees_two_batches_of_sentences() -> None:
    recipe = load_recipe("overfit")
    data = recipe.load_data(recipe.config)
    chosen = islice(recipe.batch_order(data, recipe.config), 40)
    assert len({tuple(data.train[i]) for indices in chosen for i in indices}) == 16
    assert len(data.val) == 60


@pytest.mark.parametrize(("fault", "least", "most"), [("healthy", 0, 0), ("leak", 45, 60)])
def test_leak_validates_on_training_sentences(fault: str, least: int, most: int, tmp_path: Path) -> None:
    train_recorded(load_recipe(fault, steps=40), tmp_path / "run")
    view = steadyrun.open_run(tmp_path / "run")
    trained, validated = (set(view.series(f"example_hash/{split}").values.tolist()) for split in ("train", "val"))
    assert len(validated) == 60
    # Fewer than 60 after an epoch: the longest row of a batch has no <eos> among its inputs, elsewhere it has.
    assert least <= len(trained & validated) <= most


# -- the model --------------------------------------------------------------------------------------


def test_healthy_attention_is_causal() -> None:
    assert not earlier_logit_moves(started("healthy")[0].model)


def test_broken_mask_lets_the_future_in() -> None:
    assert earlier_logit_moves(started("broken-mask")[0].model)


def test_frozen_parameters_leaves_the_final_norm() -> None:
    state, _ = started("frozen-parameters")
    trainable = [name for name, parameter in state.model.named_parameters() if parameter.requires_grad]
    assert trainable == ["final_norm.weight", "final_norm.bias"]
    assert sum(len(group["params"]) for group in state.optimizer.param_groups) == 2


def test_double_softmax_returns_probabilities() -> None:
    output = started("double-softmax")[0].model(torch.randint(0, 270, (2, 5)))
    assert output.sum(dim=-1).flatten().tolist() == pytest.approx([1.0] * 10)


def test_uniform_init_is_off_centre() -> None:
    weight = started("uniform-init")[0].model.head.weight
    assert weight.min() >= 0
    assert weight.mean().item() == pytest.approx(0.5, abs=0.01)


def test_gradient_ascent_turns_the_gradient_around() -> None:
    gradients = []
    for fault in ("healthy", "gradient-ascent"):
        recipe = load_recipe(fault)
        state, data = started(fault)
        recipe.backward(state, recipe.loss(state.model, data.train_batch([0, 1])))
        gradients.append(state.model.head.weight.grad)
    assert torch.equal(gradients[0], -gradients[1])


def test_rebuilt_adam_has_the_right_rate_and_no_memory() -> None:
    healthy, rebuilt = after_steps("healthy", 3), after_steps("rebuilt-adam", 3)
    assert rebuilt.optimizer.param_groups[0]["lr"] == healthy.optimizer.param_groups[0]["lr"]
    assert len(rebuilt.optimizer.state) == 0
    assert len(healthy.optimizer.state) > 0


def growth(fault: str) -> float:
    """How many times larger the stream is after the last block than after the one before."""
    model = started(fault)[0].model
    seen: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    model(torch.randint(0, 270, (8, 12)))
    return (seen[-1].abs().mean() / seen[-2].abs().mean()).item()


def test_normalisation_missing_and_broken() -> None:
    model = started("missing-normalisation")[0].model
    assert sum(isinstance(module, nn.LayerNorm) for module in model.modules()) == 1
    assert 1.0 < growth("healthy") < 3
    assert growth("missing-normalisation") == pytest.approx(1.0, rel=0.1)
    assert growth("broken-normalisation") > 10


# -- the optimizer ----------------------------------------------------------------------------------


def test_rebuilt_optimizer_never_has_a_state() -> None:
    assert len(after_steps("healthy", 2).optimizer.state) > 0
    assert len(after_steps("rebuilt-optimizer", 2).optimizer.state) == 0


def test_static_training_has_gradients_and_moves_nothing() -> None:
    assert min(gradient_norms("static-training", 5)) > 1
    assert max(change_of(started("healthy")[0].model, after_steps("static-training", 5).model)) == 0.0
    assert min(change_of(started("healthy")[0].model, after_steps("healthy", 5).model)) > 0.0


def test_the_declared_rate_is_wrong() -> None:
    assert load_recipe("lr-too-high").config.lr_max == pytest.approx(3.0)
    assert load_recipe("lr-too-low").config.lr_max == pytest.approx(3e-7)
    assert max(train(load_recipe("lr-too-high", steps=40)).losses) > 20
    assert train(load_recipe("lr-too-low", steps=40)).losses[-1] == pytest.approx(math.log(512), abs=0.3)


def test_one_param_group_decays_everything() -> None:
    (group,) = started("one-param-group")[0].optimizer.param_groups
    assert group["weight_decay"] == 0.1
    assert any(parameter.ndim < 2 for parameter in group["params"])


def test_no_bias_correction_takes_a_first_step_three_times_as_long() -> None:
    before = started("healthy")[0].model
    right = change_of(before, after_steps("healthy", 1).model)
    wrong = change_of(before, after_steps("no-bias-correction", 1).model)
    # The first moments are (1 - beta) of the gradient and of its square, and stay so: 0.1 / sqrt(0.001).
    assert max(wrong) / max(right) == pytest.approx(0.1 / 0.001**0.5, rel=0.02)
    state = next(iter(after_steps("no-bias-correction", 2).optimizer.state.values()))
    assert set(state) == {"step", "exp_avg", "exp_avg_sq"}


def test_missing_division_multiplies_the_gradient_by_the_micro_batches() -> None:
    expected = gradient_norms("healthy", 1, accumulation=4)[0]
    assert gradient_norms("missing-division", 1)[0] == pytest.approx(4 * expected, rel=1e-4)
