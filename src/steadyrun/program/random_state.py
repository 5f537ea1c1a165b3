"""Random generators of torch, Python and numpy, and those that loaders, samplers and datasets hold: kept, put back."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.program.torch_compat import GENERATOR_ADDRESS, GENERATOR_HEAD, GENERATOR_WORDS

# The random generators of torch, Python and numpy: read without touching them, and put back.


_MT_WORDS = 624 + 1  # of a Mersenne twister: its words and the position in them
_HAS_GAUSS = 3  # the index in numpy's state that says whether it holds a Gaussian back
_OBJECT_HEAD = 16  # bytes of a Python object before its own data
_TORCH_HEAD, _TORCH_TAIL = 5, 6  # words before and behind the twister's in torch's generator: position, Gaussians
_TORCH_SEARCHED = 160  # bytes of torch's generator in which its twister begins

Mark = Any
"""Words that differ once a generator has moved; None if that cannot be known."""


@dataclass(eq=False, slots=True)
class RandomState:
    """All generators at one moment. Equal parts of two moments may be one object."""

    torch: Tensor
    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    cuda: dict[int, Tensor] = field(default_factory=dict)
    marks: tuple[Mark, Mark, Mark] = (None, None, None)  # of Python, numpy and torch


def take(before: RandomState | None = None, devices: Sequence[int] = ()) -> RandomState:
    """The states now; those that have not moved are shared with `before`, and it is `before` if none has.

    Twice a step, where every function that the training does not use costs several microseconds. A state of torch whose
    mark is not known is read and not looked at: `share` does that for many steps together. `devices` are those of CUDA.
    """
    marks = _python_mark(), _numpy_mark(), _torch_mark()
    python = numpy = now = None
    if before is not None:
        python = before.python if marks[0] is not None and marks[0] == before.marks[0] else None
        held_back = before.numpy[_HAS_GAUSS]  # a number that may be used up without a trace
        numpy = before.numpy if marks[1] is not None and marks[1] == before.marks[1] and not held_back else None
        now = before.torch if marks[2] is not None and marks[2] == before.marks[2] else None
        if not devices and python is not None and numpy is not None and now is not None:
            return before
    return RandomState(
        torch.default_generator.get_state() if now is None else now,
        _python_now() if python is None else python,
        _numpy_now() if numpy is None else numpy,
        {device: torch.cuda.get_rng_state(device) for device in devices} if devices else {},
        marks,
    )


def share(states: Iterable[RandomState]) -> None:
    """Let states that follow each other, and are equal for torch, hold one tensor; those with a mark do already."""
    held, content = None, b""
    for state in states:
        if state.torch is held or state.marks[2] is not None:
            continue
        now = state.torch.numpy().tobytes()
        if held is not None and now == content:
            state.torch = held
        else:
            held, content = state.torch, now


def _python_now() -> tuple[Any, ...]:
    """Python's state with its words as an array: as numbers of their own they take ten times the memory."""
    version, words, gauss = random.getstate()
    return version, np.array(words, dtype=np.uint32), gauss


def _numpy_now() -> tuple[Any, ...]:
    state: Any = np.random.get_state(legacy=True)
    return tuple(state)


def put(state: RandomState) -> None:
    """Set every generator."""
    torch.set_rng_state(state.torch)
    version, words, gauss = state.python
    random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(state.numpy)
    for device, cuda_state in state.cuda.items():
        if device < torch.cuda.device_count():
            torch.cuda.set_rng_state(cuda_state, device)


def to_tensors(states: Sequence[RandomState], name: str = "rng") -> dict[str, Tensor]:
    """Many states as a few tensors, what they share once."""
    python, python_at = _unique([state.python for state in states])
    legacy, legacy_at = _unique([state.numpy for state in states])
    tensors = {
        f"{name}.torch": torch.stack([state.torch for state in states]),
        f"{name}.python": torch.tensor([_python_words(state) for state in python], dtype=torch.float64),
        f"{name}.python_at": torch.tensor(python_at),
        f"{name}.numpy": torch.tensor([_numpy_words(state) for state in legacy], dtype=torch.float64),
        f"{name}.numpy_at": torch.tensor(legacy_at),
    }
    for device in states[0].cuda:
        tensors[f"{name}.cuda.{device}"] = torch.stack([state.cuda[device] for state in states])
    return tensors


