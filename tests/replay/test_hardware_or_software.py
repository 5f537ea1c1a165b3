"""Injected bit flips are told from faults of software and data: real runs, replayed three times."""

import json
from dataclasses import replace
from pathlib import Path

import flipped_programs as programs
import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun import Task
from steadyrun.replay.hardware import ENOUGH, TABLE, Evidence, FirstDifference, OtherHost, decide, earlier_hosts

FLIPS = {
    "weight": (programs.adam_task, {"after_update": programs.in_weight}, "loss", programs.AT + 1),
    "gradient": (programs.momentum_task, {"in_gradients": programs.in_gradient}, "loss", programs.AT + 1),
    "backward": (programs.momentum_task, {"in_backward": True}, "gradient norm", programs.AT),
    "moment": (programs.adam_task, {"after_update": programs.in_moment}, "loss", programs.AT + 2),
}
SOFTWARE = {
    "bad-batch": (programs.adam_task, {"spoil": programs.bad_batch}),
    "rate": (programs.fast_task, {}),
    "log-of-zero": (lambda: programs.adam_task(programs.log_loss), {"spoil": programs.large_batch}),
}


@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_bit_is_transient(name: str, tmp_path: Path) -> None:
    task, fault, what, step = FLIPS[name]
    run = programs.train(tmp_path / "run", task(), **fault)
    result = steadyrun.replay(run, task)
    assert result.hardware is not None
    evidence = result.hardware.evidence
    assert result.hardware.verdict == "transient"
    assert (evidence.times, evidence.repeated, evidence.agree) == (3, 0, True)
    assert evidence.first is not None
    assert (evidence.first.what, evidence.first.step) == (what, step)


@pytest.mark.parametrize("name", SOFTWARE)
def test_software_and_data_are_reproducible(name: str, tmp_path: Path) -> None:
    task, fault = SOFTWARE[name]
    run = programs.train(tmp_path / "run", task(), **fault)
    result = steadyrun.replay(run, task)
    assert result.hardware is not None
    assert result.hardware.verdict == "reproducible"
    assert result.hardware.evidence.repeated == 3
    assert result.culprit is not None


# Replays that repeat themselves, or do not.


class Faulty:
    """A loss function that adds to one loss after `after` calls: an arithmetic unit that fails now and then."""

    def __init__(self, after: int) -> None:
        self.calls, self.after = 0, after

    def __call__(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        self.calls += 1
        loss = programs.loss_fn(model, batch)
        return loss * 1.5 if self.calls == self.after else loss


def asked(path: Path, task: Task, steps: int = 12) -> Path:
    """A healthy run with an incident that was asked for."""
    with steadyrun.record(path, config={"seed": 0}) as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn, monitor=False)
        for _, batch in zip(range(steps), programs.batches(), strict=False):
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look again")
    return path


