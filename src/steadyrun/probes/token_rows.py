"""How much the rows of each token in a model's frozen tables look trained: new words in a model with adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from steadyrun.signals.adapters import is_adapter

Sizes = npt.NDArray[np.float64]
_FEWEST = 16  # rows


def row_sizes(model: nn.Module) -> Sizes | None:
    """By token: the size of its rows relative to the median token's, the larger of input and output table.

    A row that equals the mean of all rows, as resized tables have, counts as small. None unless adapters train beside
    tables that are all frozen.
    """
    named = dict(model.named_parameters())
    if not any(map(is_adapter, named)):
        return None
    tables = _tables(model)
    trained = {id(each) for each in named.values() if each.requires_grad}
    if not tables or any(_trains(table, trained) for table in tables):
        return None
    weights = {id(table.weight): table.weight.detach() for table in tables}
    sizes = [_relative(weight) for weight in weights.values() if weight.dim() == 2 and weight.is_floating_point()]
    known = [each for each in sizes if len(each) >= _FEWEST and len(each) == len(sizes[0])]
    return np.max(np.stack(known), axis=0) if known else None


def _tables(model: nn.Module) -> list[Any]:
    """The tables of input and output tokens, as transformers gives them, or the only embedding and head by size."""
    found = [_asked(model, name) for name in ("get_input_embeddings", "get_output_embeddings")]
    tables = [each for each in found if isinstance(getattr(each, "weight", None), Tensor)]
    if not tables:
        embedding = max(_of(model, nn.Embedding), key=lambda each: each.num_embeddings, default=None)
        heads = [each for each in _of(model, nn.Linear) if embedding and each.out_features == embedding.num_embeddings]
        tables = [each for each in (embedding, *heads[-1:]) if each is not None]
    return tables


def _asked(model: Any, name: str) -> Any:
    try:
        return getattr(model, name)()
    except Exception:  # a model without it, or one that does not implement it
        return None


def _of(model: nn.Module, kind: type[Any]) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]


def _trains(table: Any, trained: set[int]) -> bool:
    """Whether a table or anything in a wrapper around it is trained."""
    return any(id(each) in trained for each in table.parameters())


def _relative(weight: Tensor) -> Sizes:
    rows = weight.float()
    with torch.no_grad():
        sizes = torch.stack([torch.linalg.vector_norm(each, dim=1) for each in (rows, rows - rows.mean(0))])
        relative = (sizes / sizes.median(1, keepdim=True).values.clamp(min=1e-12)).amin(0)
    return relative.double().cpu().numpy()
