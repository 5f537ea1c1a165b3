"""The questions D…: what happened during training. Their order and edges are in `trees/dynamics.py`."""