@pytest.fixture
def one_thread() -> None:
    """Restores the number of threads, which a replay sets to that of the run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_one_odd_repetition_on_this_machine_is_persistent(tmp_path: Path) -> None:
    """The second of three executions computes one loss wrongly; the others equal the recording."""
    run = asked(tmp_path / "run", programs.adam_task())
    result = steadyrun.replay(run, lambda: programs.adam_task(Faulty(after=18)))
    assert result.hardware is not None
    assert (result.hardware.verdict, result.hardware.rule) == ("persistent", "repetitions-differ")
    assert result.hardware.evidence.majority == 2
    assert result.proof.verdict == "bit-equal"


@pytest.mark.usefixtures("one_thread")
def test_a_program_that_never_repeats_itself_is_undecided(tmp_path: Path) -> None:
    """Its loss function draws from a generator of its own."""
    own = torch.Generator().manual_seed(1)

    def noisy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return programs.loss_fn(model, batch) * (1 + torch.rand((), generator=own))

    run = asked(tmp_path / "run", programs.adam_task(noisy))
    result = steadyrun.replay(run, lambda: programs.adam_task(noisy))
    assert result.hardware is not None
    assert (result.hardware.verdict, result.hardware.rule) == ("undecided", "not-deterministic")


def test_a_loop_that_does_more_than_the_task_is_not_hardware(tmp_path: Path) -> None:
    """It differs from the first step on: no step before equals the recording, so nothing is claimed."""
    task = programs.adam_task()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn, monitor=False)
        for _, batch in zip(range(12), programs.batches(), strict=False):
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            with torch.no_grad():
                task.model.first.weight.mul_(1.1)
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look again")
    result = steadyrun.replay(tmp_path / "run", programs.adam_task)
    assert result.hardware is not None
    assert result.hardware.verdict == "undecided"
    assert result.hardware.evidence.equal_before < ENOUGH


def test_the_number_of_repetitions(tmp_path: Path) -> None:
    run = asked(tmp_path / "run", programs.adam_task())
    steps: list[tuple[int, int]] = []
    twice = steadyrun.replay(run, programs.adam_task, repeat=2, on_step=lambda done, of, _: steps.append((done, of)))
    assert twice.hardware is not None
    assert twice.hardware.evidence.times == 2
    assert steps == [(done, 24) for done in range(1, 25)]
    assert steadyrun.replay(run, programs.adam_task, repeat=1).hardware is None
    with pytest.raises(steadyrun.UsageError, match="repeat must be"):
        steadyrun.replay(run, programs.adam_task, repeat=0)


def test_the_verdict_is_in_every_form_of_the_result(tmp_path: Path) -> None:
    run = programs.train(tmp_path / "run", programs.adam_task(), after_update=programs.in_weight)
    result = steadyrun.replay(run, programs.adam_task)
    assert "Hardware or software: transient." in str(result)
    assert "Next: Resume from a checkpoint before step" in str(result)
    kept = json.loads((result.incident.folder / "replay.json").read_text())["hardware"]
    assert (kept["verdict"], kept["times"], kept["repeated"]) == ("transient", 3, 0)
    assert kept["first"]["step"] == programs.AT + 1
    why = result.explain()
    assert why.verdict == "not-reproducible"
    assert "hardware is transient" in why.why
    card = steadyrun.check(run).incidents[0]
    assert card.hardware == card.to_dict()["hardware"] == "transient"
    assert "Hardware, by replay (transient)" in card.sentence("run")


# The table, row by row.


CLEAN = Evidence(times=3, repeated=3, agree=True, majority=3, holds=True, host="a", run_host="a", deterministic=True)
NEVER = replace(CLEAN, repeated=0, holds=False, equal_before=9, first=FirstDifference(12, "loss"))


@pytest.mark.parametrize(
    ("evidence", "rule", "verdict"),
    [
        (replace(CLEAN, elsewhere=(OtherHost("b", 3, 0),)), "only-one-host", "persistent"),
        (
            replace(NEVER, host="b", environment=("host",), elsewhere=(OtherHost("a", 3, 3),)),
            "only-one-host",
            "persistent",
        ),
        (CLEAN, "always", "reproducible"),
        (replace(CLEAN, holds=False), "always", "reproducible"),
        (replace(CLEAN, environment=("versions",)), "always", "reproducible"),
        (replace(CLEAN, repeated=1, agree=False, majority=2), "repetitions-differ", "persistent"),
        (replace(CLEAN, repeated=1, agree=False, majority=1), "not-deterministic", "undecided"),
        (replace(CLEAN, repeated=1, agree=False, majority=2, deterministic=False), "not-deterministic", "undecided"),
        (
            replace(CLEAN, repeated=1, agree=False, majority=2, environment=("threads",)),
            "not-deterministic",
            "undecided",
        ),
        (replace(NEVER, environment=("versions",)), "other-environment", "undecided"),
        (replace(NEVER, host="b", environment=("host",)), "other-environment", "undecided"),
        (replace(NEVER, alone="rank 3 kept nothing of it"), "one-rank-alone", "undecided"),
        (replace(NEVER, explained="the model got other inputs"), "explained", "undecided"),
        (NEVER, "one-step-differs", "transient"),
        (replace(NEVER, equal_before=ENOUGH - 1), "nothing-to-compare", "undecided"),
        (replace(NEVER, first=None), "nothing-to-compare", "undecided"),
    ],
)
def test_every_row_of_the_table(evidence: Evidence, rule: str, verdict: str) -> None:
    decided = decide(evidence)
    assert (decided.rule, decided.verdict) == (rule, verdict)
    assert decided.why
    assert decided.next


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/replay.md").read_text()
    for rule in TABLE:
        assert f"| `{rule.name}` | " in page, rule.name


def test_replays_on_other_machines_are_remembered() -> None:
    here = json.loads(json.dumps(decide(CLEAN).to_dict()))
    assert earlier_hosts({"hardware": here}, "a") == ()
    assert earlier_hosts({"hardware": here}, "b") == (OtherHost("a", 3, 3),)
    listed = {"hardware": {**here, "host": "b", "repeated": 0, "elsewhere": [{"host": "a", "times": 3, "repeated": 3}]}}
    assert earlier_hosts(listed, "c") == (OtherHost("a", 3, 3), OtherHost("b", 3, 0))
    assert earlier_hosts({"hardware": {**here, "environment": ["versions"]}}, "b") == ()
    assert earlier_hosts({"hardware": {"elsewhere": [3, {"host": 5}]}}, "b") == ()
