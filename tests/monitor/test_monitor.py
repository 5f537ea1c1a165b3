"""The live monitor on real training: what it tells, when, and that the check at the end agrees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.questions import QUESTIONS
from steadyrun.questions.form import FAULT

CONFIG = {"lr_max": 0.01, "warmup_steps": 30, "total_steps": 400, "schedule": "cosine", "num_classes": 3, "seed": 0}


def train(
    root: Path,
    *,
    steps: int = 400,
    on_step: Callable[[int, nn.Module], None] | None = None,
    config: dict[str, Any] | None = None,
    warmup: bool = False,
    **options: Any,
) -> list[int]:
    """A small classifier; without warmup it breaks its declaration. Returns the steps that were taken."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["lr_max"])
    shape = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    if warmup:
        ramp = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=30)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 30)
        shape = torch.optim.lr_scheduler.SequentialLR(optimizer, [ramp, cosine], [30])  # type: ignore[assignment]
    taken = []
    with steadyrun.record(root, {**CONFIG, "total_steps": steps, **(config or {})}) as run:
        run.watch(model, optimizer, scheduler=shape, **options)
        for step in range(steps):
            x = torch.randn(16, 8)
            loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            loss.backward()
            optimizer.step()
            shape.step()
            optimizer.zero_grad()
            taken.append(step)
            if on_step is not None:
                on_step(step, model)
            run.step(loss, batch=x)
    return taken


def told(root: Path, kind: str = "fault") -> list[str]:
    return [event.fields["code"] for event in steadyrun.open_run(root).events(kind)]


def offline(root: Path) -> list[str]:
    walk = steadyrun.check(root, all=True).walk
    return [asked.question.code for asked in walk.path if asked.answer.kind == FAULT]


def agrees(root: Path) -> None:
    """The last word of the monitor is that of the check, and every fault it told of is one."""
    report = steadyrun.check(root, all=True)
    [last] = steadyrun.open_run(root).events("verdict")
    assert last.fields["verdict"] == report.verdict
    assert last.fields["leaf"] == (report.leaf.question.code if report.leaf else None)
    assert last.fields["faults"] == offline(root)
    assert set(told(root)) == set(offline(root))


def test_a_fault_is_told_while_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, steadyrun.Found]] = []
    step = [0]
    train(
        tmp_path / "run",
        on_step=lambda at, _: step.__setitem__(0, at),
        on_fault=lambda found: seen.append((step[0], found)),
    )
    at, found = seen[0]
    assert (found.code, found.outcome, found.step, found.certain) == ("C2.1", "no-warmup", 0, True)
    assert at == found.noticed < 100
    lines = [line for line in capsys.readouterr().err.splitlines() if "C2.1" in line]
    assert len(lines) == 1
    assert "no-warmup" in lines[0]
    assert f"steadyrun check {tmp_path / 'run'}" in lines[0]
    [event] = [e for e in steadyrun.open_run(tmp_path / "run").events("fault") if e.fields["code"] == "C2.1"]
    assert (event.step, event.fields["noticed"]) == (0, at)
    agrees(tmp_path / "run")


def test_nothing_is_told_of_a_healthy_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", warmup=True)
    assert capsys.readouterr().err == ""
    assert told(tmp_path / "run") == told(tmp_path / "run", "warning") == []
    agrees(tmp_path / "run")
    [last] = steadyrun.open_run(tmp_path / "run").events("verdict")
    assert last.fields["verdict"] == "healthy"


def test_it_can_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.FaultFound, match=r"C2\.1 no-warmup") as stopped:
        train(tmp_path / "run", on_fault="stop")
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "stopped"
    assert view.last_step() == stopped.value.found.noticed < 100
    assert view.manifest["failure"]["type"] == "FaultFound"
    assert [event.kind for event in view.events() if event.kind in {"crash", "stopped"}] == ["stopped"]
    agrees(tmp_path / "run")


def test_a_callback_can_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.FaultFound):
        train(tmp_path / "run", on_fault=lambda found: "stop" if found.code == "C2.1" else None)
    train(tmp_path / "other", on_fault=lambda found: "stop" if found.code == "C9.9" else None)


