"""The live monitor on real training: what it tells, when, and that the check at the end agrees."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.monitor.look import Look, Looker, Sighting
from steadyrun.monitor.monitor import Monitor
from steadyrun.questions.form import FAULT
from steadyrun.report.file_formats import markdown
from steadyrun.signals.declared_schedule import SchedulePlan
from steadyrun.store.events import EventLog
from steadyrun.store.layout import events_file
from steadyrun.store.writer import RunWriter
from steadyrun.trees import QUESTIONS

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
    walk = steadyrun.check(root, everything=True).walk
    return [asked.question.code for asked in walk.path if asked.answer.kind == FAULT]


def agrees(root: Path) -> None:
    """The last word of the monitor is that of the check, and every fault it told of is one."""
    report = steadyrun.check(root, everything=True)
    [last] = steadyrun.open_run(root).events("verdict")
    assert last.fields["verdict"] == report.verdict
    assert last.fields["leaf"] == (report.leaf.question.code if report.leaf else None)
    assert last.fields["faults"] == offline(root)
    assert set(told(root)) == set(offline(root))


def test_a_fault_is_told_while_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announced: list[tuple[int, steadyrun.Found]] = []
    step = [0]
    train(
        tmp_path / "run",
        on_step=lambda at, _: step.__setitem__(0, at),
        on_fault=lambda fault: announced.append((step[0], fault)),
    )
    at, fault = announced[0]
    assert (fault.code, fault.outcome, fault.step, fault.certain) == ("C2.1", "no-warmup", 0, True)
    assert at == fault.noticed < 100
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


def test_a_loop_that_catches_the_stop_goes_on(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    stopped = []
    with steadyrun.record(tmp_path / "run", {**CONFIG, "total_steps": 200}) as run:
        run.watch(model, optimizer, on_fault="stop")
        for step in range(150):
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            try:
                run.step(loss)
            except steadyrun.FaultFound as problem:
                stopped.append((step, problem.found.code))
    assert len(stopped) == 1
    assert steadyrun.open_run(tmp_path / "run").state == "finished"
    assert steadyrun.open_run(tmp_path / "run").last_step() == 149


def test_on_fault_without_the_monitor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.UsageError, match="on_fault needs the monitor"):
        train(tmp_path / "run", on_fault="stop", monitor=False)


def test_a_schedule_by_epochs_is_not_stopped_in_its_first_epoch(tmp_path: Path) -> None:
    """Nothing has moved yet, and nothing had to: the warmup takes an epoch."""
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [2])
    config = {"lr_max": 0.1, "warmup_steps": 160, "total_steps": 800, "schedule": "cosine"}
    with steadyrun.record(tmp_path / "run", config) as run:
        run.watch(model, optimizer, scheduler=scheduler, on_fault="stop")
        for step in range(800):
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
            if step % 80 == 79:
                scheduler.step()
    assert told(tmp_path / "run") == []


def test_a_callback_can_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.FaultFound):
        train(tmp_path / "run", on_fault=lambda fault: "stop" if fault.code == "C2.1" else None)
    train(tmp_path / "other", on_fault=lambda fault: "stop" if fault.code == "C9.9" else None)


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

    announced: list[steadyrun.Found] = []
    train(tmp_path / "run", warmup=True, on_step=destroy, on_fault=announced.append)
    assert [(fault.code, fault.step, fault.noticed) for fault in announced] == [("D1.3", 235, 235)]
    agrees(tmp_path / "run")


@pytest.fixture
def without_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a millisecond leave no time to look: here it may take what it needs."""
    monkeypatch.setattr("steadyrun.monitor.monitor.SHARE", 1.0)


def exploding(step: int, model: nn.Module) -> None:
    """From step 150 on every update is thrown far off."""
    if step >= 150:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 5)


@pytest.mark.usefixtures("without_budget")
def test_what_may_pass_is_a_warning_until_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announced: list[steadyrun.Found] = []
    root = tmp_path / "run"
    train(root, warmup=True, steps=1500, on_step=exploding, on_fault=announced.append)
    warned = [fault for fault in announced if not fault.certain]
    assert warned
    assert {fault.code for fault in warned} == set(told(root, "warning"))
    assert all(QUESTIONS[fault.code].outcome(fault.outcome).may_pass for fault in warned)
    assert "a fault if it stays so" in capsys.readouterr().err
    agrees(root)


@pytest.mark.usefixtures("without_budget")
def test_what_may_pass_stops_the_run_only_when_it_has_stood(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.FaultFound) as stopped:
        train(tmp_path / "run", warmup=True, steps=1500, on_step=exploding, on_fault="stop")
    assert stopped.value.found.noticed >= 150 + 200
    agrees(tmp_path / "run")


