"""What the program lets go of is gone: steadyrun keeps no step, batch, model or optimizer alive."""

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from steadyrun.integrations.trainer import trainer_of
from steadyrun.program.frames import variable, variables

Refs = dict[str, "weakref.ref[Any]"]


class CrashError(Exception):
    """Raised by a training step."""


def _loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def _closed_over(model: nn.Module) -> Callable[[nn.Module, list[Tensor]], Tensor]:
    return lambda _model, batch: _loss(model, batch)


def _alive(refs: Refs) -> list[str]:
    gc.collect()
    return [name for name, reference in refs.items() if reference() is not None]


def _program() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.Linear(16, 3))
    data = TensorDataset(torch.randn(48, 6), torch.randint(0, 3, (48,)))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3), DataLoader(data, batch_size=4, shuffle=True)


_WATCHES: dict[str, dict[str, Any] | None] = {
    "nothing watched": None,
    "plain": {"monitor": False},
    "monitored": {"monitor": True},
    "captured": {"loss_fn": _loss, "capture": {"every": 4}},
    "captured with a closure over the model": {},
    "tried before": {"loss_fn": _loss, "preflight": True},
}


@pytest.mark.parametrize("kind", list(_WATCHES))
def test_nothing_survives_that_the_program_has_let_go_of(tmp_path: Path, kind: str) -> None:
    """All in one function, which still runs: up to Python 3.12 its frame would keep a snapshot of its variables."""
    model, optimizer, loader = _program()
    run = steadyrun.record(tmp_path / "run", flush_steps=5)
    options = _WATCHES[kind]
    if options is not None:
        if "closure" in kind:
            options = {"loss_fn": _closed_over(model)}
        run.watch(model, optimizer, loader=loader, **options)
    del options
    steps: Refs = {}
    for number, batch in enumerate(loader):
        logits = model(batch[0])
        loss = nn.functional.cross_entropy(logits, batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        temporary = torch.zeros(1_000)
        run.step(loss, batch=batch)
        tensors = {"logits": logits, "loss": loss, "batch": batch[0], "temporary": temporary}
        steps |= {f"{name} of step {number}": weakref.ref(tensor) for name, tensor in tensors.items()}
    run.val(0.5, batches=loader)
    del logits, loss, batch, temporary, tensors
    assert _alive(steps) == []
    mine: Refs = {"model": weakref.ref(model), "optimizer": weakref.ref(optimizer), "loader": weakref.ref(loader)}
    run.close()
    del model, optimizer, loader
    assert _alive(mine) == [], "a closed run that is still referred to holds nothing"
    mine = {"run": weakref.ref(run)}
    del run
    assert _alive(mine) == []


def test_a_caught_crash_keeps_nothing(tmp_path: Path) -> None:
    model, optimizer, loader = _program()
    batches: Refs = {}
    run = steadyrun.record(tmp_path / "run")
    run.watch(model, optimizer, loss_fn=_loss)
    try:
        for number, batch in enumerate(loader):
            batches[str(number)] = weakref.ref(batch[0])
            loss = _loss(model, batch)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batch)
            if number == 5:
                raise CrashError
    except CrashError as failure:
        run.close(failure)
    del batch, loss
    mine: Refs = {"model": weakref.ref(model), "optimizer": weakref.ref(optimizer)}
    del model, optimizer
    assert _alive(batches | mine) == []


