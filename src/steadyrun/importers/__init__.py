"""Run directories out of the logs that other tools wrote.

A format gives rows, names as the log has them (`formats/`); one table says which of them is the loss, the learning
rate and so on (`roles.py`); one axis decides which step a row belongs to (`axis.py`); one writer makes a run directory
of it (`writing.py`). Nothing that is not in the log gets into the run.
"""
