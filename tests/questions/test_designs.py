"""Healthy designs that look like a signature: blocks that start at nothing, sparse layers, heads narrow by design.

Each is trained for a hundred steps and more and recorded as a user would; none of the signatures may call it a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import steadyrun
from steadyrun.questions.form import FAULT
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS

WIDTH, LENGTH, VOCAB, STEPS = 32, 12, 20, 130


class Part(nn.Module):
    """A pre-norm block; `gate` scales what it adds, `whole` all that comes out of it."""

    def __init__(self, gate: float | None = None, whole: float | None = None, bias: Tensor | None = None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.gate = None if gate is None else nn.Parameter(torch.tensor(gate))
        self.whole = None if whole is None else nn.Parameter(torch.tensor(whole))
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        hidden = torch.ones(x.shape[1], x.shape[1]).tril().log()
        mask = hidden if self.bias is None else hidden + self.bias
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        added = self.out(mixed.transpose(1, 2).flatten(-2))
        added = added + self.down(F.gelu(self.up(self.norm2(x + added))))
        out = x + (added if self.gate is None else self.gate * added)
        return out if self.whole is None else self.whole * out


class Model(nn.Module):
    """Tokens in, logits out, through a list of blocks."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


class Adapted(Part):
    """A block beside an adapter whose last matrix starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, WIDTH))
        nn.init.zeros_(self.adapter[2].weight)
        nn.init.zeros_(self.adapter[2].bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.adapter(x)


class Experts(nn.Module):
    """A block of experts of which the last is never chosen."""

    def __init__(self) -> None:
        super().__init__()
        up_down = (nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH)) for _ in range(3))
        self.experts, self.router, self.norm = nn.ModuleList(up_down), nn.Linear(WIDTH, 2), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        flat = self.norm(x)
        chosen = F.one_hot(self.router(flat).argmax(-1), 3).float()
        # Every expert sees the whole batch, zeros where it was not chosen.
        return x + sum(
            expert(flat * chosen[..., [index]]) * chosen[..., [index]] for index, expert in enumerate(self.experts)
        )


class TopK(nn.Module):
    """A sparse autoencoder's layer: of 512 features, 4 are active for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(WIDTH, 512), nn.Linear(512, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        features = self.up(self.norm(x))
        most = features.topk(4, -1)
        return x + self.down(torch.zeros_like(features).scatter(-1, most.indices, most.values.relu() + 1e-3))


def zeroed(block: Part) -> Part:
    """A residual branch that starts at zero, as in many recipes."""
    for linear in (block.out, block.down):
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    return block


def frozen(block: nn.Module) -> nn.Module:
    return block.requires_grad_(False)


DISTANCE = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).clamp(min=0)
STEEP = -torch.tensor([3.0, 0.5, 0.25, 0.0])[:, None, None] * DISTANCE

DESIGNS: dict[str, Callable[[], list[nn.Module]]] = {
    "plain": lambda: [Part() for _ in range(3)],
    "gated branches": lambda: [Part(gate=0.0) for _ in range(3)],
    "zero-initialised branches": lambda: [zeroed(Part()) for _ in range(3)],
    "layer scale": lambda: [Part(gate=1e-6) for _ in range(3)],
    "adapters": lambda: [Adapted() for _ in range(3)],
    "experts": lambda: [Experts() for _ in range(3)],
    "top-k": lambda: [TopK() for _ in range(3)],
    "a head with a steep penalty": lambda: [Part(bias=STEEP) for _ in range(3)],
    "a frozen block that is closed": lambda: [frozen(Part(whole=0.0)), Part(), Part()],
}


def train(
    path: Path, blocks: list[nn.Module], config: dict[str, Any], watched: list[str] | None = None, lr: float = 3e-3
) -> steadyrun.RunView:
    torch.manual_seed(0)
    model = Model(blocks)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.01)
    declared = {"init": "random", "vocab_size": VOCAB, "weight_decay": 0.01, **config}
    with steadyrun.record(path, config=declared, every={"attention": 25, "dead_units": 25}) as run:
        run.watch(model, optimizer, blocks=watched)
        for step in range(STEPS):
            tokens = torch.randint(0, VOCAB, (8, LENGTH), generator=torch.Generator().manual_seed(step % 10))
            loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=tokens)
    return steadyrun.open_run(path)


def faults(view: steadyrun.RunView) -> list[tuple[str, str]]:
    answers = {
        code: question.ask(Signals(view)) for code, question in QUESTIONS.items() if code[0] == "S" or "C5" in code
    }
    return [(code, answer.message) for code, answer in answers.items() if answer.kind == FAULT]


@pytest.mark.parametrize("name", DESIGNS)
def test_a_healthy_design_is_no_fault(tmp_path: Path, name: str) -> None:
    torch.manual_seed(1)
    assert faults(train(tmp_path, DESIGNS[name](), {"causal": True})) == []


def test_every_module_named_as_a_block_is_no_fault(tmp_path: Path) -> None:
    """A pattern that matches the parts of blocks, too: branches that start at nothing are then called blocks."""
    torch.manual_seed(1)
    blocks: list[nn.Module] = [zeroed(Part()) for _ in range(3)]
    assert faults(train(tmp_path, blocks, {"causal": True}, watched=["blocks.*"])) == []


def test_attention_that_may_look_ahead(tmp_path: Path) -> None:
    """An encoder: nothing is declared of it, so that looking ahead is what it does."""
    torch.manual_seed(1)
    whole = torch.full((LENGTH, LENGTH), math.inf).nan_to_num(posinf=0.0)

    class Encoder(Part):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
            return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=whole).transpose(1, 2).flatten(-2))

    view = train(tmp_path, [Encoder() for _ in range(2)], {})
    assert view.series("future_attention/blocks.0").values.max() > 0.3
    assert faults(view) == []
    assert [code for code, _ in faults(train(tmp_path / "declared", [Encoder(), Encoder()], {"causal": True}))] == [
        "S1.1"
    ]


def test_a_closed_block_is_one(tmp_path: Path) -> None:
    """The same gates on all that comes out: of the first block nothing, of the next everything."""
    torch.manual_seed(1)
    blocks: list[nn.Module] = [Part(whole=gate) for gate in (0.0, 1.0, 1.0)]
    code_outcomes = faults(train(tmp_path, blocks, {"causal": True}, lr=3e-4))
    assert [code for code, _ in code_outcomes] == ["S4.2"]
