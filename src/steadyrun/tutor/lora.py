"""Adapters by hand (LoRA) on the linear layers of a model that has read the sentences; the base stays frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.exchanges import answers
from steadyrun.tutor.recipe import Recipe

RANK, ALPHA = 32, 64


class LoRA(nn.Module):
    """A linear layer plus a trained product of two narrow matrices, which starts at zero."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scaling: float = ALPHA / RANK

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.scaling * self.lora_B(self.lora_A(x))
        return out


def adapters(recipe: Recipe, layer: Callable[[nn.Linear], LoRA] = LoRA, *, frozen: bool = True) -> Recipe:
    """Fine-tuning on the answers with adapters in all blocks."""
    tuned = answers(recipe)

    def build_model(config: TutorConfig) -> nn.Module:
        model = tuned.build_model(config).requires_grad_(not frozen)
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear) and name != "head" and not isinstance(module, LoRA):
                    setattr(module, name, layer(child))
        return model

    return replace(tuned, config=replace(tuned.config, lr_max=1e-3, lr_min=1e-4), build_model=build_model)
