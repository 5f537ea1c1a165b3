"""Nested containers: every leaf with its path, and the same structure with other leaves."""

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from steadyrun.program.containers import DEEPEST, leaves, named_leaves, rebuilt

Pair = namedtuple("Pair", "left right")
values = st.one_of(st.integers(), st.text(max_size=3), st.none())
nested = st.recursive(
    values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@dataclass
class Batch:
    tokens: Any
    labels: Any


def plain(container: Any) -> list[Any]:
    """The slow, obvious twin."""
    if isinstance(container, dict):
        return [leaf for part in container.values() for leaf in plain(part)]
    if isinstance(container, list | tuple):
        return [leaf for part in container for leaf in plain(part)]
    return [container]


@given(nested)
def test_every_leaf_in_order(container: Any) -> None:
    assert list(leaves(container, 100)) == plain(container)
    assert [leaf for _, leaf in named_leaves(container, 100)] == plain(container)


@given(nested)
def test_a_path_leads_to_its_leaf(container: Any) -> None:
    for path, leaf in named_leaves(container, 100):
        assert eval(f"container{path}", {"container": container}) is leaf


@given(nested)
def test_rebuilt_is_the_same_structure_with_other_leaves(container: Any) -> None:
    before = repr(container)
    again = rebuilt(container, lambda leaf: (leaf,) and f"<{leaf}>", 100)
    assert list(leaves(again, 100)) == [f"<{leaf}>" for leaf in plain(container)]
    assert repr(container) == before
    assert rebuilt(container, lambda leaf: leaf, 100) == container


def test_the_kinds_of_containers() -> None:
    batch = {"a": Batch([1, 2], Pair(3, "text")), "b": OrderedDict(c=4)}
    assert dict(named_leaves(batch)) == {
        "['a'].tokens[0]": 1,
        "['a'].tokens[1]": 2,
        "['a'].labels[0]": 3,
        "['a'].labels[1]": "text",
        "['b']['c']": 4,
    }
    again = rebuilt(batch, lambda leaf: leaf * 2)
    assert again == {"a": Batch([2, 4], Pair(6, "texttext")), "b": OrderedDict(c=8)}
    assert type(again["b"]) is OrderedDict
    assert batch["a"] == Batch([1, 2], Pair(3, "text"))


def test_mappings_of_other_kinds() -> None:
    assert rebuilt(UserDict(a=1), lambda leaf: leaf + 1) == UserDict(a=2)
    assert rebuilt(MappingProxyType({"a": 1}), lambda leaf: leaf + 1) == {"a": 2}  # one that cannot be written to


def test_what_is_too_deep_is_left_alone() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert list(leaves(endless)) == []
    assert rebuilt(endless, str, DEEPEST)[0][0] is not endless
