"""The questions C…: whether the run is set up as intended. Their order and edges are in `trees/configuration.py`."""
