"""The names of a config that are compared with the run."""

from __future__ import annotations

NAMES = (
    *("seed", "dtype", "lr_max", "lr_min", "warmup_steps", "total_steps", "schedule", "batch_size", "accumulation"),
    *("clip", "weight_decay", "no_decay", "reduction", "vocab_size", "num_classes", "pad_id", "eos_id", "init"),
    *("baseline_loss", "val_every", "causal", "shuffle", "epochs", "num_epochs", "val_mode", "val_augmented"),
)
"""The names that are compared with what happened."""
