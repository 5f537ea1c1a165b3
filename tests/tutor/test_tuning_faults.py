"""Fine-tuning, adapters, preferences and policies: each program does what its name says, and each fault is in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.tutor import exchanges
from steadyrun.tutor.data import Batch
from steadyrun.tutor.exchanges import ASSISTANT, IGNORED, USER, choices, exchange
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.faults.tuning import TUNING_FAULTS
from steadyrun.tutor.lora import LoRA
from steadyrun.tutor.policy import GROUP, PROMPTS
from steadyrun.tutor.recipe import Recipe, TrainState
from steadyrun.tutor.replaying import recipe_of, task
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID, PAD_ID
from steadyrun.tutor.train import start, train, train_recorded, train_step

ROWS = range(8)


@pytest.fixture(autouse=True)
def _short_beginnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that all these programs start from has hardly been trained."""
    monkeypatch.setattr(exchanges, "_READS", 3)
    monkeypatch.setattr(exchanges, "_ANSWERS", 2)


def begun(name: str, **settings: int) -> tuple[Recipe, TrainState, Batch]:
    recipe = load_recipe(name, steps=4, **settings)
    torch.manual_seed(0)
    state = start(recipe)
    return recipe, state, recipe.prepare(state.model, recipe.load_data(recipe.config).train_batch(ROWS))


@pytest.mark.parametrize("name", TUNING_FAULTS)
def test_the_same_seed_gives_the_same_bits_with_and_without_a_recording(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name, steps=6)
    recorded, bare = train_recorded(recipe, tmp_path / "run"), train(recipe)
    assert recorded.losses == bare.losses
    assert recorded.val_losses == bare.val_losses
    if any(bare.losses):  # without a reward, and without a reference, the loss of a policy is 0
        assert train(load_recipe(name, steps=6, seed=7)).losses != bare.losses
    assert list(steadyrun.open_run(tmp_path / "run").series("loss").values) == bare.losses


@pytest.mark.parametrize("name", TUNING_FAULTS)
def test_each_fault_says_what_it_is(name: str) -> None:
    fault = TUNING_FAULTS[name]
    assert fault.name == name
    assert fault.summary
    assert fault.change
    assert name not in FAULTS


def test_weights_at_hand_change_no_number_drawn_later() -> None:
    exchanges._read.cache_clear()
    first = train(load_recipe("adapters", steps=2)).losses
    assert train(load_recipe("adapters", steps=2)).losses == first


# -- which tokens are learned -----------------------------------------------------------------------


def test_an_exchange_asks_for_a_verb_form() -> None:
    recipe = load_recipe("fine-tuning", steps=2)
    data = recipe.load_data(recipe.config)
    for sentence in data.train_sentences:
        one = exchange(data.tokenizer, sentence)
        text, answer = (data.tokenizer.decode(ids) for ids in (one.prompt, one.answer))
        assert f" {sentence.verb} " in text
        assert sentence.text.replace(f" {answer} ", f" {sentence.verb} ", 1) == text
        assert one.prompt[1] == data.tokenizer.token_to_id(USER)
        assert one.prompt[-1] == data.tokenizer.token_to_id(ASSISTANT)
        assert one.answer[-1] == EOS_ID
        assert len(one.prompt) + len(one.answer) <= recipe.config.context


def test_the_answers_and_their_ends_are_learned() -> None:
    _, _, batch = begun("fine-tuning")
    learned = batch["labels"] != IGNORED
    assert torch.equal(batch["labels"][learned], batch["input_ids"][learned])
    assert ((batch["labels"] == EOS_ID).sum(dim=1) == 1).all()
    assert not (learned & (batch["attention_mask"] == 0)).any()


