"""The recorded gradient norm is the one before clipping, however the loop clips."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_programs import batch_of, loss_of, mlp, true_norm, values
from torch import nn
from torch.nn.utils import clip_grad_norm_  # imported before any recording starts, as users do

import steadyrun
from steadyrun.probes import gradients

CLIP = 0.2
STEPS = 6


def by_attribute(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def by_imported_name(model: nn.Module) -> None:
    clip_grad_norm_(model.parameters(), CLIP)


def one_by_one(model: nn.Module) -> None:
    clip_grad_norm_(model.parameters(), CLIP, foreach=False)


def by_hand(model: nn.Module) -> None:
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
    for parameter in model.parameters():
        parameter.grad.mul_(min(1.0, CLIP / float(norm)))


def by_hand_through_data(model: nn.Module) -> None:
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
    for parameter in model.parameters():
        parameter.grad.data *= min(1.0, CLIP / float(norm))


def by_replacing(model: nn.Module) -> None:
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
    for parameter in model.parameters():
        parameter.grad = parameter.grad * min(1.0, CLIP / float(norm))


def by_value(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def layer_by_layer(model: nn.Module) -> None:
    for layer in model:
        if isinstance(layer, nn.Linear):
            clip_grad_norm_(layer.parameters(), 0.1)


def by_largest_element(model: nn.Module) -> None:
    clip_grad_norm_(model.parameters(), 0.01, norm_type=math.inf)


def not_at_all(model: nn.Module) -> None:
    return None


def train(
    path: Path, clip: Callable[[nn.Module], None], steps: int = STEPS, declared: float | None = None
) -> list[tuple[float, ...]]:
    """Train and return what is true: the norm before and after clipping at every step."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    with steadyrun.record(path, config={"clip": declared}) as run:
        run.watch(model, optimizer)
        for step in range(steps):
            batch = batch_of(step)
            loss = loss_of(model, batch)
            loss.backward()
            before = true_norm(model)
            clip(model)
            truth.append((before, true_norm(model)))
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch)
    return truth


@pytest.mark.parametrize(
    "clip",
    [
        by_attribute, by_imported_name, one_by_one, by_hand, by_hand_through_data, by_replacing, by_value,
        layer_by_layer, by_largest_element, not_at_all,
    ],
)  # fmt: skip
def test_norm_before_clipping(tmp_path: Path, clip: Callable[[nn.Module], None]) -> None:
    truth = train(tmp_path, clip)
    assert values(tmp_path, "grad_norm") == pytest.approx([before for before, _ in truth], rel=1e-5)
    assert values(tmp_path, "grad_norm_applied") == pytest.approx([after for _, after in truth], rel=1e-4)
    clipped = [float(after < before * 0.999) for before, after in truth]
    assert values(tmp_path, "clipped") == clipped
    assert clipped == [0.0 if clip is not_at_all else 1.0] * STEPS


@pytest.mark.parametrize("clip", [by_attribute, by_imported_name])
def test_the_threshold_is_the_one_used(tmp_path: Path, clip: Callable[[nn.Module], None]) -> None:
    train(tmp_path, clip, declared=99.0)
    assert values(tmp_path, "clip_threshold") == [CLIP] * STEPS


def test_a_declared_threshold_stands_in_for_clipping_by_hand(tmp_path: Path) -> None:
    train(tmp_path, by_hand, declared=CLIP)
    assert values(tmp_path, "clip_threshold") == [CLIP] * STEPS


def test_without_clipping_there_is_no_threshold(tmp_path: Path) -> None:
    train(tmp_path, not_at_all)
    assert "clip_threshold" not in steadyrun.open_run(tmp_path).names()


def test_a_clip_that_does_not_engage_is_not_counted(tmp_path: Path) -> None:
    train(tmp_path, lambda model: clip_grad_norm_(model.parameters(), 1e6))
    assert values(tmp_path, "clipped") == [0.0] * STEPS
    assert values(tmp_path, "clip_threshold") == [1e6] * STEPS


def test_a_clip_to_infinity_only_asks_for_the_norm(tmp_path: Path) -> None:
    truth = train(tmp_path, lambda model: clip_grad_norm_(model.parameters(), math.inf))
    assert values(tmp_path, "grad_norm") == pytest.approx([before for before, _ in truth], rel=1e-5)
    assert values(tmp_path, "clipped") == [0.0] * STEPS
    assert "clip_threshold" not in steadyrun.open_run(tmp_path).names()


