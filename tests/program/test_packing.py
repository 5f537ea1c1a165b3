"""Structures and files: what goes in comes out, what is damaged is said, and nothing is ever unpickled."""

import ast
import hashlib
import json
from collections import UserDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

import steadyrun
from steadyrun.program import random_state, tensor_files
from steadyrun.program.packing import Room, pack, unpack
from steadyrun.program.random_state import from_tensors, put, share, take, to_tensors

Pair = namedtuple("Pair", ["x", "y"])


def round_trip(tree: object) -> object:
    packed = pack(tree)
    return unpack(json.loads(json.dumps(packed.tree)), packed.tensors)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(), st.text(max_size=5))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(0, 9)), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(TREES)
@settings(max_examples=200)
def test_plain_structures_come_back(tree: object) -> None:
    assert repr(round_trip(tree)) == repr(tree)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
    ],
)
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = torch.randn(3, 4).to(dtype) if dtype.is_floating_point or dtype.is_complex else torch.ones(3, 4).to(dtype)
    back = round_trip({"a": [tensor, tensor.t()]})
    assert torch.equal(back["a"][0], tensor)  # type: ignore[index]
    assert torch.equal(back["a"][1], tensor.t())  # type: ignore[index]


@pytest.mark.parametrize("first", [0, 1, 3, 4])
def test_tensors_lie_in_memory_as_they_did(first: int) -> None:
    room = torch.arange(200.0)
    for tensor in (room[first : first + 12].view(3, 4), room[first : first + 24].view(2, 4, 3).permute(0, 2, 1)):
        (back,) = round_trip([tensor])  # type: ignore[misc]
        assert torch.equal(back, tensor)
        assert back.stride() == tensor.stride()
        assert back.data_ptr() % 64 == tensor.data_ptr() % 64


def test_a_view_with_gaps_comes_back_whole() -> None:
    room = torch.arange(100.0)
    for tensor in (room[1:90:3], room.view(10, 10)[:, 3:5], room[:3].expand(4, 3), room[:0]):
        assert torch.equal(round_trip([tensor])[0], tensor)  # type: ignore[index]


@pytest.mark.parametrize("layout", [[0, [1000, 1]], [0, [-1, 1]], [0], ["a", [4, 1]], [0, [4]], 7])
def test_a_damaged_layout_is_said(layout: object) -> None:
    packed = pack(torch.ones(3, 4)[:, 1:].clone().t())
    with pytest.raises(ValueError, match="damaged"):
        unpack({**packed.tree, "layout": layout}, packed.tensors)


def test_other_containers() -> None:
    @dataclass
    class Batch:
        ids: Tensor
        lengths: np.ndarray

    back = round_trip(Pair(UserDict({"x": torch.ones(2)}), Batch(torch.zeros(1), np.arange(3))))
    assert back.x.x.tolist() == [1, 1]  # type: ignore[attr-defined]
    assert back.x["x"].tolist() == [1, 1]  # type: ignore[attr-defined]
    assert back.y.ids.tolist() == [0]  # type: ignore[attr-defined]
    assert back.y.lengths.tolist() == [0, 1, 2]  # type: ignore[attr-defined]


def test_what_cannot_be_kept_is_named() -> None:
    packed = pack({"image": object(), "x": torch.ones(1), "sparse": torch.ones(2, 2).to_sparse()})
    assert packed.lost == ["image (object)", "sparse (Tensor)"]


def test_a_copy_is_the_users_no_more() -> None:
    tensor = torch.zeros(3)
    packed = pack([tensor])
    tensor += 1
    assert unpack(packed.tree, packed.tensors)[0].tolist() == [0, 0, 0]


def test_random_states_come_back() -> None:
    import random

    states = []
    expected = []
    for _ in range(3):
        states.append(take(states[-1] if states else None))
        expected.append((torch.randn(2).tolist(), random.gauss(0, 1), float(np.random.standard_normal())))
    back = from_tensors(to_tensors(states))
    for state, numbers in zip(back, expected, strict=True):
        put(state)
        assert (torch.randn(2).tolist(), random.gauss(0, 1), float(np.random.standard_normal())) == numbers


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tensor_files.save(tmp_path / "thing", {"a": torch.arange(1000)}, {"note": "x"})
    return tmp_path / "thing"


KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
KINDS += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64]


def test_safetensors_reads_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "_PIECE", 64)
    values = torch.arange(30, dtype=torch.float32)
    tensors = {f"of {kind}": values.to(kind, copy=True).view(5, 6) for kind in KINDS}
    tensors |= {"bool": values > 3, "scalar": torch.tensor(2.5), "none": torch.empty(0, 3), "büffer/…": values}
    tensors |= {"turned": values.view(5, 6).T, "every other": values[::2]}
    written, digest = tensor_files.write_tensors(tmp_path / "ours", tensors)
    back = load_file(tmp_path / "ours")
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert (back[name].dtype, back[name].shape) == (tensor.dtype, tensor.shape)
        assert back[name].tolist() == tensor.tolist()
    assert (tmp_path / "ours").stat().st_size == written
    assert tensor_files.checksum(tmp_path / "ours") == digest


