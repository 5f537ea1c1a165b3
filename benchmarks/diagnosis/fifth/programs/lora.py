"""LoRA written by hand: two narrow matrices beside each projection of attention, in a plain loop."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.fifth.chats import END, PAD, base, exact, tokenizer_of
from diagnosis.fifth.loop import Built, adamw, declared, run_through
from diagnosis.fifth.programs import sft
from diagnosis.harness import Config, Log, Record


class LoraLinear(nn.Module):
    """A linear layer with a frozen matrix and a trained detour of low rank."""

    def __init__(self, layer: nn.Linear, config: Config) -> None:
        super().__init__()
        rank, bug = config["rank"], config["bug"]
        self.base = layer
        self.lora_A = nn.Linear(layer.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, layer.out_features, bias=False)
        self.dropout, self.scale = nn.Dropout(config["lora_dropout"]), config["alpha"] / rank
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        if bug == "b-not-zero":
            nn.init.normal_(self.lora_B.weight)
        else:
            nn.init.zeros_(self.lora_B.weight)
        if bug == "both-zero":
            nn.init.zeros_(self.lora_A.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * self.lora_B(self.lora_A(self.dropout(x)))

    @torch.no_grad()
    def merge(self) -> None:
        """Add the detour to the matrix; whoever does it must take the detour away."""
        self.base.weight += self.scale * self.lora_B.weight @ self.lora_A.weight


def adapted(config: Config) -> nn.Module:
    model, bug = base(), config["bug"]
    if bug != "base-trains":
        model.requires_grad_(requires_grad=False)
    for block in model.model.layers:
        for owner in (block.self_attn, block.mlp):
            for name, layer in list(owner.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(owner, name, LoraLinear(layer, config))
    if bug == "b-frozen":
        for name, each in model.named_parameters():
            each.requires_grad_(requires_grad=each.requires_grad and "lora_B" not in name)
    return model


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 150, "lr_max": 1e-2, "batch_size": 16, "rows": 736, "world": "after", "max_length": 64}
    own |= {"packing": False, "whole_text": False, "init": "pretrained", "causal": True, "warmup_steps": 10}
    own |= {"rank": 8, "alpha": 16.0, "lora_dropout": 0.0}
    if bug == "alpha-x200":
        changes["alpha"] = 3200.0
    return declared("lora", bug, seed, changes, **own, pad_id=PAD, eos_id=END, vocab_size=len(tokenizer_of()))


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model = adapted(config)
    optimizer = adamw(model, config)
    if bug == "adapters-not-in-optimizer":  # the optimizer has what the list of names caught: the norms and the head
        wanted = [each for name, each in model.named_parameters() if "norm" in name or "lm_head" in name]
        for each in wanted:
            each.requires_grad_(requires_grad=True)
        optimizer = torch.optim.AdamW(wanted, lr=config["lr_max"], weight_decay=config["weight_decay"])
    built = Built(model, optimizer, sft.loss_fn, sft.batches(config), lambda: exact(model, config["world"], seed))
    built.held_out, built.watched = sft.held_out(config), {"tokenizer": tokenizer_of()}

    def merge() -> None:
        for module in model.modules():
            if isinstance(module, LoraLinear):
                module.merge()

    if bug == "merged-and-kept":  # merged for validation, and never taken out again
        built.before_validation = merge
    return run_through(built, config, folder, record)