def test_clipping_that_starts_and_stops(tmp_path: Path) -> None:
    calls = iter(range(100))
    truth = train(tmp_path, lambda model: by_attribute(model) if next(calls) % 4 < 2 else None, steps=12)
    assert values(tmp_path, "grad_norm") == pytest.approx([before for before, _ in truth], rel=1e-5)


def test_clip_after_the_step_is_noticed(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            truth.append(true_norm(model))
            optimizer.step()
            clip_grad_norm_(model.parameters(), CLIP)
            optimizer.zero_grad()
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert values(tmp_path, "clipped") == [0.0] * STEPS
    assert [event.step for event in steadyrun.open_run(tmp_path).events("clip-after-step")] == [0]


def test_clip_before_backward_is_noticed(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, batch_of(step))
            clip_grad_norm_(model.parameters(), CLIP)
            loss.backward()
            truth.append(true_norm(model))
            optimizer.step()
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert values(tmp_path, "clipped") == [0.0] * STEPS
    assert [event.step for event in steadyrun.open_run(tmp_path).events("clip-before-backward")] == [0]
    headline = steadyrun.check(tmp_path).headline
    assert headline is not None
    assert (headline.question.code, headline.answer.outcome) == ("A1.3", "before-backward")


def test_clips_of_several_steps_in_one_recorded_step_are_in_time(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            for _ in range(3):
                loss = loss_of(model, batch_of(step))
                optimizer.zero_grad()
                loss.backward()
                clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
            run.step(loss)
    assert not steadyrun.open_run(tmp_path).events("clip-before-backward")
    assert steadyrun.open_run(tmp_path).series("clip_threshold").values.tolist() == [CLIP] * STEPS


@pytest.mark.parametrize("clip", [by_attribute, by_hand, not_at_all])
def test_accumulation(tmp_path: Path, clip: Callable[[nn.Module], None]) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            batches = [batch_of(3 * step + part) for part in range(3)]
            losses = [loss_of(model, batch) / 3 for batch in batches]
            for loss in losses:
                loss.backward()
            truth.append(true_norm(model))
            clip(model)
            optimizer.step()
            optimizer.zero_grad()
            run.step(sum(losses), batch=batches)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert values(tmp_path, "backwards") == [3.0] * STEPS
    assert values(tmp_path, "examples") == [36.0] * STEPS
    assert values(tmp_path, "backward_loss") == pytest.approx(values(tmp_path, "loss"), rel=1e-5)


@pytest.mark.parametrize("clip", [by_attribute, by_hand, not_at_all])
@pytest.mark.parametrize("given", [True, False], ids=["scaler given", "scaler found"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
def test_grad_scaler(tmp_path: Path, clip: Callable[[nn.Module], None], given: bool, fused: bool) -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    truth, scales = [], []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, scaler=scaler if given else None)
        for step in range(STEPS):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, batch_of(step))
            scales.append(scaler.get_scale())
            scaler.scale(loss).backward()
            if clip is not not_at_all:
                scaler.unscale_(optimizer)
                truth.append(true_norm(model))
                clip(model)
            else:
                truth.append(true_norm(model) / scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.step(loss)
    known = slice(0 if given else 1, None)  # before its first use an unnamed scaler is not known
    assert values(tmp_path, "grad_norm")[known] == pytest.approx(truth[known], rel=1e-3)
    assert values(tmp_path, "loss_scale") == scales[known]
    assert values(tmp_path, "backward_loss")[known] == pytest.approx(values(tmp_path, "loss")[known], rel=1e-5)
    assert values(tmp_path, "skipped") == [0.0] * STEPS


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
def test_a_skipped_step(tmp_path: Path, fused: bool) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, scaler=scaler)
        for step in range(5):
            loss = loss_of(model, batch_of(step)) * (math.inf if step == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.step(loss)
    assert values(tmp_path, "skipped") == [0, 0, 1, 0, 0]
    assert values(tmp_path, "loss_scale") == [1024, 1024, 1024, 512, 512]
    assert not math.isfinite(values(tmp_path, "grad_norm")[2])
    assert values(tmp_path, "loss")[2] == math.inf


def test_clip_before_unscale_is_noticed_and_the_norm_is_right(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, scaler=scaler)
        for step in range(3):
            loss = loss_of(model, batch_of(step))
            scaler.scale(loss).backward()
            truth.append(true_norm(model) / scaler.get_scale())
            clip_grad_norm_(model.parameters(), CLIP)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert values(tmp_path, "clipped") == [1.0] * 3
    assert len(steadyrun.open_run(tmp_path).events("clip-before-unscale")) == 1


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_closures(tmp_path: Path, kind: Any) -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = kind(model.parameters(), lr=0.1)
    first_norms = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(3):
            batch, norms = batch_of(step), []

            def closure(batch: Any = batch, norms: list[float] = norms) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                norms.append(true_norm(model))
                return loss

            loss = optimizer.step(closure)
            run.step(loss, batch=batch)
            first_norms.append(norms[0])
    assert values(tmp_path, "grad_norm") == pytest.approx(first_norms, rel=1e-5)
    assert values(tmp_path, "grad_norm_applied") == pytest.approx(first_norms, rel=1e-5)
    assert values(tmp_path, "clipped") == [0.0] * 3


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_that_clips(tmp_path: Path, by_name: bool) -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    truth, applied = [], []
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(4):

            def closure(step: int = step) -> torch.Tensor:
                loss = loss_of(model, batch_of(step))
                optimizer.zero_grad()
                loss.backward()
                truth.append(true_norm(model))
                clip_grad_norm_(model.parameters(), CLIP)
                applied.append(true_norm(model))
                return loss

            loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert values(tmp_path, "grad_norm_applied") == pytest.approx(applied, rel=1e-5)
    assert values(tmp_path, "clip_threshold") == [CLIP] * 4
    assert values(tmp_path, "grad_norm_used") == pytest.approx(applied, rel=1e-5)
    assert values(tmp_path, "grad_norm_left") == [0.0] * 3
    assert values(tmp_path, "optimizer_steps") == [1.0] * 4


def test_frozen_unused_and_sparse_parameters(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(40, 8, sparse=True)
            self.frozen, self.unused, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
            self.frozen.requires_grad_(False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.frozen(self.table(tokens)).mean(1))

    model = Odd()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for _ in range(3):
            loss = model(torch.randint(0, 40, (4, 5))).pow(2).sum()
            loss.backward()
            dense = [p.grad.to_dense() for p in model.parameters() if p.grad is not None]
            truth.append(float(torch.stack([g.pow(2).sum() for g in dense]).sum().sqrt()))
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    view = steadyrun.open_run(tmp_path)
    assert "block_grad_norm/frozen" not in view.names()
    assert "block_grad_norm/unused" not in view.names()


def test_torch_is_as_it_was_after_the_run(tmp_path: Path) -> None:
    from torch.nn.utils import clip_grad

    before = (clip_grad._get_total_norm, clip_grad._clip_grads_with_norm_)
    train(tmp_path, by_attribute)
    assert (clip_grad._get_total_norm, clip_grad._clip_grads_with_norm_) == before
    from torch.nn.modules import module
    from torch.optim import optimizer

    assert not module._has_any_global_hook()
    assert not optimizer._global_optimizer_pre_hooks
    assert not optimizer._global_optimizer_post_hooks


@pytest.mark.parametrize("by_data", [False, True])
def test_a_large_gradient_is_not_gone_through_twice_until_it_is_clipped_by_hand(
    tmp_path: Path, by_data: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(600, 600)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    counted: list[int] = []
    real = gradients.global_norm
    monkeypatch.setattr(gradients, "global_norm", lambda tensors: counted.append(1) or real(tensors))
    norms, per_step = [], []
    with steadyrun.record(tmp_path / "run", every=0, flush_steps=1) as run:
        run.watch(model, optimizer, monitor=False)
        for step in range(40):
            before = len(counted)
            loss = model(torch.randn(4, 600)).square().mean()
            loss.backward()
            norms.append(float(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))))
            if step >= 30:
                for parameter in model.parameters():
                    (parameter.grad.data if by_data else parameter.grad).mul_(0.5)
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
            per_step.append(len(counted) - before)
    assert per_step[:30] == [2] * 20 + [1] * 10
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("grad_norm").values.tolist() == pytest.approx(norms, rel=1e-4)
    applied, clipped = (
        dict(zip(series.steps.tolist(), series.values, strict=True))
        for series in (view.series("grad_norm_applied"), view.series("clipped"))
    )
    for step, norm in enumerate(norms):
        if step in applied and np.isfinite(applied[step]):
            assert applied[step] == pytest.approx(norm * (0.5 if step >= 30 else 1), rel=1e-4)
            assert clipped[step] == float(step >= 30)
    assert np.isfinite([applied[step] for step in range(40 if not by_data else 30)]).all()
    assert np.isfinite(applied[39]), "once it was seen, all gradients are gone through again"
