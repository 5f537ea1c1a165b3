"""The cause by experiment: the same moment again, with one thing changed at a time."""



from steadyrun.replay.experiments.sequence import OnRow, explain_incident
from steadyrun.replay.experiments.table import Row, Why

__all__ = ["OnRow", "Row", "Why", "explain_incident"]
