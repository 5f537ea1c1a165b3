"""The questions V…: signs of life. All green is what "healthy" rests on; their order is in `trees/vital_signs.py`."""
