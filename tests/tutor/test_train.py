"""The loop trains, repeats itself bit by bit, and does what the configuration says."""

import math
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import steadyrun
from steadyrun.tutor.config import TutorConfig, declared, default_warmup
from steadyrun.tutor.data import batch_order, load_data
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.recipe import Recipe, backward, build_optimizer, lr_factor, reduce_loss, token_losses
from steadyrun.tutor.tokenizer import PAD_ID
from steadyrun.tutor.train import class_losses, start, train, train_recorded, train_step, validate


class Recorder:
    """Stands in for a Run and keeps what it is given."""

    def __init__(self) -> None:
        self.watched: dict[str, Any] = {}
        self.steps: list[dict[str, Any]] = []
        self.vals: list[dict[str, Any]] = []

    def watch(self, model: Any, optimizer: Any, **others: Any) -> None:
        self.watched = {"model": model, "optimizer": optimizer, **others}

    def step(self, loss: Any, **others: Any) -> None:
        self.steps.append({"loss": loss, **others})

    def val(self, loss: Any, **others: Any) -> None:
        self.vals.append({"loss": loss, **others})


def parameters(model: torch.nn.Module) -> list[Tensor]:
    return [parameter.detach() for parameter in model.parameters()]


def test_untrained_loss_is_near_ln_v() -> None:
    for seed in range(3):
        first = train(load_recipe(steps=1, seed=seed)).losses[0]
        assert first == pytest.approx(math.log(512), abs=0.3)


def test_loss_falls() -> None:
    result = train(load_recipe(steps=60))
    assert result.losses[-1] < result.losses[0] - 1.0
    assert len(result.losses) == 60
    assert result.val_steps == [59]


@pytest.mark.parametrize(
    "settings",
    [{}, {"dropout": 0.1}, {"accumulation": 2}, {"dtype": "bf16"}, {"clip": None}, {"schedule": "constant"}],
    ids=str,
)
def test_the_same_seed_gives_the_same_bits(settings: dict[str, Any]) -> None:
    recipe = load_recipe(steps=12, val_every=5, **settings)
    first, second = train(recipe), train(recipe)
    assert first.losses == second.losses
    assert first.val_losses == second.val_losses
    assert all(map(torch.equal, parameters(first.model), parameters(second.model)))


def test_another_seed_gives_another_run() -> None:
    assert train(load_recipe(steps=3)).losses != train(load_recipe(steps=3, seed=1)).losses


def test_fp16_scales_its_loss_and_trains() -> None:
    recipe = load_recipe(steps=8, dtype="fp16", lr_max=3e-3)
    assert start(recipe).scaler.is_enabled()
    result = train(recipe)
    assert result.losses[-1] < result.losses[0]
    full = train(load_recipe(steps=8, lr_max=3e-3))
    assert result.losses == pytest.approx(full.losses, abs=0.05)


def test_looking_on_changes_nothing() -> None:
    recipe = load_recipe(steps=10, dropout=0.1, val_every=4)
    seen: list[tuple[int, float, float, float]] = []
    watched = train(
        recipe,
        Recorder(),  # type: ignore[arg-type]
        lambda step, loss, lr, norm: seen.append((step, float(loss), lr, float(norm))),
    )
    state = torch.get_rng_state()
    alone = train(recipe)
    assert alone.losses == watched.losses
    assert all(map(torch.equal, parameters(alone.model), parameters(watched.model)))
    assert torch.equal(state, torch.get_rng_state())
    assert [loss for _, loss, _, _ in seen] == watched.losses


@pytest.mark.parametrize("settings", [{}, {"dropout": 0.1}, {"accumulation": 2}, {"dtype": "fp16"}], ids=str)
def test_recording_changes_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    recipe = load_recipe(steps=12, val_every=5, **settings)
    recorded = train_recorded(recipe, tmp_path / "run")
    state = torch.get_rng_state()
    bare = train(recipe)
    assert bare.losses == recorded.losses
    assert bare.val_losses == recorded.val_losses
    assert all(map(torch.equal, parameters(bare.model), parameters(recorded.model)))
    assert torch.equal(state, torch.get_rng_state())
    assert list(steadyrun.open_run(tmp_path / "run").series("loss").values) == recorded.losses


