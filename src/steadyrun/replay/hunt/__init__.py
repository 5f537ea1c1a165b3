"""Job: find the operation that produced the first harmful NaN or infinity of a step.
May import: program and below; torch.
Entry point: `search.hunt`.
Output: a `Culprit`.
"""

from steadyrun.replay.hunt.culprit import Culprit, Range
from steadyrun.replay.hunt.float32_rerun import as_float32, fp32
from steadyrun.replay.hunt.search import hunt

__all__ = ["Culprit", "Range", "as_float32", "fp32", "hunt"]