def test_a_callback_that_fails_does_not_reach_the_training_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: steadyrun.Found) -> None:
        raise RuntimeError("no network")

    assert len(train(tmp_path / "run", on_fault=fail)) == 400
    assert "on_fault callback" in capsys.readouterr().err
    agrees(tmp_path / "run")


def test_it_can_be_switched_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", monitor=False)
    assert capsys.readouterr().err == ""
    kinds = {event.kind for event in steadyrun.open_run(tmp_path / "run").events()}
    assert not kinds & {"fault", "warning", "verdict"}


@pytest.mark.parametrize("bad", ["halt", 7, ["stop"]])
def test_a_bad_on_fault_is_refused_before_training(tmp_path: Path, bad: object) -> None:
    with pytest.raises(steadyrun.UsageError, match="on_fault must be a function or"):
        train(tmp_path / "run", on_fault=bad)


def test_a_loss_that_is_not_finite_is_told_at_once(tmp_path: Path) -> None:
    def destroy(step: int, model: nn.Module) -> None:
        if step == 234:
            next(model.parameters()).data.fill_(float("nan"))

    seen: list[steadyrun.Found] = []
    train(tmp_path / "run", warmup=True, on_step=destroy, on_fault=seen.append)
    assert [(found.code, found.step, found.noticed) for found in seen] == [("D1.3", 235, 235)]
    agrees(tmp_path / "run")


@pytest.fixture
def without_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a millisecond leave no time to look: here it may take what it needs."""
    monkeypatch.setattr("steadyrun.monitor.pace.SHARE", 1.0)


def exploding(step: int, model: nn.Module) -> None:
    """From step 150 on every update is thrown far off."""
    if step >= 150:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 5)


@pytest.mark.usefixtures("without_budget")
def test_what_may_pass_is_a_warning_until_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[steadyrun.Found] = []
    root = tmp_path / "run"
    train(root, warmup=True, steps=1500, on_step=exploding, on_fault=seen.append)
    warned = [found for found in seen if not found.certain]
    assert warned
    assert {found.code for found in warned} == set(told(root, "warning"))
    assert all(QUESTIONS[found.code].outcome(found.outcome).may_pass for found in warned)
    assert "a fault if it stays so" in capsys.readouterr().err
    agrees(root)


@pytest.mark.usefixtures("without_budget")
def test_what_may_pass_stops_the_run_only_when_it_has_stood(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.FaultFound) as stopped:
        train(tmp_path / "run", warmup=True, steps=1500, on_step=exploding, on_fault="stop")
    assert stopped.value.found.noticed >= 150 + 200
    agrees(tmp_path / "run")


def test_watching_again_tells_nothing_twice(tmp_path: Path) -> None:
    seen: list[str] = []
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path / "run", {**CONFIG, "total_steps": 200}) as run:
        for _ in range(2):
            run.watch(model, optimizer, on_fault=lambda found: seen.append(found.code))
            for _ in range(100):
                loss = model(torch.randn(8, 4)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step(loss)
    assert seen.count("C2.1") == 1
    assert len(seen) == len(set(seen))


def test_thresholds_of_the_working_directory_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "steadyrun.toml").write_text("[thresholds]\nC9.9.x = 1\n")
    monkeypatch.chdir(tmp_path)
    assert len(train(tmp_path / "run")) == 400  # a bad file is reported, and training goes on
    assert told(tmp_path / "run") == []
    assert [event.fields["probe"] for event in steadyrun.open_run(tmp_path / "run").events("probe-failed")] == [
        "monitor"
    ]


def test_every_fault_that_has_no_edge_and_looks_at_the_end_of_the_run_may_pass() -> None:
    """Sections that ask about the present state of a run; a new outcome there must say so, too."""
    for code in ("C4.1", "D2.4", "D4.2", "D4.3", "D4.4", "S4.2", "S6.1", "S6.2"):
        assert all(outcome.may_pass for outcome in QUESTIONS[code].outcomes if outcome.answer == FAULT), code