def test_what_the_recorder_is_given() -> None:
    recorder = Recorder()
    recipe = load_recipe(steps=7, val_every=3, accumulation=2)
    result = train(recipe, recorder)  # type: ignore[arg-type]
    assert set(recorder.watched) == {"model", "optimizer", "scheduler", "scaler", "loss_fn", "tokenizer", "factory"}
    assert recorder.watched["scaler"] is None
    assert [float(step["loss"]) for step in recorder.steps] == result.losses
    assert [float(val["loss"]) for val in recorder.vals] == result.val_losses
    assert result.val_steps == [2, 5, 6]
    assert [part["tokens"].shape[0] for part in recorder.steps[0]["batch"]] == [8, 8]
    assert recorder.watched["loss_fn"](result.model, recorder.steps[0]["batch"][0]).shape == ()
    assert set(recorder.vals[0]["class_losses"]) == {"regular", "irregular"}


def test_model_trains_in_train_mode_and_validates_in_eval_mode() -> None:
    recipe = load_recipe(steps=4, val_every=2)
    modes: list[bool] = []

    def noting(model: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
        modes.append(model.training)
        return recipe.token_losses(model, batch)

    result = train(replace(recipe, token_losses=noting))
    assert modes == [True, True, False, True, True, False]
    assert result.model.training


def test_padding_does_not_count() -> None:
    recipe = load_recipe()
    data, model = load_data(recipe.config), start(recipe).model
    short, long = sorted(range(240), key=lambda i: len(data.train[i]))[::239]
    alone = recipe.loss(model, data.train_batch([short])).item()
    together = token_losses(model, data.train_batch([short, long]))
    tokens = len(data.train[short]) - 1
    assert together[0, :tokens].mean().item() == pytest.approx(alone, rel=1e-5)
    assert together[0, tokens:].abs().sum().item() == 0.0


def test_class_losses_against_the_obvious_loop() -> None:
    recipe = load_recipe()
    data, model = load_data(recipe.config), start(recipe).model
    batches = [data.train_batch(range(140, 148)), data.train_batch([0, 239, 120])]
    by_token = [token_losses(model, batch) for batch in batches]
    slow: dict[str, list[float]] = {"regular": [], "irregular": []}
    for losses, batch in zip(by_token, batches, strict=True):
        for row, irregular in enumerate(batch["irregular"].tolist()):
            kept = losses[row][batch["targets"][row] != PAD_ID]
            slow["irregular" if irregular else "regular"] += kept.tolist()
    fast = class_losses(by_token, batches)
    for name, values in slow.items():
        assert fast[name] == pytest.approx(sum(values) / len(values), rel=1e-5)


def test_a_class_absent_from_the_batch_is_left_out() -> None:
    recipe = load_recipe()
    data, model = load_data(recipe.config), start(recipe).model
    regular_only = data.train_batch([0, 1, 2])
    assert set(class_losses([token_losses(model, regular_only)], [regular_only])) == {"regular"}


def test_accumulated_gradient_is_the_mean_over_micro_batches() -> None:
    recipe = load_recipe(accumulation=2)
    data, state = load_data(recipe.config), start(recipe)
    batches = [data.train_batch(range(8)), data.train_batch(range(8, 16))]
    for batch in batches:
        backward(state, recipe.loss(state.model, batch))
    accumulated = [parameter.grad.clone() for parameter in state.model.parameters() if parameter.grad is not None]
    state.optimizer.zero_grad()
    mean = torch.stack([recipe.loss(state.model, batch) for batch in batches]).mean()
    mean.backward()  # type: ignore[no-untyped-call]
    for kept, parameter in zip(accumulated, state.model.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(kept, parameter.grad)


def test_clipping_bounds_the_gradient_and_reports_what_it_was() -> None:
    norms: list[float] = []
    recipe = load_recipe(steps=2, clip=0.5)
    state = start(recipe)
    data = load_data(recipe.config)

    def measure(*_: Any) -> None:
        grads = [p.grad for p in state.model.parameters() if p.grad is not None]
        norms.append(torch.cat([grad.flatten() for grad in grads]).norm().item())

    state.optimizer.register_step_pre_hook(measure)
    done = train_step(recipe, state, [data.train_batch(range(8))])
    assert norms[0] == pytest.approx(0.5, rel=1e-3)
    assert done.grad_norm.item() > 1.0


def test_matrices_decay_and_the_rest_does_not() -> None:
    recipe = load_recipe()
    model = start(recipe).model
    decay, no_decay = build_optimizer(model, recipe.config).param_groups
    assert decay["weight_decay"] == 0.1
    assert no_decay["weight_decay"] == 0.0
    assert all(parameter.ndim >= 2 for parameter in decay["params"])
    assert all(parameter.ndim < 2 for parameter in no_decay["params"])
    assert len(decay["params"]) + len(no_decay["params"]) == len(list(model.parameters()))


def test_declared_no_decay_names_exactly_the_exempt_parameters() -> None:
    patterns = declared(TutorConfig(), 1.0)["no_decay"]
    for name, parameter in start(load_recipe()).model.named_parameters():
        assert any(pattern in name for pattern in patterns) == (parameter.ndim < 2)


def test_learning_rate_warms_up_and_decays() -> None:
    config = TutorConfig()
    rates = [config.lr_max * lr_factor(step, config) for step in range(config.steps + 1)]
    assert rates[0] == pytest.approx(3e-6)
    assert rates[99] == rates[100] == pytest.approx(3e-4)
    assert max(rates) == pytest.approx(3e-4)
    assert rates[config.steps] == pytest.approx(3e-5)
    assert all(earlier >= later for earlier, later in pairwise(rates[100:]))


def test_learning_rates_used_are_those_of_the_schedule() -> None:
    recipe = load_recipe(steps=20)
    used: list[float] = []
    train(recipe, on_step=lambda step, loss, lr, norm: used.append(lr))
    assert used == pytest.approx([3e-4 * lr_factor(step, recipe.config) for step in range(20)])


def test_initial_weights() -> None:
    for name, parameter in start(load_recipe()).model.named_parameters():
        if parameter.ndim >= 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
        else:
            assert torch.all(parameter == (1.0 if name.endswith("norm.weight") else 0.0)), name


def test_every_sentence_comes_once_an_epoch() -> None:
    data, config = load_data(TutorConfig()), TutorConfig()
    epoch = list(islice(batch_order(data, config), 30))
    assert sorted(i for indices in epoch for i in indices) == list(range(240))
    again = list(islice(batch_order(data, config), 60))
    assert again[:30] == epoch
    assert again[30:] != epoch


def test_validation_covers_every_held_out_sentence() -> None:
    recipe = load_recipe()
    data, model = load_data(recipe.config), start(recipe).model
    loss, classes = validate(recipe, model, data)
    batch = data.val_batch()
    assert batch["tokens"].shape[0] == 60
    assert loss.item() == pytest.approx(reduce_loss(token_losses(model, batch), batch).item())
    assert set(classes) == {"regular", "irregular"}


def test_declared_configuration_is_complete() -> None:
    told = declared(TutorConfig(), baseline_loss=1.75)
    expected = {
        "seed": 42,
        "dtype": "fp32",
        "lr_max": 3e-4,
        "lr_min": 3e-5,
        "warmup_steps": 100,
        "total_steps": 2000,
        "schedule": "cosine",
        "batch_size": 8,
        "no_decay": ["bias", "norm"],
        "accumulation": 1,
        "clip": 1.0,
        "weight_decay": 0.1,
        "reduction": "mean",
        "vocab_size": 512,
        "pad_id": 0,
        "init": "random",
        "baseline_loss": 1.75,
        "val_every": 100,
    }
    assert expected.items() <= told.items()


@pytest.mark.parametrize(("steps", "warmup"), [(1, 1), (60, 12), (500, 100), (2000, 100)])
def test_short_runs_have_a_shorter_warmup_and_say_so(steps: int, warmup: int) -> None:
    config = load_recipe(steps=steps).config
    assert config.warmup_steps == default_warmup(steps) == warmup
    assert declared(config, 1.0)["warmup_steps"] == warmup
    assert declared(config, 1.0)["total_steps"] == steps


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 241}, "at most 240"),
        ({"dtype": "int8"}, "fp32, bf16, fp16"),
        ({"schedule": "step"}, "cosine or constant"),
        ({"warmup_steps": 3000}, "warmup_steps must be between 0 and 2000"),
        ({"clip": 0.0}, "None for no clipping"),
        ({"width": 130}, "multiple of heads"),
        ({"seed": -1}, "seed must be between"),
        ({"stepz": 10}, "unknown setting stepz; choose from: seed, "),
    ],
    ids=str,
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_recipe(**settings)


def test_a_recipe_is_made_of_replaceable_pieces() -> None:
    recipe = Recipe(TutorConfig(steps=2, warmup_steps=1))
    doubled = replace(recipe, reduce_loss=lambda losses, batch: 2 * reduce_loss(losses, batch))
    assert train(doubled).losses[0] == pytest.approx(2 * train(recipe).losses[0])
