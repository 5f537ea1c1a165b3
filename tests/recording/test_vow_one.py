"""Vow 1: recording never changes training. Losses, parameters and random states are equal, bit for bit."""

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_programs import Gpt, batch_of, loss_of, mlp
from torch import nn

import steadyrun
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import train, train_recorded

CASES = {
    "plain": {"steps": 120},
    "dropout": {"steps": 60, "dropout": 0.2},
    "accumulation": {"steps": 40, "accumulation": 3},
    "no clipping": {"steps": 40, "clip": None},
    "bf16": {"steps": 25, "dtype": "bf16"},
    "fp16": {"steps": 25, "dtype": "fp16"},
}


@pytest.mark.parametrize("case", CASES)
def test_the_tutor_is_bit_equal(tmp_path: Path, case: str) -> None:
    recipe = load_recipe(**CASES[case])
    bare = train(recipe)
    bare_random = torch.get_rng_state()
    recorded = train_recorded(recipe, tmp_path)
    assert recorded.losses == bare.losses
    assert recorded.val_losses == bare.val_losses
    assert torch.equal(torch.get_rng_state(), bare_random)
    for one, other in zip(bare.model.parameters(), recorded.model.parameters(), strict=True):
        assert torch.equal(one, other)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.astype(np.float32).tolist() == [np.float32(loss) for loss in bare.losses]
    assert view.events("probe-failed") == []


@pytest.mark.slow
def test_the_whole_demo_is_bit_equal(tmp_path: Path) -> None:
    bare = train(load_recipe())
    recorded = train_recorded(load_recipe(), tmp_path)
    assert recorded.losses == bare.losses
    assert all(torch.equal(*pair) for pair in zip(bare.model.parameters(), recorded.model.parameters(), strict=True))


def test_every_probe_at_every_step_is_bit_equal(tmp_path: Path) -> None:
    def go(run: Any) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = Gpt()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if run is not None:
            run.watch(model, optimizer)
        for _ in range(8):
            tokens = torch.randint(0, 50, (4, 9))
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if run is not None:
                run.step(loss, batch=tokens)
        return [torch.get_rng_state(), *model.parameters()]

    bare = go(None)
    with steadyrun.record(tmp_path, every={"histograms": 1, "spectral": 1, "attention": 1, "blocks": 1}) as run:
        recorded = go(run)
    assert all(torch.equal(one, other) for one, other in zip(bare, recorded, strict=True))


def test_numpy_and_python_random_states_are_untouched(tmp_path: Path) -> None:
    import random

    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    model = mlp()
    torch.set_rng_state(before[2])
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
        run.step(loss_of(model, batch_of(0)), batch=batch_of(0))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_a_validation_loader_draws_nothing(tmp_path: Path) -> None:
    """Iterating a DataLoader draws a seed from torch's generator; training must not notice."""
    data = torch.utils.data.TensorDataset(torch.arange(20.0).view(10, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=3, shuffle=True)
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
        before = torch.get_rng_state()
        run.val(1.0, batches=loader)
        run.val(1.0, batches=(torch.arange(20.0).view(10, 2), torch.arange(1, 11)))
        assert torch.equal(torch.get_rng_state(), before)
    assert len(steadyrun.open_run(tmp_path).series("example_hash/val")) == 20


def test_one_bad_row_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.probes import batch_hashes, examples

    real = batch_hashes.example_sums
    for module in (batch_hashes, examples):  # together with others of its shape, and by itself
        monkeypatch.setattr(
            module, "example_sums", lambda arrays, pad: real(arrays, pad) if len(arrays[0]) != 3 else 1 / 0
        )
    with steadyrun.record(tmp_path) as run:
        for rows in (2, 3, 4):
            run.step(float(rows), batch=torch.ones(rows, 2))
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.tolist() == [2, 3, 4]
    assert view.series("batch_hash").steps.tolist() == [0, 2]


def test_a_model_can_be_copied_and_pickled_at_any_moment(tmp_path: Path) -> None:
    """Hooks that travel with the model would break EMA copies and `torch.save(model)`."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(3):
            twin = copy.deepcopy(model)
            loss_of(twin, batch_of(9)).backward()
            torch.save(model, io.BytesIO())
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
    assert steadyrun.open_run(tmp_path).series("backwards").values.tolist() == [1, 1, 1]


def break_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.probes import activations, batch_hashes, gradients, optimizer_steps, parameters, system
    from steadyrun.probes import spectral_norms as spectral

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    for module, name in [
        (activations.ForwardProbe, "_measure"), (gradients, "global_norm"), (gradients, "norms"),
        (optimizer_steps.OptimizerProbe, "moments"), (optimizer_steps, "_rate"), (parameters.ParameterProbe, "fill"),
        (parameters.ParameterProbe, "snapshot"), (spectral.SpectralProbe, "fill"),
        (system.SystemProbe, "measure"), (batch_hashes, "arrays_of"),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, broken)


def test_an_internal_error_never_reaches_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_everything(monkeypatch)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(5):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch_of(step))
    view = steadyrun.open_run(tmp_path)
    assert len(view.series("loss")) == 5
    failed = [event.fields["probe"] for event in view.events("probe-failed")]
    assert len(failed) == len(set(failed)) >= 6
    said = capsys.readouterr().err
    assert said.count("planted") == len(failed)
    assert "training is not affected" in said


def test_even_a_broken_store_does_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with steadyrun.record(tmp_path, flush_steps=1) as run:
        monkeypatch.setattr(run._writer, "append", lambda *_, **__: 1 / 0)
        monkeypatch.setattr(run._writer, "event", lambda *_, **__: 1 / 0)
        for step in range(3):
            run.step(float(step))
            run.val(1.0)
            run.log(x=1.0)
            run.note("still here")


def test_bad_values_inside_the_loop_do_not_raise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step("not a number")
        run.step(torch.ones(3))
        run.step(1.0, batch=object(), class_losses={"a": "b"})
        run.val(None)
        run.log(x=object())
        run.step(2.0, step="seven")
        run.step(3.0)
    assert "not a number" in capsys.readouterr().err
    assert steadyrun.open_run(tmp_path).series("loss").values.tolist() == [1.0, 3.0]
