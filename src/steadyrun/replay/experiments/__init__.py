"""The cause by experiment: the same moment again, with one thing changed at a time."""



from steadyrun.replay.experiments.sequence import OnRow, explain_incident
from steadyrun.replay.experiments.experiment_table import FactorRow, Why

__all__ = ["OnRow", "FactorRow", "Why", "explain_incident"]
