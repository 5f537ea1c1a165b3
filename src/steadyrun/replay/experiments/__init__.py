"""Job: find the cause by experiment: repeat the incident with one change at a time.
May import: the rest of replay.
Entry point: `sequence.explain_incident`.
Output: a `Why`: a row per change, and the verdict.
"""

from steadyrun.replay.experiments.sequence import OnRow, explain_incident
from steadyrun.replay.experiments.verdict import FactorRow, Why

__all__ = ["FactorRow", "OnRow", "Why", "explain_incident"]
