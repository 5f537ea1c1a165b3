"""Bugs in the loss, in what reaches the model and in the schedule, each in a real program; and healthy neighbours."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from programs_data import VOCAB, TinyGPT, classify, mlp, points, scores, shifted, task
from torch import Tensor, nn
from torch.nn import functional

import steadyrun
from steadyrun.questions.form import Answer
from steadyrun.report.preflight import run
from steadyrun.signals.smoothed_targets import floor


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def answer(made: steadyrun.Task, code: str, **more: Any) -> Answer:
    return run(made, only=[code], **more).walk.path[0].answer


def outcome_of(made: steadyrun.Task, code: str, **more: Any) -> tuple[str, str]:
    probe_answer = answer(made, code, **more)
    return probe_answer.kind, probe_answer.outcome


# -- A3.2 -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    "loss",
    [
        functional.mse_loss,
        functional.smooth_l1_loss,
        functional.l1_loss,
        lambda p, y: ((p - y) ** 2).mean(),
        lambda p, y: (y - p).abs().sum(),
    ],
    ids=["mse", "smooth", "l1", "by hand", "turned"],
)
def test_predictions_against_all_targets(loss: Any) -> None:
    batches = [(x, x[:, 0]) for x in torch.randn(4, 16, 10)]
    probe_answer = answer(task(mlp(1), lambda m, b: loss(m(b[0]), b[1]), batches), "A3.2")
    assert probe_answer.outcome == "broadcast"
    assert "Predictions of shape (16, 1) and 16 targets broadcast to (16, 16)" in probe_answer.message
    squeezed = task(mlp(1), lambda m, b: loss(m(b[0]).squeeze(1), b[1]), batches)
    assert outcome_of(squeezed, "A3.2")[0] in {"pass", "not-applicable"}


def test_pairs_on_purpose_are_healthy() -> None:
    def ranking(model: nn.Module, batch: Any) -> Tensor:
        scores = model(batch[0]).squeeze(1)
        apart = scores[:, None] - scores[None, :]
        return functional.softplus(-apart * (batch[1][:, None] - batch[1][None, :]).sign()).mean()

    def kernel(model: nn.Module, batch: Any) -> Tensor:
        made = model(batch[0]).squeeze(1).unsqueeze(1)
        return (-((made - batch[1]) ** 2)).exp().mean()

    batches = [(x, x[:, 0]) for x in torch.randn(4, 16, 10)]
    for loss_fn in (ranking, kernel):
        assert outcome_of(task(mlp(1), loss_fn, batches), "A3.2")[0] != "fault"


def test_a_side_that_is_as_long_as_the_batch_by_chance_is_healthy() -> None:
    """One number per row against sixteen measurements of it, in batches of sixteen."""
    batches = [(x, x[:, :1] + torch.randn(16, 16)) for x in torch.randn(4, 16, 10)]
    assert outcome_of(task(mlp(1), lambda m, b: ((m(b[0]) - b[1]) ** 2).mean(), batches), "A3.2")[0] != "fault"


# -- C1.1 -------------------------------------------------------------------------------------------


def test_the_first_loss_of_an_untrained_model() -> None:
    probe_answer = answer(task(TinyGPT(), scores, shifted()), "C1.1")
    assert probe_answer.kind == "pass"
    assert f"ln {VOCAB} = {math.log(VOCAB):.3g}" in probe_answer.message


def test_a_first_loss_that_is_not_finite() -> None:
    made = task(mlp(), lambda m, b: -m(b[0]).sub(1e9).softmax(1)[:, 0].sub(2).log().mean(), points())
    assert answer(made, "C1.1").outcome == "not-finite"


def test_weights_drawn_too_wide() -> None:
    model = TinyGPT()
    nn.init.normal_(model.head.weight, std=4)
    probe_answer = answer(task(model, scores, shifted()), "C1.1")
    assert (probe_answer.kind, probe_answer.outcome) == ("fault", "weights")
    assert "head.weight: standard deviation" in probe_answer.message


def test_an_embedding_of_deviation_1_tied_to_the_head() -> None:
    model = TinyGPT()
    model.tokens = nn.Embedding(VOCAB, 16)
    model.head.weight = model.tokens.weight
    nn.init.normal_(model.tokens.weight, std=1)
    with torch.no_grad():
        model.norm.weight.fill_(3.0)
    probe_answer = answer(task(model, scores, shifted()), "C1.1")
    assert probe_answer.outcome == "weights"


def test_scores_with_a_margin_are_a_note() -> None:
    def arcface(model: nn.Module, batch: Any) -> Tensor:
        cosines = functional.normalize(model(batch[0]), dim=1)
        return functional.cross_entropy(30 * (cosines - 0.3 * functional.one_hot(batch[1], 4)), batch[1])

    assert outcome_of(task(mlp(), arcface, points()), "C1.1") == ("note", "high")


def test_learned_weights_where_random_ones_are_declared() -> None:
    model = TinyGPT()
    batches = [shifted()[0]] * 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    for _ in range(60):
        optimizer.zero_grad()
        scores(model, batches[0]).backward()
        optimizer.step()
    assert answer(task(model, scores, batches, config={"init": "random"}), "C1.1").outcome == "already-trained"
    assert outcome_of(task(model, scores, batches), "C1.1") == ("note", "low")
    assert outcome_of(task(model, scores, batches, config={"init": "pretrained"}), "C1.1") == ("pass", "pass")


def test_losses_whose_guess_is_not_known_are_answered() -> None:
    for loss_fn in (
        lambda m, b: functional.cross_entropy(m(b[0]), b[1], reduction="sum"),
        lambda m, b: functional.cross_entropy(m(b[0]), b[1]) + m[0].weight.pow(2).sum(),
        lambda m, b: 100 * functional.cross_entropy(m(b[0]), b[1]),
        lambda m, b: functional.multi_margin_loss(m(b[0]), b[1]),
    ):
        assert outcome_of(task(mlp(), loss_fn, points()), "C1.1") == ("pass", "pass")


def test_a_loss_that_raises_is_told_and_not_a_failure() -> None:
    def broken(_model: nn.Module, _batch: Any) -> Tensor:
        raise KeyError("labels")

    report = run(task(mlp(), broken, points()))
    assert report.verdict == "cannot-tell"
    assert not [asked for asked in report.walk.path if asked.answer.outcome == "failed"]
    messages = {asked.question.code: asked.answer.message for asked in report.walk.path}
    assert messages["C1.1"].startswith("loss_fn raised KeyError: 'labels' (test_loss_probes.py:")


# -- P3.4 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smoothing", "outcome"),
    [(0.1, "pass"), (0.3, "pass"), (0.7, "large"), (0.95, "hides-learning"), (1.0, "hides-learning")],
)
def test_label_smoothing(smoothing: float, outcome: str) -> None:
    made = task(mlp(), lambda m, b: functional.cross_entropy(m(b[0]), b[1], label_smoothing=smoothing), points())
    probe_answer = answer(made, "P3.4")
    assert probe_answer.outcome == outcome
    assert probe_answer.measured["smoothing"] == pytest.approx(smoothing)


@given(st.floats(0, 1), st.integers(2, 50))
def test_the_floor_is_the_loss_of_the_best_scores(smoothing: float, classes: int) -> None:
    target = torch.full((classes,), smoothing / classes, dtype=torch.float64)
    target[0] += 1 - smoothing
    best = target.clamp(min=1e-300).log()
    slow = functional.cross_entropy(best[None], torch.tensor([0]), label_smoothing=smoothing)
    assert floor(smoothing, classes) == pytest.approx(float(slow), abs=1e-6)


# -- P3.5 -------------------------------------------------------------------------------------------


class Overwritten(nn.Module):
    """What is computed from the inputs is thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(10, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inside(x).relu()
        hidden = torch.ones_like(hidden)
        return self.outside(hidden)


def test_inputs_that_do_not_matter() -> None:
    probe_answer = answer(task(Overwritten(), classify, points()), "P3.5")
    assert probe_answer.outcome == "inputs-ignored"
    dead = mlp()
    nn.init.constant_(dead[0].bias, -100.0)  # type: ignore[index,arg-type]
    assert answer(task(dead, classify, points()), "P3.5").outcome == "inputs-ignored"


class First(nn.Module):
    """Returns something constant before its scores, as detectors return their anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = mlp()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.linspace(0, 1, 7), self.inside(x)


def test_a_constant_beside_the_scores_is_healthy() -> None:
    made = task(First(), lambda m, b: functional.cross_entropy(m(b[0])[1], b[1]), points())
    assert outcome_of(made, "P3.5") == ("pass", "pass")


class Things:
    def __init__(self, x: Tensor) -> None:
        self.x = x


def test_inputs_in_an_object_cannot_be_changed() -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = mlp()

        def forward(self, things: Things, _lengths: Tensor) -> Tensor:
            return self.inside(things.x)

    made = task(Takes(), lambda m, b: functional.cross_entropy(m(Things(b[0]), b[1]), b[1]), points())
    assert outcome_of(made, "P3.5")[0] == "cannot-tell"


def test_a_batch_of_one_and_the_same_example() -> None:
    x, y = points()[0]
    assert outcome_of(task(mlp(), classify, [(x[:1].repeat(16, 1), y[:1].repeat(16))]), "P3.5") == ("pass", "pass")
    constant = [(torch.ones(16, 10), torch.zeros(16, dtype=torch.long))]
    assert outcome_of(task(mlp(), classify, constant), "P3.5")[0] == "not-applicable"


# -- C2.1 -------------------------------------------------------------------------------------------


def scheduled(length: int, stepping: int | None, total: int = 400, **config: Any) -> steadyrun.Task:
    """A cosine of some length; `stepping` says how often a step steps it, None leaves it to the loop."""
    made = task(mlp(), classify, points(10))
    made.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(made.optimizer, length)
    made.config = {"total_steps": total, "schedule": "cosine", "lr_max": 1e-3, "lr_min": 0.0, **config}

    def step(task: steadyrun.Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        task.optimizer.step()
        for _ in range(stepping or 0):
            task.scheduler.step()  # type: ignore[union-attr]
        return loss

    made.train_step = None if stepping is None else step
    return made


def test_a_schedule_in_the_units_of_its_steps() -> None:
    assert outcome_of(scheduled(400, 1), "C2.1") == ("pass", "pass")
    assert outcome_of(scheduled(400, None), "C2.1") == ("pass", "pass")
    probe_answer = answer(scheduled(40, None), "C2.1")  # the loader has 10 batches: 40 epochs
    assert (probe_answer.kind, probe_answer.outcome) == ("pass", "pass")
    assert "once per epoch of 10 batches" in probe_answer.message


def test_a_schedule_in_epochs_stepped_per_batch() -> None:
    probe_answer = answer(scheduled(40, 1), "C2.1")
    assert probe_answer.kind == "fault"
    assert "train_step calls scheduler.step() once." in probe_answer.message
    undeclared = scheduled(40, 1)
    undeclared.config = {"total_steps": 400}
    probe_answer = answer(undeclared, "C2.1")
    assert probe_answer.outcome == "counts-epochs"
    assert "T_max is 40, the number of epochs" in probe_answer.message


def test_a_schedule_stepped_by_every_process() -> None:
    assert answer(scheduled(400, 4), "C2.1").outcome == "not-as-declared"
    assert outcome_of(scheduled(1600, 4), "C2.1") == ("pass", "pass")


def test_a_warmup_longer_than_the_run() -> None:
    assert answer(scheduled(400, 1, warmup_steps=500), "C2.1").outcome == "warmup-longer-than-run"


def test_schedules_of_which_nothing_can_be_told() -> None:
    assert outcome_of(task(mlp(), classify, points()), "C2.1")[0] == "not-applicable"
    undeclared = scheduled(400, 1)
    undeclared.config = {}
    assert outcome_of(undeclared, "C2.1")[0] == "cannot-tell"
    plateau = scheduled(400, None)
    plateau.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(plateau.optimizer)
    assert outcome_of(plateau, "C2.1")[0] == "not-applicable"
    restarts = scheduled(400, 1)
    restarts.scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(restarts.optimizer, 50)
    restarts.config = {"total_steps": 400}
    assert outcome_of(restarts, "C2.1") == ("pass", "pass")


def test_a_schedule_that_is_continued() -> None:
    made = scheduled(400, 1)
    for _ in range(150):
        made.optimizer.step()
        made.scheduler.step()  # type: ignore[union-attr]
    assert outcome_of(made, "C2.1") == ("pass", "pass")


def test_groups_with_rates_of_their_own() -> None:
    made = scheduled(400, 1)
    model: Any = made.model
    groups = [{"params": model[0].parameters(), "lr": 1e-2}, {"params": model[2].parameters(), "lr": 1e-3}]
    made.optimizer = torch.optim.AdamW(groups)
    made.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(made.optimizer, 400)
    assert outcome_of(made, "C2.1") == ("pass", "pass")


def test_a_step_that_leaves_the_schedule_to_the_loop_is_a_note() -> None:
    assert outcome_of(scheduled(400, 0), "C2.1") == ("note", "left-to-the-loop")


def test_a_train_step_that_raises() -> None:
    made = scheduled(400, 1)
    made.train_step = lambda task, batch: batch["x"]
    probe_answer = answer(made, "C2.1")
    assert probe_answer.kind == "cannot-tell"
    assert "train_step raised TypeError" in probe_answer.message


def test_a_schedule_is_as_it_was() -> None:
    made = scheduled(40, 1)
    before = (made.scheduler.state_dict(), made.optimizer.state_dict())  # type: ignore[union-attr]
    run(made)
    assert (made.scheduler.state_dict(), made.optimizer.state_dict()) == before  # type: ignore[union-attr]