def test_files_come_back(saved: Path) -> None:
    content, tensors = tensor_files.load(saved)
    assert content["note"] == "x"
    assert tensors["a"].tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut off or changed"),
        (lambda path: path.write_bytes(b""), "cut off or changed"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x01"), "its checksum differs"),
        (lambda path: path.unlink(), "is missing"),
    ],
    ids=["truncated", "emptied", "changed", "removed"],
)
def test_damaged_tensors_are_refused(saved: Path, damage, words: str) -> None:
    damage(saved.with_suffix(".safetensors"))
    with pytest.raises(steadyrun.RunDirectoryError, match=words):
        tensor_files.load(saved)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "no schema number"),
        ('{"schema": 99}', "newer than this version"),
        ('{"schema": 1}', "names no file of tensors"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_damaged_descriptions_are_refused(saved: Path, text: str, words: str) -> None:
    saved.with_suffix(".json").write_text(text)
    with pytest.raises(steadyrun.RunDirectoryError, match=words):
        tensor_files.load(saved)


@given(
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner), max_leaves=8
    )
)
@settings(max_examples=300)
def test_any_structure_is_rebuilt_or_refused(tree: object) -> None:
    """Whatever is in the file: an answer or a clear error, never another exception."""
    with suppress(steadyrun.RunDirectoryError):
        unpack(json.loads(json.dumps(tree)), {"a": torch.ones(1)})


def test_a_pickle_in_disguise_is_refused(saved: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "owned",))  # type: ignore[return-value]

    target = saved.with_suffix(".safetensors")
    torch.save({"a": Evil()}, target)
    content = json.loads(saved.with_suffix(".json").read_text())
    content["tensors"] |= {"bytes": target.stat().st_size, "sha256": hashlib.sha256(target.read_bytes()).hexdigest()}
    saved.with_suffix(".json").write_text(json.dumps(content))
    with pytest.raises(steadyrun.RunDirectoryError, match="cannot be read"):
        tensor_files.load(saved)
    assert not (tmp_path / "owned").exists()


def test_no_module_of_ours_unpickles() -> None:
    root = Path(steadyrun.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text, path
        called = [ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        if path.name != "rehearsal.py":  # loads what it saved itself, in memory: what a resume would do
            assert "torch.load" not in called, path


def test_copies_in_a_room_are_what_copies_of_their_own_are() -> None:
    room = Room()
    grid = torch.arange(48.0).reshape(6, 8)
    batches: list[Any] = [
        {"x": grid[:, 1:], "y": torch.arange(6), "flag": grid[:, 0] > 20},
        (grid.T, grid[2:], torch.zeros(0, 3)),
        [torch.arange(3, dtype=torch.bfloat16), grid.requires_grad_(True)],
        {"nested": [grid[1:], {"deeper": torch.tensor(7)}]},
        torch.ones(5)[1:],
        {".x": torch.ones(2), "x": torch.zeros(2)},
        {1: torch.ones(2)},
    ]
    alone, together = [pack(batch) for batch in batches], [pack(batch, room=room) for batch in batches]
    with torch.no_grad():
        grid.fill_(-1.0)
    for mine, other in zip(alone, together, strict=True):
        assert (mine.tree, mine.plain) == (other.tree, other.plain)
        assert (mine.nbytes, mine.sizes, list(mine.tensors)) == (other.nbytes, other.sizes, list(other.tensors))
        for name, tensor in mine.tensors.items():
            assert tensor.dtype == other.tensors[name].dtype
            assert torch.equal(tensor, other.tensors[name])


def test_a_batch_in_a_room_stays_as_it_was_before_and_after_it_is_moved() -> None:
    room, buffer = Room(), torch.zeros(3, 5)
    packed = []
    for number in range(70):  # clones are moved many together; the last ones are not yet
        buffer.fill_(number)
        packed.append(pack({"x": buffer[:, 1:], "n": torch.tensor(number)}, room=room))
    for number, each in enumerate(packed):
        assert torch.equal(each.tensors["x"], torch.full((3, 4), float(number)))
        assert each.tensors["x"].is_contiguous()
        assert int(each.tensors["n"]) == number
        assert each.nbytes == 3 * 4 * 4 + 8


def test_a_room_takes_as_many_copies_as_there_are() -> None:
    room, large = Room(), torch.rand(2**18 + 1)
    parts = [torch.full((2**17 + 3,), float(number)) for number in range(20)]
    kept = [pack((part, large), room=room).tensors for part in parts]
    for part, tensors in zip(parts, kept, strict=True):
        assert torch.equal(tensors["0"], part)
        assert torch.equal(tensors["1"], large)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    "draw",
    ["rand(1)", "randn(1)", "randn(1, dtype=float)", "randn(17)", "rand(624)", "rand(1248)", "randperm(5)", "seed()"],
)
def test_a_draw_of_torch_is_seen_and_none_is_shared(draw: str, marked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not marked:  # a torch whose generator lies otherwise in memory
        monkeypatch.setattr(random_state, "_torch_mark", lambda: None)
    np.random.seed(0)  # holds no Gaussian back
    for _ in range(5):
        before = take()
        still = take(before)
        eval(f"torch.{draw}")
        moved = take(still)
        share([before, still, moved])
        assert still.torch is before.torch
        assert moved.torch is not before.torch
        assert torch.equal(moved.torch, torch.get_rng_state())
        assert (take(moved) is moved) == marked


def test_torchs_generator_is_found_in_memory() -> None:
    random_state._torch_offset.cache_clear()
    with torch.device("meta"):
        assert random_state._torch_offset() is not None
    torch.manual_seed(7)
    first = take()
    torch.rand(3)
    moved = take(first)
    torch.manual_seed(7)
    assert torch.equal(take(moved).torch, first.torch)
    torch.set_rng_state(moved.torch)
    assert torch.equal(take(first).torch, moved.torch)
