"""The programs. None is the tutor, and each is one file with an ordinary training loop.

A bug is switched in where it really happens, by a line with its identifier; what the configuration declares stays what
was intended. `train(folder, bug, seed)` records a run as the README says; `task(config)` builds the same program,
with the same bug, for preflight and replay.
"""
