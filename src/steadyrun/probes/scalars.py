"""Numbers as users hand them over, and the random states that we leave alone."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    Scalar = float | Tensor


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor, without importing torch for those who do not use it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_jax_array(value: object) -> bool:
    """Whether `value` is an array of JAX, whose number may still be on its way; without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def scalar(value: Any, name: str) -> Scalar:
    """`value` as a float; a tensor on an accelerator stays there, copied, until the next flush.

    The copy matters: the memory of a compiled model's output may be reused by its next call. An array of JAX is handed
    on as it is: asking for its number would wait for it.
    """
    if is_jax_array(value):
        if value.size != 1:
            raise TypeError(f"{name} must be one number, not an array of shape {tuple(value.shape)}")
        return value  # type: ignore[no-any-return]
    if is_tensor(value):
        if value.numel() != 1:
            raise TypeError(f"{name} must be one number, not a tensor of shape {tuple(value.shape)}")
        if type(value) is sys.modules["torch"].Tensor and value.is_cpu:  # nearly all on the CPU, in every step
            return float(value.item())
        detached = value.detach()
        if hasattr(detached, "to_local"):  # a DTensor: adding it up over the ranks would need all of them here
            detached = detached.to_local()
        return float(detached.item()) if detached.device.type == "cpu" else detached.reshape(()).clone()
    if isinstance(value, str | bytes) or value is None:
        raise TypeError(f"{name} must be a number, not {value!r}")
    return float(value)


@contextmanager
def untouched_random_states() -> Iterator[None]:
    """Whatever the body draws from the random generators of Python, numpy and torch (on the CPU) is put back."""
    torch = sys.modules.get("torch")
    states = (random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state())
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch is not None and states[2] is not None:
            torch.set_rng_state(states[2])