def test_a_closed_run_replays_while_its_objects_are_there(tmp_path: Path) -> None:
    model, optimizer, loader = _program()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, loss_fn=_loss, monitor=False)
        for batch in loader:
            loss = _loss(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("to look at it")
    replayed = run.replay()
    assert replayed is not None
    assert replayed.proof.holds
    del model, replayed
    gc.collect()
    with pytest.raises(steadyrun.UsageError, match=r"no longer exist.*steadyrun\.replay\(run\.path"):
        run.replay()


def test_a_run_without_incidents_has_nothing_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer, loader = _program()
    with steadyrun.record(tmp_path / "run") as run:
        with pytest.raises(steadyrun.UsageError, match=r"given to run\.watch"):
            run.replay()
        run.watch(model, optimizer, loss_fn=_loss, monitor=False)
        batch = next(iter(loader))
        loss = _loss(model, batch)
        loss.backward()
        optimizer.step()
        run.step(loss, batch=batch)
        assert run.replay() is None
        assert "has no incident to replay yet" in capsys.readouterr().err
        with pytest.raises(steadyrun.UsageError, match="no incident"):
            run.replay(step=3)


# -- reading the variables of a frame ----------------------------------------------------------------


def _names_above() -> set[str]:
    return set(variables(sys._getframe(1)))


def test_all_kinds_of_variables_are_read() -> None:
    free = 1

    def function(argument: int, *, option: int = 2) -> set[str]:
        cell = argument + option + free
        assert (lambda: cell)() == 4
        return _names_above()

    assert {"argument", "option", "cell", "free"} <= function(1)
    assert variable(sys._getframe(), "free") == 1
    assert variable(sys._getframe(), "unknown") is None


def test_the_namespace_of_a_module_or_a_class_is_left_alone() -> None:
    space: dict[str, Any] = {"look": _names_above}
    exec("kept = 1\nseen = look()\nclass Held:\n    inner = 2\n    seen = look()\n", space)
    assert "kept" in space["seen"]
    assert (space["kept"], space["Held"].inner) == (1, 2)
    assert "inner" in space["Held"].seen


def test_what_locals_returned_stays_as_it_was() -> None:
    def function(rate: float) -> tuple[dict[str, Any], set[str]]:
        settings = locals()
        later = torch.zeros(3)
        names = _names_above()
        assert later.numel() == 3
        return settings, names

    settings, names = function(0.1)
    assert settings == {"rate": 0.1}
    assert names == set() if sys.version_info < (3, 13) else {"later", "rate"} <= names


def test_what_another_holds_is_not_emptied() -> None:
    """A debugger, or a tool that looked at the frame before us and kept what it got."""
    first = 1
    kept = sys._getframe().f_locals
    assert "first" in _names_above()
    assert kept["first"] == first == 1


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="exec has no memory there")
def test_what_exec_stored_in_a_function_stays() -> None:
    def function() -> Any:
        exec("stored = 5")
        _names_above()
        return eval("stored")

    assert function() == 5


def test_a_traced_function_keeps_its_variables() -> None:
    """A debugger writes the snapshot back when its trace function returns: what is missing there would be unset."""
    names: list[set[str]] = []

    def trace(frame: Any, event: str, _arg: Any) -> Any:
        if frame.f_code is function.__code__ and event == "return":
            names.append(set(variables(frame)))
        return trace

    def function() -> int:
        number = 41
        number += 1
        return number

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        assert function() == 42
    finally:
        sys.settrace(earlier)
    assert names == [{"number"}]


def test_the_trainer_that_calls_is_found() -> None:
    class Trainer:
        def __init__(self, callback: object) -> None:
            self.callback_handler = SimpleNamespace(callbacks=[callback])

        def train(self, callback: object) -> Any:
            tensor = torch.zeros(3)
            references.append(weakref.ref(tensor))
            trainer = trainer_of(callback)
            del tensor
            gc.collect()
            assert references[0]() is None
            return trainer

    references: list[weakref.ref[Any]] = []
    callback = object()
    trainer = Trainer(callback)
    assert trainer.train(callback) is trainer


def test_large_outputs_are_free_before_backward(tmp_path: Path) -> None:
    """Logits in half precision may be freed once they are copied to full precision: sampled steps hold no others."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2**11))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, monitor=False)
        for step in range(3):  # all of them are sampled
            output = model(torch.randn(2**10, 4))
            held = weakref.ref(output)
            loss = output.double().square().mean()
            del output
            assert held() is None, step
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