def test_the_loss_is_that_of_the_learned_tokens_alone() -> None:
    recipe, state, batch = begun("fine-tuning")
    logits = state.model(batch["input_ids"])[:, :-1].flatten(0, 1)
    expected = nn.functional.cross_entropy(logits, batch["labels"][:, 1:].flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(recipe.loss(state.model, batch), expected)


def test_masks_that_are_wrong() -> None:
    right, turned, partly, ends, twice = (
        begun(name)[2]
        for name in ("fine-tuning", "masked-answers", "some-prompts-learned", "masked-ends", "two-starts")
    )
    learned, text = right["labels"] != IGNORED, right["attention_mask"] == 1
    assert torch.equal(turned["labels"] != IGNORED, text & ~learned)
    prompts = (partly["labels"] != IGNORED)[text & ~learned].float().mean()
    assert 0.1 < prompts < 0.9
    assert (partly["labels"] != IGNORED)[learned].all()
    assert (ends["labels"] != EOS_ID).all()
    assert (ends["input_ids"] != PAD_ID).all()
    assert torch.equal(twice["input_ids"][:, 1:], right["input_ids"])
    assert (twice["input_ids"][:, :2] == BOS_ID).all()


# -- adapters ---------------------------------------------------------------------------------------


def test_adapters_start_as_their_base_and_alone_are_trained() -> None:
    recipe, state, batch = begun("adapters")
    base = start(load_recipe("fine-tuning", steps=4)).model
    assert torch.equal(state.model(batch["input_ids"]), base(batch["input_ids"]))
    layers = [module for module in state.model.modules() if isinstance(module, LoRA)]
    assert len(layers) == 4 * recipe.config.layers
    trained = [name for name, each in state.model.named_parameters() if each.requires_grad]
    assert len(trained) == 2 * len(layers)
    assert all("lora" in name for name in trained)


def test_faults_of_adapters() -> None:
    states = {name: begun(name)[1] for name in ("adapters-random-start", "adapter-scale", "base-trains")}
    layers = {name: next(m for m in state.model.modules() if isinstance(m, LoRA)) for name, state in states.items()}
    assert layers["adapters-random-start"].lora_B.weight.abs().min() > 0
    assert layers["adapter-scale"].scaling == 64
    assert layers["base-trains"].base.weight.requires_grad
    assert layers["base-trains"].scaling == 2


def test_adapters_left_out_never_move() -> None:
    recipe, state, batch = begun("adapters-left-out")
    before = {name: each.detach().clone() for name, each in state.model.named_parameters()}
    train_step(recipe, state, [batch])
    assert all(torch.equal(each, before[name]) for name, each in state.model.named_parameters())


# -- preferences ------------------------------------------------------------------------------------


def test_preferences_begin_at_a_guess_and_raise_the_margin() -> None:
    recipe, state, batch = begun("preferences")
    assert recipe.loss(state.model, batch).item() == pytest.approx(0.6931, abs=1e-4)
    assert recipe.measure(state.model, batch)["rewards/margins"] == 0
    for _ in range(4):
        train_step(recipe, state, [batch])
    assert recipe.measure(state.model, batch)["rewards/margins"] > 0


def test_swapped_pairs_lower_the_margin() -> None:
    recipe, state, batch = begun("swapped-pairs")
    for _ in range(4):
        train_step(recipe, state, [batch])
    assert recipe.measure(state.model, batch)["rewards/margins"] < 0


def test_the_rejected_answer_is_wrong() -> None:
    batch = begun("preferences")[2]
    rows = [row[row != IGNORED].tolist() for row in batch["labels"]]
    assert all(chosen != rejected for chosen, rejected in zip(rows[:8], rows[8:], strict=True))


# -- policies ---------------------------------------------------------------------------------------


def test_a_policy_answers_every_prompt_several_times() -> None:
    recipe, state, batch = begun("policy")
    assert batch["rewards"].shape == (len(ROWS), GROUP)
    assert torch.allclose(batch["advantages"].view(-1, GROUP).mean(dim=1), torch.zeros(len(ROWS)), atol=1e-6)
    answered = batch["labels"] != IGNORED
    assert torch.equal(batch["labels"][answered], batch["input_ids"][answered])
    ends = (batch["labels"] == EOS_ID).sum(dim=1)
    assert ends.max() <= 1
    prompts = batch["input_ids"].masked_fill(answered, PAD_ID).view(len(ROWS), GROUP, -1)
    assert torch.equal(prompts[:, 0], prompts[:, -1])
    assert len(recipe.load_data(recipe.config).train) == PROMPTS
    with torch.no_grad():
        torch.testing.assert_close(exchanges.chosen(choices(state.model, batch), batch), batch["sampled"])


def test_rewarded_answers_become_more_likely() -> None:
    recipe, state, batch = begun("policy")
    liked = torch.zeros(len(ROWS), GROUP)
    liked[:, 0] = 1
    batch["advantages"] = (liked - 1 / GROUP).flatten()
    for _ in range(4):
        train_step(recipe, state, [batch])
    with torch.no_grad():
        gains = (exchanges.log_probabilities(state.model, batch) - batch["sampled"]).sum(dim=1)
    assert gains.view(-1, GROUP)[:, 0].mean() > gains.view(-1, GROUP)[:, 1:].mean()


def test_faults_of_policies() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    from steadyrun.tutor.faults import tuning
    from steadyrun.tutor.policy import advantages, is_right

    assert torch.equal(tuning._flipped(rewards), -advantages(rewards))
    assert is_right([5, EOS_ID], [5, EOS_ID]) == 1
    assert tuning._without_end([5, EOS_ID], [5, EOS_ID]) == 0


# -- replay and the command -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fine-tuning", "preferences", "policy"])
def test_the_program_can_be_built_again_from_its_run(name: str, tmp_path: Path) -> None:
    train_recorded(load_recipe(name, steps=3), tmp_path / "run")
    config = steadyrun.open_run(tmp_path / "run").manifest["config"]
    assert recipe_of(config).name == name
    again = task(config)
    batch = next(iter(again.loader))
    assert torch.isfinite(again.loss_fn(again.model, batch))
    assert torch.isfinite(again.train_step(again, batch))


def test_the_list_has_a_section_of_its_own() -> None:
    lines = CliRunner().invoke(app, ["demo", "--list"]).stdout.splitlines()
    begin, end = lines.index("Fine-tuning and policies"), lines.index("Several processes (--ranks 2)")
    assert [line.split()[0] for line in lines[begin + 1 : end - 1]] == list(TUNING_FAULTS)


def test_a_demo_tells_the_whole_story(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["demo", "masked-answers", "--steps", "8", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "n-gram" not in result.stdout
    assert "M1.1" in result.stdout
    assert (out / "dashboard.html").exists()
