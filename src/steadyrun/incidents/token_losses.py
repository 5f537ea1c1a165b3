"""Losses token by token, from a loss function that returns their mean: what it calls is asked once more, unreduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_MOST = 65_536
_LOSSES = frozenset(
    {
        functional.cross_entropy,
        functional.nll_loss,
        functional.mse_loss,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
        functional.binary_cross_entropy,
        functional.binary_cross_entropy_with_logits,
        functional.kl_div,
    }
)


class TokenLosses(TorchFunctionMode):
    """While it is on, notes the losses of every element that torch's loss functions are given."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LOSSES:
            self._note(func, args, kwargs)
        return func(*args, **kwargs)

    def found(self) -> list[float] | None:
        """The noted losses in order; None where no loss function of torch was called."""
        flat = [losses.reshape(-1).float().cpu() for losses in self._found]
        return torch.cat(flat)[:_MOST].tolist() if flat else None

    def _note(self, func: Callable[..., Tensor], args: Any, kwargs: dict[str, Any]) -> None:
        try:
            with torch.no_grad():
                plain = {name: value for name, value in kwargs.items() if name not in {"size_average", "reduce"}}
                self._found.append(func(*args[: _positional(func)], **{**plain, "reduction": "none"}).detach())
        except Exception:  # an unusual call is simply not noted: the step itself must go on as it is
            return


def _positional(func: Callable[..., Tensor]) -> int:
    """How many leading arguments are no reduction and no deprecated flag."""
    return 3 if func in (functional.cross_entropy, functional.nll_loss) else 2
