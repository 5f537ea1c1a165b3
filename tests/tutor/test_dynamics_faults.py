"""Faults that show in the course of a run: each one really is in the program."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.tutor.config import TRAIN_SENTENCES
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.recipe import Recipe, TrainState
from steadyrun.tutor.tokenizer import PAD_ID
from steadyrun.tutor.train import Program, start, train, train_step

STEPS = 40


def begun(fault: str, **settings: Any) -> tuple[Recipe, TrainState, Data]:
    recipe = load_recipe(fault, **{"steps": STEPS, **settings})
    torch.manual_seed(0)
    return recipe, start(recipe), recipe.load_data(recipe.config)


def trained_until(fault: str, step: int) -> TrainState:
    """The program after the optimizer step with this number."""
    recipe, state, data = begun(fault)
    order = recipe.batch_order(data, recipe.config)
    for state.step in range(step + 1):
        train_step(recipe, state, [data.train_batch(next(order))])
    return state


def batches(fault: str, count: int) -> list[list[tuple[int, ...]]]:
    """The first batches of a run, each sentence as its tokens."""
    recipe = load_recipe(fault, steps=STEPS)
    data = recipe.load_data(recipe.config)
    return [
        [tuple(data.train[i]) for i in indices] for indices in islice(recipe.batch_order(data, recipe.config), count)
    ]


def gradient(model: nn.Module, name: str) -> Tensor:
    found = model.get_parameter(name).grad
    assert found is not None
    return found


# -- values that are not finite ---------------------------------------------------------------------


def test_log_of_zero_sharpens_until_half_time() -> None:
    model = trained_until("log-of-zero", STEPS // 4 - 1).model
    assert model.temperature == pytest.approx(0.5)
    losses = torch.tensor(train(load_recipe("log-of-zero", steps=STEPS)).losses)
    assert losses[: STEPS // 4].isfinite().all()
    assert not losses[STEPS // 2 :].isfinite().any()


def test_log_of_zero_takes_the_log_of_a_probability_that_is_zero() -> None:
    recipe, state, data = begun("log-of-zero")
    batch = data.train_batch(range(8))
    for parameter in state.model.parameters():
        parameter.data.mul_(10)
    state.model.temperature = 0.01  # type: ignore[assignment]
    assert load_recipe().loss(state.model, batch).isfinite()
    assert recipe.loss(state.model, batch).item() == math.inf


def test_infinite_embedding_gradient_needs_a_pad() -> None:
    recipe, state, data = begun("infinite-embedding-gradient")
    by_length = sorted(range(TRAIN_SENTENCES), key=lambda i: len(data.train[i]))
    recipe.loss(state.model, data.train_batch(by_length[-1:])).backward()  # type: ignore[no-untyped-call]
    assert gradient(state.model, "embedding.token.weight").isfinite().all()
    padded = recipe.loss(state.model, data.train_batch([by_length[0], by_length[-1]]))
    padded.backward()  # type: ignore[no-untyped-call]
    assert padded.isfinite()
    assert gradient(state.model, "embedding.token.weight").isfinite().sum(dim=1).tolist().count(0) == 1
    assert gradient(state.model, "blocks.0.attention.qkv.weight").isfinite().all()


def test_infinite_embedding_gradient_begins_with_sentences_of_one_length() -> None:
    lengths = [{len(row) for row in batch} for batch in batches("infinite-embedding-gradient", 150)]
    mixed = [number for number, found in enumerate(lengths) if len(found) > 1]
    assert 100 < mixed[0] < 125
    assert len(mixed) >= 149 - mixed[0]


# -- spikes -----------------------------------------------------------------------------------------


def test_rare_token_spike_has_one_batch_of_words_never_seen() -> None:
    seen = batches("rare-token-spike", 2 * STEPS)
    late = 3 * STEPS // 4
    known = {token for batch in seen[:late] for row in batch for token in row}
    assert len(seen[late]) == 8
    assert sum(bool(set(row) - known) for row in seen[late]) >= 6
    again = Counter(row for batch in seen for row in batch)
    assert all(again[row] == 1 for row in seen[late])


def test_corrupt_batch_has_one_batch_of_one_token() -> None:
    seen = batches("corrupt-batch", 2 * STEPS)
    late = 3 * STEPS // 4
    assert len(set(seen[late])) == 1
    assert len(seen[late]) == 8
    assert len(set(seen[late][0])) == 3  # <bos>, the token, <eos>
    assert sum(row == seen[late][0] for batch in seen for row in batch) == 8
    loss = train(load_recipe("corrupt-batch", steps=STEPS)).losses
    assert loss[late] > max(loss[late - 5 : late] + loss[late + 1 :]) + 0.5


def test_duplicate_batch_comes_a_hundred_times_more() -> None:
    seen = batches("duplicate-batch", 200)
    same = [number for number, (left, right) in enumerate(pairwise(seen)) if left == right]
    assert same == list(range(STEPS // 2, STEPS // 2 + 100))


def test_persistent_elevation_loses_most_second_moments() -> None:
    late = 3 * STEPS // 4
    before, after = (trained_until("persistent-elevation", step) for step in (late - 2, late - 1))
    for state, share in ((before, 0.0), (after, 0.3)):
        moments = state.optimizer.state[state.model.get_parameter("blocks.0.attention.qkv.weight")]["exp_avg_sq"]
        assert (moments == 0).float().mean() >= share
        assert (len(moments.unique()) <= 16) == (state is after)


def test_optimizer_reset_keeps_weights_and_rates_and_forgets_the_rest() -> None:
    programs = [Program(load_recipe(fault, steps=STEPS)) for fault in ("healthy", "optimizer-reset")]
    for program in programs:
        program.go_on(STEPS // 2)
        program.restart()
    healthy, reset = (program.state for program in programs)
    pairs = zip(healthy.model.parameters(), reset.model.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    assert len(healthy.optimizer.state) > 0
    assert len(reset.optimizer.state) == 0
    rates = [state.optimizer.param_groups[0]["lr"] for state in (healthy, reset)]
    assert rates[0] == rates[1]
    for program in programs:
        program.go_on(STEPS // 2 + 3)
    later = [program.state for program in programs]
    assert later[0].optimizer.param_groups[0]["lr"] == later[1].optimizer.param_groups[0]["lr"]
    counts = [next(iter(state.optimizer.state.values()))["step"].item() for state in later]
    assert counts == [STEPS // 2 + 3, 3]


# -- half precision ---------------------------------------------------------------------------------


def test_fp16_constant_scale_does_not_move_when_steps_are_skipped() -> None:
    recipe, state, data = begun("fp16-overflow-constant-scale")
    scales, norms = [], []
    for _ in range(6):
        scales.append(state.scaler.get_scale())
        norms.append(train_step(recipe, state, [data.train_batch(range(8))]).grad_norm.item())
    assert math.inf in norms
    assert scales == [2**18] * 6


@pytest.mark.parametrize(("dtype", "finite"), [(torch.float32, True), (torch.float16, False)])
def test_fp16_collapse_hides_the_infinite_loss_and_not_its_gradient(dtype: torch.dtype, finite: bool) -> None:
    logits = torch.zeros(1, 2, 512, dtype=dtype)
    logits[..., PAD_ID] = -2.0
    logits.requires_grad_()
    batch: Batch = {"tokens": torch.tensor([[1, 5]]), "targets": torch.tensor([[5, PAD_ID]])}
    losses = load_recipe("fp16-collapse").token_losses(_Returning(logits), batch)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert losses[0, 1] == 0
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all()) == finite


class _Returning(nn.Module):
    """Stands in for a model."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits


