"""The settings of a tutor run, and the config it declares to the recorder."""

from dataclasses import dataclass
from typing import Any

from steadyrun.tutor.corpus import TRAIN_PER_VERB, VERBS
from steadyrun.tutor.tokenizer import PAD_ID

DTYPES = ("fp32", "bf16", "fp16")
TRAIN_SENTENCES = TRAIN_PER_VERB * len(VERBS)


@dataclass(frozen=True)
class TutorConfig:
    """The intended settings of a tutor run, which the run declares.

    A fault changes the program and leaves the config alone, with two exceptions: if the mistake is a setting, such as
    a learning rate that is far too high, and if it shows only with gradient accumulation.

    `batch_size` counts the sentences of one forward pass; an optimizer step sees `accumulation` of them.
    `clip=None` trains without clipping. `corpus_seed` selects the sentences; `seed` fixes all other randomness.
    """

    seed: int = 42
    corpus_seed: int = 0
    steps: int = 2000
    batch_size: int = 8
    accumulation: int = 1
    lr_max: float = 3e-4
    lr_min: float = 3e-5
    warmup_steps: int = 100
    schedule: str = "cosine"
    weight_decay: float = 0.1
    clip: float | None = 1.0
    dtype: str = "fp32"
    device: str = "cpu"
    val_every: int = 100
    vocab_size: int = 512
    context: int = 32
    layers: int = 2
    width: int = 128
    heads: int = 4
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulation", "val_every", "layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be between 0 and 2**63 - 1, got {self.seed}")
        if not 0 <= self.warmup_steps <= self.steps:
            raise ValueError(f"warmup_steps must be between 0 and {self.steps} (steps), got {self.warmup_steps}")
        if self.batch_size > TRAIN_SENTENCES:
            raise ValueError(f"batch_size must be at most {TRAIN_SENTENCES} sentences, got {self.batch_size}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be positive, or None for no clipping, got {self.clip}")
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f"schedule must be cosine or constant, got {self.schedule!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")


def default_warmup(steps: int) -> int:
    """100 warmup steps, or a fifth of a shorter run."""
    return min(100, max(1, steps // 5))


def declared(config: TutorConfig, baseline_loss: float | None) -> dict[str, Any]:
    """The declared config for the manifest, under steadyrun's names."""
    return {
        "seed": config.seed,
        "dtype": config.dtype,
        "lr_max": config.lr_max,
        "lr_min": config.lr_min,
        "warmup_steps": config.warmup_steps,
        "total_steps": config.steps,
        "schedule": config.schedule,
        "batch_size": config.batch_size,
        "accumulation": config.accumulation,
        "clip": config.clip,
        "weight_decay": config.weight_decay,
        "no_decay": ["bias", "norm"],
        "reduction": "mean",
        "vocab_size": config.vocab_size,
        "pad_id": PAD_ID,
        "init": "random",
        "baseline_loss": baseline_loss,
        "val_every": config.val_every,
        "causal": True,
        "corpus_seed": config.corpus_seed,
        "context": config.context,
        "layers": config.layers,
        "width": config.width,
        "heads": config.heads,
        "dropout": config.dropout,
        "device": config.device,
    }
