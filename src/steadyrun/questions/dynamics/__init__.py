"""The questions D…: what happened while it trained? Their order and edges are in `trees/dynamics.py`."""
