"""The questions V…: vital signs. "healthy" needs all of them green; their order is in `trees/vital_signs.py`."""
