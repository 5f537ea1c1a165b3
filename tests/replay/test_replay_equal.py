"""Replay is bit-equal: the tutor in its variants, and programs that are not the tutor."""

from pathlib import Path

import incident_programs as programs
import pytest
import torch
from incident_programs import cnn, rnn

import steadyrun
from steadyrun.replay.incident import choose


def asked(loop: programs.Loop, path: Path, steps: int, at: int) -> Path:
    """Train, and ask for an incident after a step."""
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        original(run, step)
        if step == at:
            run.incident("to see it again")

    loop.one = one  # type: ignore[method-assign]
    return loop.run(path, steps)


def assert_bit_equal(result: steadyrun.Replay, least: int) -> None:
    assert result.proof.verdict == "bit-equal", str(result)
    assert result.proof.compared >= least
    assert not result.proof.differences


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        pytest.param({}, 240, marks=pytest.mark.slow),
        ({"dropout": 0.2, "accumulation": 3}, 30),
        pytest.param({"dtype": "bf16"}, 60, marks=pytest.mark.slow),
        ({"dtype": "fp16", "dropout": 0.1}, 30),
    ],
    ids=["plain", "dropout and accumulation", "bf16", "fp16 with a scaler"],
)
def test_the_tutor(tmp_path: Path, config: dict[str, object], steps: int) -> None:
    from steadyrun.tutor.faults import load_recipe
    from steadyrun.tutor.train import train_recorded

    recipe = load_recipe("lr-jump", steps=steps, **config)
    path = tmp_path / "run"

    def ask(step: int, *_: object) -> None:
        if step == steps - 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        train_recorded(recipe, path, ask)
    result = steadyrun.replay(path, until=steps - 3, hunting=False)
    assert_bit_equal(result, 20)


def test_a_cnn_without_a_train_step(tmp_path: Path) -> None:
    """Momentum, batch normalisation, dropout, a one-cycle schedule stepped after run.step, zero_grad at the start."""
    run = asked(cnn(clip=1.0), tmp_path / "cnn", 260, at=255)
    result = steadyrun.replay(run, programs.cnn_task)
    assert result.incident.first_step == 200
    assert_bit_equal(result, 56)


def test_an_rnn_with_accumulation_and_tied_weights(tmp_path: Path) -> None:
    run = asked(rnn(micro=3, clip=0.5), tmp_path / "rnn", 130, at=120)
    result = steadyrun.replay(run, programs.rnn_task)
    assert_bit_equal(result, 121)


def can_run_an_lstm_in_bf16() -> bool:
    """oneDNN has no such LSTM for CPUs without AVX-512."""
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.nn.LSTM(8, 8)(torch.zeros(2, 2, 8))
    except RuntimeError:
        return False
    return True


needs_bf16_lstm = pytest.mark.skipif(not can_run_an_lstm_in_bf16(), reason="torch has no LSTM in bf16 for this CPU")


@needs_bf16_lstm
def test_autocast_that_the_loop_enters(tmp_path: Path) -> None:
    run = asked(rnn(autocast=torch.bfloat16), tmp_path / "bf16", 60, at=50)
    assert_bit_equal(steadyrun.replay(run, programs.rnn_task), 51)


@needs_bf16_lstm
def test_autocast_that_the_loss_function_enters(tmp_path: Path) -> None:
    def loss_fn(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch["tokens"])
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch["targets"].flatten())

    def factory() -> steadyrun.Task:
        task = programs.rnn_task()
        task.loss_fn = loss_fn
        return task

    loop = rnn()
    loop.task.loss_fn = loss_fn
    run = asked(loop, tmp_path / "bf16", 60, at=50)
    assert_bit_equal(steadyrun.replay(run, factory), 51)


def test_a_learning_rate_set_by_hand(tmp_path: Path) -> None:
    loop = rnn()
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        loop.task.optimizer.param_groups[0]["lr"] = 1e-3 * (1 + step % 7)
        original(run, step)

    loop.one = one  # type: ignore[method-assign]
    assert_bit_equal(steadyrun.replay(asked(loop, tmp_path / "run", 60, at=50), programs.rnn_task), 51)


def test_random_numbers_of_python_and_numpy_in_the_forward_pass(tmp_path: Path) -> None:
    import random

    import numpy as np

    def loss_fn(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        scale = 1 + 0.1 * random.gauss(0, 1) + 0.1 * float(np.random.standard_normal())
        return programs.image_loss(model, [batch[0] * scale, batch[1]])

    def factory() -> steadyrun.Task:
        task = programs.cnn_task()
        task.loss_fn = loss_fn
        return task

    loop = cnn()
    loop.task.loss_fn = loss_fn
    assert_bit_equal(steadyrun.replay(asked(loop, tmp_path / "run", 40, at=35), factory), 36)


def test_in_process_and_everything_is_as_before(tmp_path: Path) -> None:
    """`run.replay()` in the middle of training changes nothing of what comes after it."""
    losses = []
    for replayed in (False, True):
        loop = cnn()
        with steadyrun.record(tmp_path / str(replayed)) as run:
            run.watch(loop.task.model, loop.task.optimizer, scheduler=loop.task.scheduler, loss_fn=loop.task.loss_fn)
            for step in range(60):
                loop.one(run, step)
                if step == 40:
                    run.incident("here")
                    if replayed:
                        assert_bit_equal(run.replay(), 41)
        losses.append(steadyrun.open_run(tmp_path / str(replayed)).series("loss").values.tolist())
        losses.append([p.tolist() for p in loop.task.model.parameters()])
    assert losses[0] == losses[2]
    assert losses[1] == losses[3]


def test_the_window_begins_at_the_checkpoint_before_the_incident(tmp_path: Path) -> None:
    """An incident soon after a checkpoint is replayed from the one before it: its cause may be older."""
    run = asked(cnn(watch={"capture": {"every": 30}}), tmp_path / "run", 100, at=65)
    assert choose(run).first_step == 30


def test_a_task_that_is_given_is_restored(tmp_path: Path) -> None:
    """As the error of `run.replay` advises when the objects of the run are gone."""
    loop = cnn(clip=1.0)
    run = asked(loop, tmp_path / "cnn", 30, at=25)
    task = programs.cnn_task()
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    assert_bit_equal(steadyrun.replay(run, task), 26)
    assert all(torch.equal(before[name], value) for name, value in task.model.state_dict().items())
    with pytest.warns(DeprecationWarning, match="'factory' is now 'task'"):
        assert_bit_equal(steadyrun.replay(run, factory=programs.cnn_task), 26)  # type: ignore[call-arg]
