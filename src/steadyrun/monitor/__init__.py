"""The live monitor: the questions of `check`, asked while the run is being recorded."""