def from_tensors(tensors: Mapping[str, Tensor], name: str = "rng") -> list[RandomState]:
    """What `to_tensors` was given."""
    python = [_python_state(row) for row in tensors[f"{name}.python"].tolist()]
    legacy = [_numpy_state(row) for row in tensors[f"{name}.numpy"].tolist()]
    prefix = f"{name}.cuda."
    cuda = {
        int(key.removeprefix(prefix)): cuda_states for key, cuda_states in tensors.items() if key.startswith(prefix)
    }
    return [
        RandomState(
            torch_state.clone(),
            python[int(tensors[f"{name}.python_at"][index])],
            legacy[int(tensors[f"{name}.numpy_at"][index])],
            cuda={device: cuda_states[index].clone() for device, cuda_states in cuda.items()},
        )
        for index, torch_state in enumerate(tensors[f"{name}.torch"])
    ]


def _unique(parts: list[Any]) -> tuple[list[Any], list[int]]:
    """The different objects, and which of them each part is."""
    indices: dict[int, int] = {}
    unique: list[Any] = []
    for part in parts:
        if id(part) not in indices:
            indices[id(part)] = len(unique)
            unique.append(part)
    return unique, [indices[id(part)] for part in parts]


# Reading a generator's state makes hundreds of Python numbers, twice a step. A few of its raw words, compared with
# those seen before, show that it has not moved: a draw moves the position, and after 624 draws every word is another.
# They are never used for more than that.


def _numpy_mark() -> Mark:
    generator = np.random.mtrand._rand._bit_generator
    if _numpy_memory[0] is not generator:
        _numpy_memory[:] = [generator, _numpy_words_of(generator)]
    words = _numpy_memory[1]
    return None if words is None else (words[0], words[1], words[312], words[623], words[624])


def _python_mark() -> Mark:
    if (words := _python_memory()) is None:
        return None
    return words[0], words[1], words[2], words[312], words[624], random._inst.gauss_next  # type: ignore[attr-defined]


_numpy_memory: list[Any] = [None, None]  # the generator that was looked at last, and its words


def _numpy_words_of(generator: Any) -> memoryview | None:
    return _words_at(generator.ctypes.state_address) if type(generator).__name__ == "MT19937" else None


def _torch_mark() -> Mark:
    address = getattr(torch.default_generator, GENERATOR_ADDRESS, None)
    if _torch_memory[0] != address:
        _torch_memory[:] = [address, _torch_words_at(address)]
    words = _torch_memory[1]
    return None if words is None else (words[2], words[4], words[5], words[317], words[628], bytes(words[629:]))


_torch_memory: list[Any] = [None, None]  # the address of the generator that was looked at last, and its words


def _torch_words_at(address: int | None) -> memoryview | None:
    """Seed, position and words of a generator of torch, and the Gaussians that it holds back; None if not found."""
    offset = _torch_offset()
    return (
        None
        if offset is None or address is None
        else _words_at(address + offset - 4 * _TORCH_HEAD, _TORCH_HEAD + 624 + _TORCH_TAIL)
    )


@lru_cache(maxsize=1)
def _torch_offset() -> int | None:
    """Where the words lie behind a generator's address: found, and tried with draws, in a generator of our own."""
    own = torch.Generator("cpu")  # whatever the default device is
    if (address := getattr(own, GENERATOR_ADDRESS, None)) is None:
        return None
    first = _torch_words(own)[:8].tobytes()
    offset = ctypes.string_at(address, _TORCH_SEARCHED).find(first)
    if offset < 4 * _TORCH_HEAD or offset % 4:
        return None
    memory = _words_at(address + offset - 4 * _TORCH_HEAD, _TORCH_HEAD + 624 + _TORCH_TAIL)
    for draw in (torch.rand, torch.randn, torch.randn, torch.rand):  # the second Gaussian moves no word
        before = bytes(memory)
        draw(1, generator=own, device="cpu")
        if bytes(memory) == before or bytes(memory[_TORCH_HEAD:-_TORCH_TAIL]) != _torch_words(own).tobytes():
            return None
    return offset


