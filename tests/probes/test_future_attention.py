"""How much of an attention looks ahead: nothing under any honest causal mask, and the share itself without one."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from small_programs import Block, Gpt
from torch import Tensor, nn

import steadyrun
from steadyrun.probes.attention import (
    AttentionMode,
    Heads,
    fused_heads,
    same_source,
    scores_of_one_source,
    softmax_heads,
)

LENGTH = 40
CAUSAL = torch.ones(LENGTH, LENGTH).tril().bool()
PLACES = torch.arange(LENGTH)
DISTANCE = PLACES[:, None] - PLACES


def scores_of(seed: int = 0, size: float = 2.0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(3, 4, LENGTH, 8, generator=made) * size, torch.randn(3, 4, LENGTH, 8, generator=made)


def share(heads: Heads) -> float:
    assert heads.future is not None
    return float(heads.future)


def naive_share(scores: Tensor) -> float:
    """The weight on later keys, one query at a time; of the head with the most. Every query, the last one aside."""
    weights = torch.softmax(scores.double(), -1)
    per_head = [
        [float(weights[b, h, t, t + 1 :].sum()) for b in range(scores.shape[0]) for t in range(scores.shape[2] - 1)]
        for h in range(scores.shape[1])
    ]
    return max(sum(shares) / len(shares) for shares in per_head)


def added(shown: Tensor, value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shown.shape, dtype=dtype).masked_fill(~shown, value)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None]
MASKS: dict[str, Tensor] = {
    "shown": CAUSAL,
    "minus infinity": added(CAUSAL, -math.inf),
    "-1e4 in fp16": added(CAUSAL, -1e4, torch.float16),
    "-1e9": added(CAUSAL, -1e9),
    "the least of fp16": added(CAUSAL, torch.finfo(torch.float16).min, torch.float16),
    "the least of bf16": added(CAUSAL, torch.finfo(torch.bfloat16).min, torch.bfloat16),
    "the least of fp32": added(CAUSAL, torch.finfo(torch.float32).min),
    "a sliding window": CAUSAL & (DISTANCE < 5),
    "ALiBi": added(CAUSAL, -math.inf) - SLOPES * DISTANCE.clamp(min=0),
    "packed documents": CAUSAL & (PLACES[:, None] // 10 == PLACES // 10),
    "padding on the right": (CAUSAL & (PLACES < 30))[None, None].expand(3, 1, LENGTH, LENGTH),
    "padding on the left": (CAUSAL & (PLACES >= 10))[None, None].expand(3, 1, LENGTH, LENGTH),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_causal_mask_of_any_kind_shows_nothing_ahead(name: str) -> None:
    query, key = scores_of()
    assert share(fused_heads(query, key, key, attn_mask=MASKS[name])) == 0
    mask = MASKS[name]
    scores = query @ key.transpose(-1, -2) * 8**-0.5
    written = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
    assert share(softmax_heads(written)) == 0


@pytest.mark.parametrize("value", [-1e4, -65504.0, -1e9, torch.finfo(torch.float32).min])
def test_rows_that_see_nothing_are_left_out(value: float) -> None:
    """Padding on the left, masked by adding twice: a padding row is then flat over keys that come later, too."""
    query, key = scores_of()
    padding = torch.zeros(LENGTH).masked_fill(PLACES < 10, value)
    mask = torch.clamp(added(CAUSAL, value) + padding, min=torch.finfo(torch.float32).min)
    assert share(fused_heads(query, key, key, attn_mask=mask)) == 0
    alike = torch.where((PLACES < 10)[:, None], torch.tensor(value), added(CAUSAL, value))
    assert share(fused_heads(query, key, key, attn_mask=alike)) == 0
    nothing = CAUSAL & (PLACES[:, None] >= 10)
    assert share(fused_heads(query, key, key, attn_mask=nothing)) == 0


def test_fused_causal_attention_shows_nothing_ahead() -> None:
    query, key = scores_of()
    assert share(fused_heads(query, key, key, is_causal=True)) == 0
    assert share(fused_heads(query[0, 0], key[0, 0], key[0, 0], is_causal=True)) == 0
    assert share(fused_heads(query, key[:, :2], key[:, :2], is_causal=True, enable_gqa=True)) == 0


def test_the_share_against_the_obvious_loop() -> None:
    query, key = (x[:, :, :12] for x in scores_of())  # few enough queries that all of them are looked at
    scores = query @ key.transpose(-1, -2) * 8**-0.5
    assert share(fused_heads(query, key, key)) == pytest.approx(naive_share(scores), rel=1e-4)
    assert share(softmax_heads(scores)) == pytest.approx(naive_share(scores), rel=1e-4)


def test_a_mask_that_is_off_by_one_is_seen() -> None:
    query, key = scores_of(size=0.1)
    one_ahead = torch.ones(LENGTH, LENGTH).tril(1).bool()
    assert share(fused_heads(query, key, key, attn_mask=one_ahead)) > 0.01


def test_only_self_attention_is_judged() -> None:
    query, key = scores_of()
    assert fused_heads(query[:, :, -1:], key, key).future is None  # a step with a cache
    assert fused_heads(query, key[:, :, :30], key[:, :, :30]).future is None  # another sequence
    assert fused_heads(query[:, :, :1], key[:, :, :1], key[:, :, :1]).future is None


def seen_by_the_mode(attend: Callable[[Tensor], Any]) -> list[Any]:
    shares: list[Any] = []

    def receive(heads: Heads, _fused: bool) -> Callable[[Tensor], None]:
        if heads.future is not None:
            shares.append(float(heads.future))
        return lambda share: shares.append(float(share))

    with AttentionMode(receive, failed):
        query, key = projected()
        attend(query @ key.transpose(-1, -2))
    return shares


def failed(problem: Exception) -> None:
    raise problem


def projected(other: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Queries and keys of four heads, each from its own projection of one tensor, or the keys of another."""
    torch.manual_seed(0)
    x = nn.LayerNorm(32)(torch.randn(3, LENGTH, 32))
    make_query, make_key = nn.Linear(32, 32), nn.Linear(32, 32, bias=False)
    query, key = make_query(x), make_key(x if other is None else other)
    return tuple(part.view(3, LENGTH, 4, 8).transpose(1, 2) for part in (query, key))  # type: ignore[return-value]


