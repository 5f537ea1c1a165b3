"""The hunt for the operation that made the first guilty NaN or infinity of a step."""

from steadyrun.incidents.hunt.culprit import Culprit, Range
from steadyrun.incidents.hunt.hunting import hunt
from steadyrun.incidents.hunt.precision import as_float32, fp32

__all__ = ["Culprit", "Range", "as_float32", "fp32", "hunt"]