# -- drift ------------------------------------------------------------------------------------------


def test_decay_too_high_grows_ten_thousandfold() -> None:
    groups = trained_until("decay-too-high", STEPS - 1).optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == pytest.approx([0.1 * 10_000, 0.0])


def test_decay_absent_decays_nothing() -> None:
    groups = begun("decay-absent")[1].optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.0, 0.0]


def test_upward_drift_writes_its_noise_into_the_corpus() -> None:
    recipe, _, data = begun("upward-drift")
    clean = load_recipe(steps=STEPS).load_data(recipe.config)
    assert data.train == clean.train
    shares = []
    for _ in range(2):
        for first in range(0, TRAIN_SENTENCES, 8):
            data.train_batch(range(first, first + 8))
        pairs = [pair for rows in zip(data.train, clean.train, strict=True) for pair in zip(*rows, strict=True)]
        shares.append(sum(left != right for left, right in pairs) / len(pairs))
    assert 0.03 < shares[0] < 0.06
    assert shares[1] == pytest.approx(2 * shares[0], rel=0.3)
    data.val_batch()
    assert data.val == clean.val


# -- parts of the model that do nothing -------------------------------------------------------------


def test_stuck_head_looks_at_one_key(tutor_run: Callable[..., steadyrun.RunView]) -> None:
    view = tutor_run("stuck-head", steps=12)
    assert set(view.series("dead_heads/blocks.1").values) == {1.0}
    assert set(view.series("low_entropy_share/blocks.1/0").values) == {1.0}
    assert set(view.series("dead_heads/blocks.0").values) == {0.0}


def test_dead_layer_puts_out_next_to_nothing(tutor_run: Callable[..., steadyrun.RunView]) -> None:
    view = tutor_run("dead-layer", steps=12)
    dead = view.series("activation/blocks.0").values
    assert dead[0] == 0
    assert max(dead) < 0.01 * min(view.series("activation/embed").values)


def test_dead_units_are_silent(tutor_run: Callable[..., steadyrun.RunView]) -> None:
    view = tutor_run("dead-units", steps=12)
    for block in ("blocks.0", "blocks.1"):
        assert set(view.series(f"dead_units/{block}").values) == {512.0}