def _torch_words(generator: torch.Generator) -> Any:
    state = generator.get_state().numpy()
    return state[GENERATOR_HEAD : GENERATOR_HEAD + GENERATOR_WORDS].view(np.uint64).astype(np.uint32)


def _words_at(address: int, count: int = _MT_WORDS) -> memoryview:
    """A view that Python reads by itself: ctypes and numpy take four times as long between two steps."""
    return memoryview((ctypes.c_uint32 * count).from_address(address)).cast("B").cast("I")


@lru_cache(maxsize=1)
def _python_memory() -> memoryview | None:
    """Position and words of Python's generator; None unless they lie behind the object's head, as in CPython."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != _OBJECT_HEAD:
        return None
    memory = _words_at(id(random._inst) + _OBJECT_HEAD)
    position, *words = list(memory)
    return memory if [*words, position] == list(random.getstate()[1]) else None


# A float64 holds every 32-bit word exactly, and the Gaussian that both generators may hold back.


def _python_words(state: tuple[Any, ...]) -> list[float]:
    version, words, gauss = state
    return [float(version), float("nan") if gauss is None else gauss, *words.tolist()]


def _python_state(row: list[float]) -> tuple[Any, ...]:
    return int(row[0]), np.array(row[2:], dtype=np.uint32), None if row[1] != row[1] else row[1]


def _numpy_words(state: tuple[Any, ...]) -> list[float]:
    _, words, position, has_gauss, gauss = state
    return [float(position), float(has_gauss), float(gauss), *map(float, words)]


def _numpy_state(row: list[float]) -> tuple[Any, ...]:
    return "MT19937", np.array(row[3:], dtype=np.uint32), int(row[0]), int(row[1]), row[2]


# Random generators: those that loaders, samplers and datasets hold themselves are kept, put back, moved on.


_DEEPEST = 4
_MOST, _SHORT = 2000, 32  # objects looked at; elements of a list
_LEFT_OUT = (type, ModuleType, FunctionType, MethodType, torch.nn.Module, torch.Tensor, np.ndarray)
_KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def kept_generators(*holders: Any) -> list[Callable[[], object]]:
    """One function for each generator that puts it back as it is now."""
    return [_put_back(generator) for generator in _generators(holders)]


def move_on(*holders: Any) -> None:
    """Every generator elsewhere, the global ones too, as they would be in a later epoch."""
    for generator in _generators(holders):
        if isinstance(generator, torch.Generator):
            torch.rand(7, generator=generator, device=generator.device)
        else:
            [generator.random() for _ in range(7)]
    torch.rand(7)
    [random.random() for _ in range(7)]
    np.random.random(7)


def _generators(holders: tuple[Any, ...]) -> list[Any]:
    generators: dict[int, Any] = {}
    visited: set[int] = set()
    for holder in holders:
        _collect(holder, generators, visited, 0)
    return list(generators.values())


def _collect(holder: Any, generators: dict[int, Any], visited: set[int], depth: int) -> None:
    if depth > _DEEPEST or id(holder) in visited or len(visited) > _MOST:
        return
    visited.add(id(holder))
    for member in _below(holder):
        if isinstance(member, _KINDS):
            generators[id(member)] = member
        else:
            _collect(member, generators, visited, depth + 1)


def _below(holder: Any) -> list[Any]:
    """What an object holds, or a short list (of transforms, say); not what is large or belongs to everybody."""
    if isinstance(holder, _LEFT_OUT):
        return []
    if isinstance(holder, list | tuple):
        return list(holder) if len(holder) <= _SHORT else []
    return list(getattr(holder, "__dict__", {}).values())


def _put_back(generator: Any) -> Callable[[], object]:
    if isinstance(generator, np.random.Generator):
        numbers = generator.bit_generator.state
        return lambda: setattr(generator.bit_generator, "state", numbers)
    if isinstance(generator, random.Random):
        words = generator.getstate()
        return lambda: generator.setstate(words)
    state = generator.get_state()
    return lambda: generator.set_state(state)
