"""The run directory: the one interface between recording and everything else.

Writing: `RunWriter`. Reading: `open_run`. Neither knows torch, and nothing in a run directory is ever
unpickled or executed. The layout is drawn in `docs/run-directory.md`.
"""
