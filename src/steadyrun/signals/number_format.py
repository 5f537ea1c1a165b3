"""What is known of a run's number formats and of its loss scaler."""

from __future__ import annotations

import numpy as np

from steadyrun.signals.run_signals import Signals

_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}


def regime(run: Signals) -> str:
    """The declared dtype, or else the parameters'; fp16 where a loss scale is recorded and nothing is declared."""
    declared = run.config.get("dtype")
    if isinstance(declared, str) and declared:
        return _NAMES.get(declared.lower().removeprefix("torch."), declared.lower())
    if run.has("loss_scale") and np.any(run.raw("loss_scale").values != 1):  # bf16 programs print a scale of 1
        return "fp16"
    dtype = run.inferred.get("dtype")
    return str(dtype) if isinstance(dtype, str) else ""


def longest_run(flags: np.ndarray) -> tuple[int, int]:
    """The longest stretch of true values: its length and where it begins."""
    if not np.any(flags):
        return 0, 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    lengths = edges[1::2] - edges[::2]
    index = int(np.argmax(lengths))
    return int(lengths[index]), int(edges[::2][index])
