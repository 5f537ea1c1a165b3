"""Attention per head, taken from the real queries and keys of a forward pass: its entropy, and what looks ahead.

Fused attention never shows its probabilities. On a sampled step a torch function mode sees the call of
`scaled_dot_product_attention` and computes the attention of a few queries beside it; attention written out
by hand is seen at its softmax; `nn.MultiheadAttention` at its inputs. What is seen is never changed.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from steadyrun.program.torch_compat import is_spread

# Self-attention, where queries and keys come from the same tensor, shows in the autograd graph of a forward pass.
_FAR = 60  # nodes between a query and its projection: rotations, norms, casts and views are a dozen
_PROJECTIONS = ("Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "Convolution")
VIEWS = ("View", "UnsafeView", "Reshape", "ToCopy", "Transpose", "Permute", "Clone", "Expand", "Unsqueeze", "Squeeze",
          "Alias", "Contiguous", "TBackward")  # fmt: skip


def same_source(query: Tensor, key: Tensor) -> bool:
    """Whether both are projections of one tensor; False if the graph does not show it."""
    return _same(query.grad_fn, key.grad_fn)


def scores_of_one_source(scores: Tensor) -> bool:
    """The same of the scores of an attention written out by hand: a product of queries and keys."""
    node = _down_to(scores.grad_fn, ("Bmm", "Baddbmm"))
    factors = [] if node is None else [factor for factor, _ in node.next_functions if factor is not None]
    return len(factors) >= 2 and _same(factors[-2], factors[-1])


def _same(query: Node | None, key: Node | None) -> bool:
    ours, theirs = _source(query), _source(key)
    return ours is not None and ours is theirs


def _source(node: Node | None) -> Node | None:
    """What made the tensor that a projection took: the first node before it that is more than another view."""
    node = _down_to(node, _PROJECTIONS)
    inputs = [] if node is None else [operand for operand, _ in node.next_functions if operand is not None]
    node = next((operand for operand in inputs if not _is_weight(operand)), None)
    while node is not None and node.name().startswith(VIEWS):
        node = _next(node)
    return node


def _down_to(node: Node | None, kinds: tuple[str, ...]) -> Node | None:
    for _ in range(_FAR):
        if node is None or node.name().startswith(kinds):
            return node
        node = _next(node)
    return None


def _next(node: Node) -> Node | None:
    """Where a tensor came from; factors and offsets that are parameters are passed by."""
    inputs = [operand for operand, _ in node.next_functions if operand is not None]
    return next((operand for operand in inputs if not _is_weight(operand)), None)


def _is_weight(node: Node | None) -> bool:
    """A parameter, turned or cast."""
    for _ in range(4):
        if node is None or "AccumulateGrad" in node.name():
            return node is not None
        if not node.name().startswith(VIEWS):
            return False
        node = next((operand for operand, _ in node.next_functions if operand is not None), None)
    return False


LOW_ENTROPY = math.log(2)
LOW_SHARE = 0.99
_BATCH_ROWS, _QUERIES = 4, 16  # at most 64 queries per head
_MASKED = 5e3  # a score this far below the row's largest is a mask, not a measurement
_SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax}

_NOTHING = 500.0  # a row whose largest score is this far below zero is masked as a whole

# What may lie between a softmax and the product with the values.
_PASSING = {"dropout", "to", "type", "type_as", "float", "half", "bfloat16", "contiguous", "clone"}
_PRODUCTS = {"matmul", "bmm", "__matmul__", "einsum"}


@dataclass(frozen=True)
class Heads:
    """One attention: mean entropy and fraction of low-entropy queries per head; the largest look ahead of a head.

    `own` is the entropy that queries and keys alone make, without what a float mask adds to their scores; `future` is
    None where queries and keys are not the same positions.
    """

    entropy: Tensor
    low_share: Tensor
    own: Tensor | None = None
    future: Tensor | None = None
    scores: Tensor | None = None  # of the sampled rows and queries

    def on_padding(self, padding: Tensor) -> Tensor | None:
        """The fraction of attention that real positions give to padded keys; None if these are not its keys.

        `padding` marks the padded positions of each row of the batch. Where queries and keys are as many, a padded
        query is left out: what it looks at does not matter.
        """
        rows = _places(padding.shape[0], _BATCH_ROWS, padding.device)
        if self.scores is None or self.scores.shape[-1] != padding.shape[1] or self.scores.shape[0] != len(rows):
            return None
        scores, padded = self.scores.float(), padding.index_select(0, rows)
        queries = _places(padding.shape[1], _QUERIES, padding.device)
        whole = len(queries) == scores.shape[2]
        real = ~padded.index_select(1, queries) if whole else torch.ones_like(padded[:, :1])
        largest = scores.amax(-1, keepdim=True)
        counted = (real & padded.any(1, keepdim=True))[:, None, :] & (largest[..., 0] > -_NOTHING)
        weights = torch.nan_to_num(torch.softmax(scores.masked_fill(scores <= largest - _MASKED, -math.inf), -1))
        share = (weights * padded[:, None, None, :]).sum(-1) * counted
        mean: Tensor = share.sum() / counted.sum()  # not a number if no row is padded: then nothing is recorded
        return mean


_WHOLE_SAMPLES = 5  # at the start, in which every attention is looked at
_AT_A_TIME = 4  # attentions of a sample later on, the next ones in the next sample


class Rotation:
    """Which attentions of a forward pass are looked at: first all of them, later a few at a time."""

    def __init__(self) -> None:
        self._samples = self._all = self.seen = 0

    def begin(self) -> None:
        """Another forward pass will be looked at."""
        self._samples += 1
        self._all, self.seen = max(self._all, self.seen), 0

    def due(self) -> bool:
        """Whether the attention that comes now is looked at."""
        number, self.seen = self.seen, self.seen + 1
        if self._samples <= _WHOLE_SAMPLES or self._all <= _AT_A_TIME:
            return True
        first = (self._samples - _WHOLE_SAMPLES - 1) * _AT_A_TIME
        return (number - first) % self._all < _AT_A_TIME


Receive = Callable[[Heads, bool], Callable[[Tensor], None]]
"""Takes an attention, and whether it was a fused one; returns how to hand in later how far it looks ahead."""


class AttentionMode(TorchFunctionMode):
    """Shows the attentions in a forward pass to `receive`, but those that are not `due`: asked once for each."""

    def __init__(
        self, receive: Receive, failed: Callable[[Exception], None], due: Callable[[bool], bool] = lambda _fused: True
    ) -> None:
        super().__init__()
        self._receive = receive
        self._due = due
        self._failed = failed
        self._weights: Callable[[], Tensor | None] = lambda: None  # of the last softmax, as far as they still live
        self._confirm: Callable[[Tensor], None] = lambda _: None
        self._future: Tensor | None = None

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        try:
            if is_spread(result):
                return result
            if func is F.scaled_dot_product_attention:
                if self._due(True):
                    self._see_fused(*args, **(kwargs or {}))
            elif func in _SOFTMAXES and _looks_like_attention(result, *args, **(kwargs or {})):
                if self._due(False):
                    self._see_softmax(args[0], result)
            elif (weights := self._weights()) is not None and any(argument is weights for argument in _flat(args)):
                self._follow(getattr(func, "__name__", ""), args, result)
        except Exception as problem:
            self._failed(problem)
        return result

    def _see_fused(self, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> None:
        heads = fused_heads(query, key, *args, **kwargs)
        self._receive(heads if same_source(query, key) else replace(heads, future=None), True)

    def _see_softmax(self, scores: Tensor, weights: Tensor) -> None:
        """What it shows of later keys counts only when its weights reach the values as they are: see `_follow`."""
        heads = softmax_heads(scores.detach())
        self._confirm = self._receive(replace(heads, future=None, scores=None), False)  # a mask may still come
        self._future = heads.future if scores_of_one_source(scores) else None
        self._weights = weakref.ref(weights)

    def _follow(self, name: str, args: Any, result: Any) -> None:
        """Weights may still be masked after their softmax; in a product with the values they are final."""
        if name in _PASSING and isinstance(result, Tensor):
            self._weights = weakref.ref(result)
        elif name in _PRODUCTS and len([operand for operand in _flat(args) if isinstance(operand, Tensor)]) == 2:
            weights = self._weights()
            masked = name == "einsum" and weights is not None and result.shape == weights.shape
            if self._future is not None and not masked:
                self._confirm(self._future)
            self._weights = lambda: None


def fused_heads(query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Heads:
    """What a `scaled_dot_product_attention` call shows."""
    scores = fused_scores(query, key, *args, **kwargs)
    mask = args[1] if len(args) > 1 else kwargs.get("attn_mask")
    own = scores  # unless a float mask adds to them
    if mask is not None and mask.dtype != torch.bool:
        own = fused_scores(query, key, *args, **{**kwargs, "added": False})
    return _heads(scores, own, query.shape[-2] if query.shape[-2] == key.shape[-2] else None)


def softmax_heads(scores: Tensor) -> Heads:
    """What the scores of an attention written out by hand show."""
    return _heads(_sampled(scores), None, scores.shape[2] if scores.shape[2] == scores.shape[3] else None)


def module_heads(module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Heads:
    """What a call of `nn.MultiheadAttention` shows; only of the same tensor as query and key is it self-attention."""
    scores, query, key = module_scores(module, args, kwargs)
    return _heads(scores, None, scores.shape[-1] if query is key else None)


def _heads(scores: Tensor, own: Tensor | None, positions: int | None) -> Heads:
    entropies, low = head_entropies(scores)
    alone = entropies if own is scores else None if own is None else head_entropies(own)[0]
    ahead = None if positions is None else looks_ahead(scores, positions)
    return Heads(entropies, low, alone, ahead, scores)


def looks_ahead(scores: Tensor, positions: int) -> Tensor | None:
    """The mean fraction of attention on later keys, over the sampled queries that have any; of the head with the most.

    `scores` are those of a few out of `positions` queries. A query that may look at nothing (padding, a row that is
    masked as a whole) is left out: what a softmax makes of it means nothing.
    """
    if positions < 2:
        return None
    scores = scores.float()
    queries = _places(positions, _QUERIES, scores.device)
    later = torch.arange(scores.shape[-1], device=scores.device) > queries[:, None]
    largest = scores.amax(-1, keepdim=True)
    counted = ((largest[..., 0] > -_NOTHING) & later.any(-1)).float()
    weights = torch.softmax(scores.masked_fill(scores <= largest - _MASKED, -math.inf), -1)
    ahead = torch.nan_to_num((weights * later).sum(-1)) * counted
    by_head: Tensor = ahead.sum((0, 2)) / counted.sum((0, 2)).clamp(min=1)
    return by_head.amax()


def head_entropies(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Of scores (batch, heads, queries, keys): mean entropy per head, and the fraction of queries below log 2.

    A query that may look at fewer than three keys cannot be above log 2 and says nothing; it is left out.
    """
    scores = scores.float()
    visible = scores > scores.amax(-1, keepdim=True) - _MASKED
    log_p = torch.log_softmax(scores.masked_fill(~visible, -math.inf), -1)
    entropy = -(log_p.exp() * log_p.masked_fill(~visible, 0.0)).sum(-1)
    counted = (visible.sum(-1) >= 3).float()
    total = counted.sum((0, 2)).clamp(min=1)
    mean = (entropy * counted).sum((0, 2)) / total
    low = ((entropy < LOW_ENTROPY).float() * counted).sum((0, 2)) / total
    return mean, low


