"""The questions C…: is the run set up as it was meant? Their order and edges are in `trees/configuration.py`."""