LATE: dict[str, Callable[[Tensor], Any]] = {
    "multiplied": lambda scores: torch.softmax(scores, -1) * CAUSAL,
    "filled": lambda scores: scores.softmax(-1).masked_fill(~CAUSAL, 0.0),
    "after dropout": lambda scores: F.dropout(F.softmax(scores, dim=-1), 0.1).float().tril(),
    "chosen": lambda scores: torch.where(CAUSAL, torch.softmax(scores, -1), 0.0),
    "through a view": lambda scores: (
        (torch.softmax(scores, -1).view(3, 4, -1) * CAUSAL.view(-1)).view(3, 4, LENGTH, LENGTH) @ torch.ones(LENGTH, 8)
    ),
    "by einsum": lambda scores: (
        torch.einsum("bhqk,qk->bhqk", torch.softmax(scores, -1), CAUSAL.float()) @ torch.ones(LENGTH, 8)
    ),
    "in the product": lambda scores: torch.einsum(
        "bhqk,qk,kd->bhqd", torch.softmax(scores, -1), CAUSAL.float(), torch.ones(LENGTH, 8)
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_a_mask_after_the_softmax_is_a_mask(name: str) -> None:
    assert seen_by_the_mode(LATE[name]) == []


def test_weights_that_go_to_the_values_are_judged() -> None:
    (share,) = seen_by_the_mode(lambda scores: F.dropout(torch.softmax(scores, -1), 0.1) @ torch.ones(LENGTH, 8))
    assert share > 0.3


def test_a_product_by_einsum_is_one() -> None:
    (share,) = seen_by_the_mode(lambda scores: torch.einsum("bhqk,kd->bhqd", scores.softmax(-1), torch.ones(LENGTH, 8)))
    assert share > 0.3


def test_padding_rows_that_are_masked_by_a_thousand_are_left_out() -> None:
    query, key = scores_of()
    shown = CAUSAL & (PLACES >= 10)
    assert share(fused_heads(query, key, key, attn_mask=added(shown, -1e3))) == 0


def rotated(x: Tensor) -> Tensor:
    angle = torch.randn(LENGTH, x.shape[-1])
    half = torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)
    return x * angle.cos() + half * angle.sin()


def normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * nn.Parameter(torch.ones(x.shape[-1]))


@pytest.mark.parametrize("change", [rotated, normed, lambda x: nn.LayerNorm(8)(rotated(x)), Tensor.clone])
def test_self_attention_is_told_by_where_queries_and_keys_come_from(change: Callable[[Tensor], Tensor]) -> None:
    query, key = projected()
    assert same_source(change(query), change(key))
    assert scores_of_one_source((change(query) @ change(key).transpose(-1, -2) / 3).masked_fill(~CAUSAL, -math.inf))


def test_another_sequence_of_the_same_length_is_not_self_attention() -> None:
    for other in (torch.randn(3, LENGTH, 32), nn.Linear(32, 32)(torch.randn(3, LENGTH, 32))):
        query, key = projected(other)
        assert not same_source(query, key)
        assert not scores_of_one_source(query @ key.transpose(-1, -2))


def test_joint_projections_and_half_precision() -> None:
    x = nn.Embedding(50, 32)(torch.randint(0, 50, (3, LENGTH)))
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            query, key, _ = nn.Linear(32, 96)(x).chunk(3, -1)
            assert same_source(query.view(3, LENGTH, 4, 8).transpose(1, 2), key.view(3, LENGTH, 4, 8).transpose(1, 2))


def test_without_a_graph_nothing_is_said() -> None:
    query, key = scores_of()
    assert not same_source(query, key)
    assert not scores_of_one_source(query @ key.transpose(-1, -2))


# -- recorded --------------------------------------------------------------------------------------


def record_step(path: Path, model: nn.Module, x: Tensor) -> steadyrun.RunView:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(path, every=1, config={"causal": True}) as run:
        run.watch(model, optimizer)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        run.step(loss)
    view = steadyrun.open_run(path)
    assert view.events("probe-failed") == []
    return view


def test_each_block_has_its_share(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Gpt()
    model.blocks[1] = Block(causal=False)
    view = record_step(tmp_path, model, torch.randint(0, 50, (4, 20)))
    assert view.series("future_attention/blocks.0").values[0] == 0
    assert view.series("future_attention/blocks.1").values[0] > 0.3


@pytest.mark.parametrize(("masked", "cross"), [(True, False), (False, False), (False, True)])
def test_multihead_attention_modules(tmp_path: Path, masked: bool, cross: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(9, 9).triu(1).bool() if masked else None
            other = x + 1 if cross else x
            out: Tensor = self.attention(x, other, other, attn_mask=mask)[0]
            return out

    torch.manual_seed(0)
    view = record_step(tmp_path, Model(), torch.randn(3, 9, 16))
    if cross:
        assert "future_attention/attention" not in view.names()
    else:
        assert (view.series("future_attention/attention").values[0] == 0) == masked


def test_causal_is_declared_as_a_truth_value(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.UsageError, match="causal must be True or False, not 1"):
        steadyrun.record(tmp_path, config={"causal": 1})
    with pytest.raises(steadyrun.UsageError, match="seed must be a whole number, not True"):
        steadyrun.record(tmp_path, config={"seed": True})
