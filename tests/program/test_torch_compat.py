"""A wrapped function is put back as it was found; another tool's wrapper is never dropped and nothing is stacked."""

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.integrations.trainer import TrainerView
from steadyrun.probes import backward_hook, clip_hook
from steadyrun.probes.clip_hook import ClipCall
from steadyrun.program.torch_compat import wrap, wrapped

_POINTS: list[tuple[Any, str]] = [
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (torch.nn.utils.clip_grad, "_get_total_norm"),
    (torch.nn.utils.clip_grad, "_clip_grads_with_norm_"),
    (torch.autocast, "__enter__"),
    (torch.amp.GradScaler, "_unscale_grads_"),
]


@pytest.fixture(autouse=True)
def _torch_stays_as_it_is() -> Iterator[None]:
    found = [vars(owner)[name] for owner, name in _POINTS]
    yield
    for (owner, name), original in zip(_POINTS, found, strict=True):
        setattr(owner, name, original)


class Tool:
    """Another tool that wraps a function, in one of the ways in which tools keep the original."""

    def __init__(self, owner: Any, name: str, kind: str = "closure") -> None:
        self.owner, self.name, self.calls = owner, name, 0
        self.original = getattr(owner, name)
        self.mine = getattr(self, f"_{kind}")(self.original)
        setattr(owner, name, self.mine)

    def unwrap(self) -> None:
        setattr(self.owner, self.name, self.original)

    def _closure(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def theirs(*args: Any, **options: Any) -> Any:
            self.calls += 1
            return original(*args, **options)

        return theirs

    def _wraps(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(original)(self._closure(original))

    def _partial(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(self._closure(original))

    def _kept_in_a_dict(self, original: Callable[..., Any]) -> Callable[..., Any]:
        held = {"it": original}
        return self._closure(lambda *args, **options: held["it"](*args, **options))

    def _module_global(self, original: Callable[..., Any]) -> Callable[..., Any]:
        space: dict[str, Any] = {"_original": original}
        exec("def theirs(*args, **options): return _original(*args, **options)", space)
        found: Callable[..., Any] = space["theirs"]
        return found


class Library:
    """A module of another library, with one function."""

    def __init__(self) -> None:
        self.work = self._work

    def _work(self) -> int:
        """How many frames lie between the caller and this function."""
        frame, depth = sys._getframe(1), 0
        while frame is not None and frame.f_code is not _depth.__code__:
            frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
        return depth


def _depth(library: Library) -> int:
    return library.work()


def _counting(counts: list[str], name: str) -> Callable[..., Any]:
    def around(call: Any, *args: Any, **options: Any) -> Any:
        counts.append(name)
        return call(*args, **options)

    return around


def test_on_top_what_was_found_is_put_back() -> None:
    library, seen = Library(), list[str]()
    original = library.work
    with wrapped(library, "work", _counting(seen, "a")), wrapped(library, "work", _counting(seen, "b")):
        library.work()
    assert library.work is original
    assert seen == ["a", "b"]
    library.work()
    assert seen == ["a", "b"]


def test_what_a_class_inherits_is_inherited_again() -> None:
    class Base:
        def work(self) -> str:
            return "base"

    class Derived(Base):
        pass

    with wrapped(Derived, "work", lambda call, self: call(self) + " seen"):
        assert (Derived().work(), Base().work()) == ("base seen", "base")
    assert "work" not in vars(Derived)
    assert Derived().work() == "base"


@pytest.mark.parametrize("kind", ["closure", "wraps", "partial", "kept_in_a_dict", "module_global"])
def test_under_another_tools_wrapper_it_passes_on_and_is_used_again(kind: str) -> None:
    library, seen = Library(), list[str]()
    first = wrap(library, "work", _counting(seen, "first"))
    tool = Tool(library, "work", kind)
    first.remove()
    assert library.work is tool.mine, "theirs is not dropped"
    depth = _depth(library)
    assert seen == []
    for _ in range(50):
        with wrapped(library, "work", _counting(seen, "again")):
            assert library.work is tool.mine, "not stacked on top of theirs"
            library.work()
    assert seen == ["again"] * 50
    assert _depth(library) == depth


def test_another_tool_may_leave_in_any_order() -> None:
    library, seen = Library(), list[str]()
    original = library.work
    below = Tool(library, "work")
    ours = wrap(library, "work", _counting(seen, "ours"))
    above = Tool(library, "work")
    ours.remove()
    above.unwrap()  # our wrapper is on top again, and passes on
    library.work()
    assert (below.calls, seen) == (1, [])
    with wrapped(library, "work", _counting(seen, "ours")):
        library.work()
    assert seen == ["ours"]
    assert library.work is below.mine
    below.unwrap()
    assert library.work == original


def test_a_wrapper_that_another_tool_has_dropped_is_put_there_again() -> None:
    library, seen = Library(), list[str]()
    below = Tool(library, "work")
    ours = wrap(library, "work", _counting(seen, "dropped"))
    below.unwrap()  # what it found, whatever stands there now
    ours.remove()
    assert library.work == library._work
    with wrapped(library, "work", _counting(seen, "ours")):
        library.work()
    assert seen == ["ours"]
    assert library.work == library._work


def test_another_tool_that_comes_with_every_use_is_all_that_grows() -> None:
    library, seen = Library(), list[str]()
    depths = []
    for _ in range(50):
        with wrapped(library, "work", _counting(seen, "ours")):
            Tool(library, "work")
            library.work()
        depths.append(_depth(library))
    assert len(seen) == 50
    assert {later - earlier for earlier, later in itertools.pairwise(depths)} == {1}, "theirs alone"


# -- the patch points --------------------------------------------------------------------------------


def _train(run: steadyrun.Run, steps: int = 3) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.watch(model, optimizer, loss_fn=lambda m, b: m(b).square().mean(), monitor=False)
    for _ in range(steps):
        batch = torch.randn(3, 4)
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss, batch=batch)


_OF_A_RUN = [point for point in _POINTS if point[1] in {"backward", "_get_total_norm", "_clip_grads_with_norm_"}]


def test_several_runs_while_another_tool_has_wrapped_what_a_run_wraps(tmp_path: Path) -> None:
    tools: list[Tool] = []
    found = [vars(owner)[name] for owner, name in _OF_A_RUN]
    for number in range(6):
        with steadyrun.record(tmp_path / str(number)) as run:
            if number == 1:
                tools = [Tool(owner, name) for owner, name in _OF_A_RUN]
            _train(run)
            if number == 0:
                tools = [Tool(owner, name) for owner, name in _OF_A_RUN]
        if number == 0:
            for tool in tools:
                tool.unwrap()
        view = steadyrun.open_run(tmp_path / str(number))
        assert {"grad_norm", "clip_threshold"} <= set(view.names()), f"run {number}"
        assert not view.events("probe-failed")
    assert [vars(owner)[name] for owner, name in _OF_A_RUN] == [tool.mine for tool in tools]
    assert [tool.calls for tool in tools] == [5 * 3] * 3
    for tool in tools:
        tool.unwrap()
    with steadyrun.record(tmp_path / "last") as run:
        _train(run)
    assert [vars(owner)[name] for owner, name in _OF_A_RUN] == found


def test_observers_may_come_and_go_in_any_order() -> None:
    seen: list[str] = []

    def outer(_root: Any) -> None:
        seen.append("outer")

    def inner(_root: Any) -> None:
        seen.append("inner")

    original = torch.autograd.backward
    backward_hook.observe(outer)
    backward_hook.observe(inner)
    torch.ones((), requires_grad=True).backward()
    backward_hook.forget(outer)
    torch.ones((), requires_grad=True).backward()
    backward_hook.forget(inner)
    torch.ones((), requires_grad=True).backward()
    assert seen == ["outer", "inner", "inner"]
    assert torch.autograd.backward is original


def test_other_wrappers_of_clipping_are_not_dropped() -> None:
    calls: list[ClipCall] = []
    clip_hook.observe(calls.append)
    tools = [Tool(torch.nn.utils.clip_grad, name) for name in ("_get_total_norm", "_clip_grads_with_norm_")]
    clip_hook.forget(calls.append)
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    torch.nn.utils.clip_grad_norm_([weight], 0.5)
    assert [tool.calls for tool in tools] == [1, 1]
    assert calls == []
    clip_hook.observe(calls.append)
    torch.nn.utils.clip_grad_norm_([weight], 0.25, norm_type=1.0)
    clip_hook.forget(calls.append)
    assert [tool.calls for tool in tools] == [2, 2]
    assert [(call.max_norm, call.norm_type) for call in calls] == [(0.25, 1.0)]


def test_wrappers_that_come_during_preflight_stay() -> None:
    tools: list[Tool] = []

    def loss_fn(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if not tools:
            tools.extend(Tool(owner, name) for owner, name in _POINTS)
        with torch.autocast("cpu", torch.bfloat16):
            return model(batch).float().square().mean()

    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(8, 4) for _ in range(3)]
    steadyrun.preflight(model, optimizer, loss_fn, batches, config={"dtype": "bf16"})
    assert [vars(tool.owner)[tool.name] for tool in tools] == [tool.mine for tool in tools]
    before = tools[0].calls
    loss_fn(model, batches[0]).backward()
    assert tools[0].calls == before + 1


def test_the_methods_of_a_trainer() -> None:
    class Trainer:
        args = SimpleNamespace(gradient_accumulation_steps=1)

        def train(self) -> None: ...

        def training_step(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            return torch.tensor(2.0)

    trainer = Trainer()
    view = TrainerView(lambda failure: None)
    for _ in range(3):
        view.attach(trainer, None)
        trainer.training_step(None, {"x": torch.ones(1)})
        assert float(view.take_step()[0]) == 2.0
        view.detach()
        assert "training_step" not in vars(trainer)
    view.attach(trainer, None)
    tool = Tool(trainer, "training_step")
    view.detach()
    assert trainer.training_step is tool.mine
    for _ in range(3):
        view.attach(trainer, None)
        trainer.training_step(None, {"x": torch.ones(1)})
        assert float(view.take_step()[0]) == 2.0, "seen once, not twice"
        view.detach()
        assert trainer.training_step is tool.mine