def fused_scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,  # noqa: ARG001
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    added: bool = True,
) -> Tensor:
    """Scores (batch, heads, queries, keys) of a few queries of a `scaled_dot_product_attention` call.

    With `added=False` a float mask hides what it hides, and adds nothing to the rest.
    """
    query, key = query.detach(), key.detach()
    while query.dim() < 4:
        query, key = query.unsqueeze(0), key.unsqueeze(0)
    if query.dim() > 4:
        query, key = query.flatten(0, -4), key.flatten(0, -4)
    rows = _places(query.shape[0], _BATCH_ROWS, query.device)
    queries = _places(query.shape[2], _QUERIES, query.device)
    chosen = query.index_select(0, rows).index_select(2, queries).float()
    keys = key.index_select(0, rows).float()
    if enable_gqa or keys.shape[1] != chosen.shape[1]:
        keys = keys.repeat_interleave(chosen.shape[1] // keys.shape[1], 1)
    scores = chosen @ keys.transpose(-1, -2) * (scale if scale is not None else query.shape[-1] ** -0.5)
    if is_causal:
        later = torch.arange(keys.shape[2], device=scores.device) > queries[:, None]
        scores = scores.masked_fill(later, -math.inf)
    if attn_mask is not None:
        scores = _masked(scores, attn_mask.detach(), rows, queries, added=added)
    return scores


def module_scores(
    module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of a few queries of an `nn.MultiheadAttention` call, from its inputs and projections; query and key."""
    arguments = dict(
        zip(("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask"), args, strict=False)
    )
    arguments.update(kwargs)
    query, key = arguments["query"].detach(), arguments["key"].detach()
    if query.dim() == 3 and not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    q_weight, k_weight, q_bias, k_bias = _projections(module)
    heads = module.num_heads
    q = _by_head(F.linear(query, q_weight, q_bias), heads)
    k = _by_head(F.linear(key, k_weight, k_bias), heads)
    mask = arguments.get("attn_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask.unflatten(0, (-1, heads))
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask  # here True hides a key; for the fused function it shows one
    causal = bool(arguments.get("is_causal")) and mask is None
    scores = fused_scores(q, k, k, attn_mask=mask, is_causal=causal)
    padding = arguments.get("key_padding_mask")
    if padding is not None and padding.dim() == 2:
        hidden = padding.index_select(0, _places(padding.shape[0], _BATCH_ROWS, padding.device))[:, None, None, :]
        whole = hidden.dtype == torch.bool  # torch's own layers hand over what is to be added instead
        scores = scores.masked_fill(hidden, -math.inf) if whole else scores + hidden
    return scores, arguments["query"], arguments["key"]


def has_plain_projections(module: nn.Module) -> bool:
    """Whether this is an `nn.MultiheadAttention` whose projections are ordinary parameters, safe to read."""
    return isinstance(module, nn.MultiheadAttention) and "in_proj_weight" in module._parameters


def _by_head(projected: Tensor, heads: int) -> Tensor:
    return projected.view(*projected.shape[:-1], heads, -1).transpose(-2, -3)


def _projections(module: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    width = module.embed_dim
    bias = module.in_proj_bias
    q_bias, k_bias = (None, None) if bias is None else (bias[:width].detach(), bias[width : 2 * width].detach())
    if module.in_proj_weight is None:
        return module.q_proj_weight.detach(), module.k_proj_weight.detach(), q_bias, k_bias
    joint = module.in_proj_weight.detach()
    return joint[:width], joint[width : 2 * width], q_bias, k_bias


def _masked(scores: Tensor, mask: Tensor, rows: Tensor, queries: Tensor, *, added: bool) -> Tensor:
    """A mask that is the same for all rows, heads or queries is stretched by the operation itself."""
    part = mask.flatten(0, -4) if mask.dim() > 4 else mask
    while part.dim() < 4:
        part = part.unsqueeze(0)
    part = part.index_select(2, queries) if part.shape[2] > 1 else part
    part = part.index_select(0, rows) if part.shape[0] > 1 else part
    if part.dtype == torch.bool:
        return scores.masked_fill(~part, -math.inf)
    return scores + part.float() if added else scores.masked_fill(part < -_NOTHING, -math.inf)


def _looks_like_attention(result: object, _scores: object = None, dim: object = None, **_options: object) -> bool:
    """A softmax over the last of four dimensions: batch, heads, queries, keys."""
    return isinstance(result, Tensor) and result.dim() == 4 and dim in (-1, 3) and result.is_floating_point()


def _flat(args: Iterable[object]) -> list[object]:
    """The arguments of a call, and what lies in lists among them."""
    return [part for argument in args for part in (argument if isinstance(argument, list | tuple) else [argument])]


def _sampled(scores: Tensor) -> Tensor:
    rows = _places(scores.shape[0], _BATCH_ROWS, scores.device)
    return scores.index_select(0, rows).index_select(2, _places(scores.shape[2], _QUERIES, scores.device))


@lru_cache(maxsize=256)
def _places(size: int, most: int, device: torch.device) -> Tensor:
    """At most `most` places out of `size`, evenly spaced, the last among them; kept, since to make them is a wait."""
    count = min(size, most)
    places = [size - 1 - round(index * (size - 1) / max(1, count - 1)) for index in range(count)][::-1]
    return torch.tensor(places, device=device)