def test_watching_again_tells_nothing_twice(tmp_path: Path) -> None:
    codes: list[str] = []
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path / "run", {**CONFIG, "total_steps": 200}) as run:
        for _ in range(2):
            run.watch(model, optimizer, on_fault=lambda fault: codes.append(fault.code))
            for _ in range(100):
                loss = model(torch.randn(8, 4)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step(loss)
    assert codes.count("C2.1") == 1
    assert len(codes) == len(set(codes))


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


def classify(root: Path, config: dict[str, Any], scheduled: Callable[[torch.optim.Optimizer], Any]) -> None:
    """A run of 600 steps; `scheduled` returns a scheduler to watch or None, and what to do after each step."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler, after = scheduled(optimizer)
    with steadyrun.record(root, {"lr_max": 0.1, "total_steps": 600, "num_classes": 3, **config}) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(600):
            x = torch.randn(8, 4)
            loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss)
            after(step)


def slow_warmup(optimizer: torch.optim.Optimizer) -> Any:
    """Set by hand, four times as long as declared: at first the scheduler seems to be stepped too seldom."""
    plan = SchedulePlan("cosine", 0.1, 0.01, 200, 600)

    def after(step: int) -> None:
        optimizer.param_groups[0]["lr"] = float(plan.rate(np.array([step + 1.0]))[0])

    after(-1)
    return None, after


def zero_in_the_first_epoch(optimizer: torch.optim.Optimizer) -> Any:
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, epoch / 5))
    return scheduler, lambda step: scheduler.step() if step % 60 == 59 else None


@pytest.mark.usefixtures("without_budget")
@pytest.mark.parametrize(
    ("scheduled", "config"),
    [
        (slow_warmup, {"lr_min": 0.01, "warmup_steps": 50, "schedule": "cosine"}),
        (zero_in_the_first_epoch, {"warmup_steps": 300, "schedule": "constant"}),
    ],
)
def test_what_half_a_curve_seems_to_be_is_not_announced(scheduled: Any, config: Any, tmp_path: Path) -> None:
    root = tmp_path / "run"
    classify(root, config, scheduled)
    agrees(root)
    assert "C2.1" not in told(root)


def announced(root: Path, *extra: tuple[str, dict[str, Any]]) -> steadyrun.Report:
    """The report of a run in whose event log the monitor has told of more."""
    log = EventLog(events_file(root, 0))
    for kind, fields in extra:
        log.write(kind, 3, 1.0, fields)
    return steadyrun.check(root)


def forms(report: steadyrun.Report) -> list[str]:
    return [str(report), markdown(report), report._repr_html_(), json.dumps(report.to_dict(), default=str)]


def test_the_headline_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [Sighting(code, "bad", FAULT, 3, f"{code} is bad.", "", may_pass=False) for code in ("D1.3", "R3.1")]
    monkeypatch.setattr(Looker, "look", lambda _: Look(tuple(seen), FAULT, "D1.3", "R3.1"))
    lines: list[str] = []
    with closing(RunWriter(tmp_path / "run")) as writer:
        Monitor(writer, None, turn=0, say=lines.append, problem=lambda *_: None).finish(9)
    assert lines[0].startswith("fault R3.1 bad (also D1.3): R3.1 is bad.")
    assert steadyrun.open_run(tmp_path / "run").events("verdict")[0].fields["faults"] == ["D1.3", "R3.1"]


def test_what_is_announced_is_in_the_report_without_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two faults, of which the walk meets one: it ends there, and the line has told of both."""
    root = tmp_path / "run"
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    config = {"lr_max": 0.01, "warmup_steps": 30, "total_steps": 120, "schedule": "constant", "num_classes": 3}
    with steadyrun.record(root, {**config, "accumulation": 4}) as run:
        run.watch(model, optimizer)
        for _ in range(120):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(4):
                x = torch.randn(8, 4)
                loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
                loss.backward()
                total += float(loss.detach()) / 4
            optimizer.step()
            run.step(total)
    line = next(line for line in capsys.readouterr().err.splitlines() if "fault" in line)
    assert {"C2.1", "C6.3"} <= set(told(root))
    assert "C2.1" in line
    assert "C6.3" in line
    report = steadyrun.check(root)
    assert "C6.3" not in {asked.question.code for asked in report.walk.path}, "the walk ends at C2.1"
    for form in forms(report):
        assert "C6.3" in form
        assert "a mean gives 1x" in form
    entries = {entry["code"]: entry for entry in report.to_dict()["announced"]}
    assert set(entries) == set(told(root))
    assert entries["C6.3"]["still_a_fault"] is entries["C2.1"]["still_a_fault"] is True
    assert entries["C6.3"]["now"]["fix"]


def test_what_passed_is_listed_with_what_it_is_now(tmp_path: Path) -> None:
    root = tmp_path / "run"
    train(root, warmup=True, steps=120)
    told_of = {"code": "C1.1", "outcome": "high", "message": "the loss was <b>1e9</b>.", "noticed": 50}
    strange = [("fault", {"code": "Z9.9", "message": 7}), ("fault", {"code": ["x"]}), ("fault", {"noticed": "x"})]
    report = announced(root, ("warning", told_of), *strange)
    assert report.verdict == "healthy"
    for form in forms(report):
        assert "Z9.9" in form
    [line] = [line for line in str(report).splitlines() if "C1.1" in line and "announced at step 50" in line]
    assert "no longer a fault. Now: The loss" in line
    assert "<b>" not in report._repr_html_()
    known = {entry["code"]: entry for entry in report.to_dict()["announced"]}
    assert known["C1.1"]["now"]["answer"] == "pass"
    assert known["C1.1"]["now"]["measured"]["loss"] > 0
    assert known["Z9.9"]["now"] is None
