"""The cause by experiment: the same moment again, with one thing changed at a time."""

from steadyrun.incidents.why.running import OnRow, explain_incident
from steadyrun.incidents.why.table import Row, Why

__all__ = ["OnRow", "Row", "Why", "explain_incident"]
