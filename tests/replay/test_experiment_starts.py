"""Experiments can only say what they tested: a change must begin early enough to reach the bad step."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from incident_programs import Loop
from torch import Tensor, nn

import steadyrun
from steadyrun.replay.experiments.attempt import _starts
from steadyrun.replay.experiments.judge import IncidentJudge, Trial
from steadyrun.replay.experiments.verdict import FactorRow, TriedRows, decide
from steadyrun.replay.hunt import Culprit

RATES = ("lr/3", "lr/10", "warmup")


def square(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])


def logarithm(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Infinite as soon as a target is zero, whatever the weights are."""
    return square(model, batch) * 1e-3 - batch["y"].abs().log().mean()


def root(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Finite at a target of zero, and its gradient is not."""
    return square(model, batch) * 1e-3 + (model(batch["x"])[:, 0] * batch["y"]).abs().sqrt().mean()


def line(loss_fn: Callable[..., Tensor]) -> steadyrun.Task:
    torch.manual_seed(3)
    model = nn.Linear(4, 1)
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)


def square_task() -> steadyrun.Task:
    return line(square)


def logarithm_task() -> steadyrun.Task:
    return line(logarithm)


def root_task() -> steadyrun.Task:
    return line(root)


def points() -> Iterator[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(4)
    while True:
        x = torch.randn(64, 4, generator=generator)
        yield {"x": x, "y": x.sum(1) + 0.3 * torch.randn(64, generator=generator)}


def recorded(path: Path, task: steadyrun.Task, steps: int, spoil: Callable[[int, Any], Any]) -> Path:
    return Loop(task, points(), spoil=spoil).run(path, steps)


def zero_at(bad: int) -> Callable[[int, dict[str, Tensor]], dict[str, Tensor]]:
    return lambda step, part: {**part, "y": part["y"] * 0.0} if step == bad else part


def explained(run: Path, task: Any, **options: Any) -> tuple[steadyrun.Replay, dict[str, FactorRow]]:
    result = steadyrun.replay(run, task)
    why = result.explain(**options)
    return result, {row.factor: row for row in why.table}


class Ramp(nn.Module):
    """A weight that every step moves by the learning rate, from 4 on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.ones_like(x)


def until_exp_overflows(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Infinite when the weight has come to 10."""
    reached = model(batch["x"])
    return -reached.mean() + 1e-38 * torch.exp(reached * 8.875).detach().mean()


def until_log_of_zero(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    reached = model(batch["x"])
    return -reached.mean() - 1e-6 * torch.relu(10 - reached).detach().log().mean()


def ramp(loss_fn: Callable[..., Tensor]) -> steadyrun.Task:
    model = Ramp()
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)


def exp_task() -> steadyrun.Task:
    return ramp(until_exp_overflows)


def log_task() -> steadyrun.Task:
    return ramp(until_log_of_zero)


@pytest.mark.parametrize(("task", "verdict"), [(exp_task, "learning-rate"), (log_task, "model")])
def test_a_rate_that_helps_only_long_before_the_bad_loss(tmp_path: Path, task: Any, verdict: str) -> None:
    result, rows = explained(recorded(tmp_path / "run", task(), 80, lambda _step, part: part), task)
    assert result.why is not None
    assert result.why.verdict == verdict, str(result)
    third, moment = rows["lr/3"], result.why.moment
    assert third.gone is True
    late, early = third.starts  # one update before the bad loss it is too late
    assert (late, third.before) == (moment - 1, (1, moment - early))
    assert early < moment - 10
    assert f"gone (from step {early})" in str(result)
    assert f"the learning rate divided by 3 from step {early} ({moment - early} steps before" in result.why.why
    assert "smaller learning rates do not help" not in result.why.why
    experiments = json.loads((result.incident.folder / "experiments.json").read_text())
    row = next(factor_row for factor_row in experiments["table"] if factor_row["factor"] == "lr/3")
    assert (row["starts"], row["before"]) == ([late, early], [1, moment - early])
    assert json.loads((result.incident.folder / "replay.json").read_text())["experiments"] == experiments


def test_rates_that_do_not_help_are_tried_back_to_the_checkpoint(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", logarithm_task(), 80, zero_at(60))
    result, rows = explained(run, logarithm_task, everything=True)
    assert result.why is not None
    assert result.why.verdict == "model", str(result)
    for name in RATES:
        assert rows[name].gone is False
        assert rows[name].starts[0] == 59
        assert rows[name].starts[-1] == result.incident.first_step == 0
    assert "smaller learning rates do not help" in result.why.why
    clip = rows["clip-0.5"]  # no gradient is that long: it changes nothing
    assert clip.gone is None
    assert clip.note.startswith("not tested: ")
    assert clip.note in str(result)


@pytest.mark.parametrize("task", [logarithm_task, root_task])
def test_no_update_before_the_bad_step_means_not_tested(tmp_path: Path, task: Any) -> None:
    result, rows = explained(recorded(tmp_path / "run", task(), 20, zero_at(0)), task)
    assert result.why is not None
    assert (result.incident.first_step, result.why.moment) == (0, 0)
    assert {name: rows[name].gone for name in RATES} == dict.fromkeys(RATES)
    assert all(rows[name].note.startswith("not tested: ") and not rows[name].starts for name in RATES)
    assert result.why.verdict == "model"
    assert "removes it" not in result.why.why
    assert "not tested" in result.why.why
    experiments = json.loads((result.incident.folder / "experiments.json").read_text())
    assert [row["gone"] for row in experiments["table"]] == [None, None, None]


@pytest.mark.parametrize(
    ("near", "earlier", "farthest", "moment", "starts"),
    [
        (297, 283, 200, 298, [297, 283, 260, 200]),
        (297, 283, 283, 298, [297, 283]),
        (5, 0, 0, 6, [5, 0]),
        (1000, 985, 600, 1000, [1000, 985, 923, 600]),
        (0, 0, 0, 1, [0]),
    ],
)
def test_starting_points(near: int, earlier: int, farthest: int, moment: int, starts: list[int]) -> None:
    assert _starts(near, earlier, farthest, moment) == starts


# -- verdicts and words ------------------------------------------------------------------------------


def row(name: str, gone: bool | None, *before: int) -> FactorRow:
    note = "not tested: no update" if gone is None else ""
    return FactorRow(name, "", name, 1.0, 1.0, gone, note, tuple(100 - steps for steps in before), before)


def culprit(stage: str, cause: str) -> Culprit:
    empty: dict[str, Any] = dict.fromkeys(Culprit.__dataclass_fields__, "")
    return Culprit(**{**empty, "stage": stage, "cause": cause, "operation": "log", "inputs": (), "examples": ()})


UNTESTED = [row(name, None) for name in RATES]
KEPT = [row(name, False, 1, 20) for name in RATES]
LATE = [row("lr/3", False, 1, 20), row("lr/10", True, 1, 20), row("warmup", False, 1, 20)]
BATCHES = [row("other-batch", False), row("batch-elsewhere", True)]


@pytest.mark.parametrize(
    ("table", "cause", "verdict", "words", "unsaid"),
    [
        (UNTESTED, "log-of-zero", "model", "smaller learning rates were not tested: no update", "removes the"),
        (KEPT, "log-of-zero", "model", "smaller learning rates do not help", "not tested"),
        (LATE, "log-of-zero", "model", "lr/10 from step 80 (20 steps before the bad loss)", "removes the"),
        ([*LATE, *BATCHES], "float32-overflow", "learning-rate", "lr/10 from step 80", "moments"),
        ([*UNTESTED, row("fp32", True)], "fp16-overflow", "precision", "were not tested", "do not help"),
        (
            [*LATE, row("fp32", True)],
            "fp16-overflow",
            "precision",
            "fp32 removes the incident; with lr/10",
            "do not help",
        ),
    ],
)
def test_words_claim_what_was_tested(table: list[FactorRow], cause: str, verdict: str, words: str, unsaid: str) -> None:
    decision = decide(TriedRows(table, []), culprit("loss", cause), True)
    assert decision is not None
    assert decision[0] == verdict
    assert words in decision[1]
    assert unsaid not in decision[1]


def test_what_was_not_tested_is_no_reason() -> None:
    calm = [row("lr/3", True, 1), row("other-batch", None), row("batch-elsewhere", None)]
    decision = decide(TriedRows(calm, []), None, True)
    assert decision is not None
    assert decision[:2] == ("learning-rate", "lr/3 removes the incident")


class _Infinite(IncidentJudge):
    """Of an incident whose loss is infinite, or that raised."""

    def __init__(self, raised: str = "") -> None:
        self._non_finite, self._raised, self.spike = not raised, raised, None


def test_an_experiment_that_raises_an_error_of_its_own_tested_nothing() -> None:
    def gone(judge: IncidentJudge, raised: str, loss: float = 1.0, finite: bool = True) -> bool | None:
        return judge.gone(Trial({7: loss}, finite, raised, {}), 7)

    assert gone(_Infinite(), "TypeError: no such dtype") is None
    assert gone(_Infinite(), "TypeError: no such dtype", float("inf")) is False
    assert gone(_Infinite(), "TypeError: no such dtype", finite=False) is False
    assert gone(_Infinite(), "") is True
    assert gone(_Infinite("IndexError: 41"), "IndexError: 40") is False
    assert gone(_Infinite("IndexError: 41"), "TypeError: no such dtype") is None
