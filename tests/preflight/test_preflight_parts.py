"""The parts that probes are made of, against slow and obvious twins."""

from __future__ import annotations

import copy
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from steadyrun import Task
from steadyrun.preflight.input_edits import changed, moved, tensors_in
from steadyrun.preflight.p5_4_modes import _first_call
from steadyrun.probes.gradient_reach import hidden_tensors
from steadyrun.probes.targets import padding
from steadyrun.program.attributes import same
from steadyrun.program.program_state import ProgramState
from steadyrun.program.reachable_objects import reached

Pair = namedtuple("Pair", "one two")


@dataclass(frozen=True)
class Held:
    x: Any
    name: str = "a"


def containers(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(leaf, max_size=3),
        st.tuples(leaf, leaf),
        st.dictionaries(st.text(max_size=2), leaf, max_size=3),
        st.builds(Pair, leaf, leaf),
        st.builds(Held, leaf),
    )


leaves = st.one_of(st.builds(lambda n: torch.full((2,), float(n)), st.integers(-3, 3)), st.integers(), st.none())


@given(st.recursive(leaves, containers, max_leaves=8))
@settings(max_examples=60)
def test_every_tensor_is_exchanged_and_nothing_else(batch: Any) -> None:
    before = [tensor.clone() for tensor in tensors_in(batch)]
    exchanged = changed(batch, lambda tensor: tensor + 1)
    assert all(torch.equal(original, tensor) for original, tensor in zip(before, tensors_in(batch), strict=True))
    assert all(
        torch.equal(original + 1, tensor) for original, tensor in zip(before, tensors_in(exchanged), strict=True)
    )
    assert type(exchanged) is type(batch)
    assert repr(changed(exchanged, lambda tensor: tensor - 1)) == repr(batch)


def slow_padding(row: list[int], pad: int, ends_text: bool, begins: bool) -> tuple[list[bool], list[bool]]:
    """Runs at the two ends, element by element."""
    leading, trailing = 0, 0
    while leading < len(row) and row[leading] == pad:
        leading += 1
    while trailing < len(row) and row[-1 - trailing] == pad:
        trailing += 1
    leading -= begins + ends_text
    trailing -= ends_text
    width = len(row)
    return [index < leading for index in range(width)], [index >= width - trailing for index in range(width)]


@given(st.integers(1, 4), st.integers(2, 6), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_padding_is_what_lies_at_the_ends(rows: int, width: int, ends_text: bool, draw: Any) -> None:
    texts = [[draw.choice((0, 0, 1, 2)) for _ in range(width)] for _ in range(rows)]
    mask = padding(torch.tensor(texts), 0, ends_text=ends_text)
    everywhere = all(row[0] == 0 for row in texts)
    for row, marks in zip(texts, mask.tolist(), strict=True):
        leading, trailing = slow_padding(row, 0, ends_text, everywhere)
        expected = [a or b for a, b in zip(leading, trailing, strict=True)]
        assert marks == ([False] * width if not any(row) else expected)


def test_movement_is_robust_against_what_is_not_finite() -> None:
    one = torch.tensor([1.0, float("nan"), float("inf"), float("nan"), float("inf")])
    two = torch.tensor([1.5, float("nan"), float("inf"), 0.0, -float("inf")])
    assert moved(one, two).tolist() == [0.5, 0.0, 0.0, float("inf"), float("inf")]


def test_hidden_tensors_are_found_with_their_paths() -> None:
    model = nn.Module()
    model.layers = [nn.Linear(2, 2), {"a": nn.Linear(2, 2)}]
    model.seen = nn.Linear(2, 2)
    model.again = [model.seen]
    assert {path for path, _ in hidden_tensors(model).values()} == {
        "layers[0].weight", "layers[0].bias", "layers[1]['a'].weight", "layers[1]['a'].bias",
    }  # fmt: skip


def test_objects_in_closures_are_reached() -> None:
    model, critic = nn.Linear(2, 2), nn.Linear(2, 2)
    other = torch.optim.SGD(critic.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(other, 1)
    draw = torch.Generator()

    def step(_task: Task, _batch: Any) -> Any:
        return critic, other, schedule, draw

    objects = reached(Task(model, torch.optim.SGD(model.parameters(), 0.1), lambda *_: None, train_step=step))
    assert (objects.modules, objects.optimizers, objects.stateful, objects.generators) == (
        [critic],
        [other],
        [schedule],
        [draw],
    )


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.LBFGS]
)
def test_an_optimizer_is_put_back_after_steps_and_loading(kind: Any) -> None:
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), 0.1)
    task = Task(model, optimizer, lambda *_: None)

    def step() -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(torch.ones(1, 3)).sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    step()
    before = copy.deepcopy((optimizer.state_dict(), model.state_dict()))
    groups, state = optimizer.param_groups, optimizer.state
    saved = ProgramState(task)
    step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step()
    saved.put_back()
    assert optimizer.param_groups is groups
    assert optimizer.state is state
    for name, tensor in before[1].items():
        assert same(model.state_dict()[name], tensor)
    assert repr(optimizer.state_dict()) == repr(before[0])


def test_the_line_that_calls_dropout_is_read() -> None:
    call = _first_call("dropout(self.one(x), p=0.3,\n   training=self.training) + dropout(y)")
    assert call is not None
    assert [keyword.arg for keyword in call.keywords] == ["p", "training"]
    assert _first_call("dropout = 3") is None
