"""The programs of the second fleet. Each is one file; `diagnosis.second.loop` holds the bugs of the loop itself.

`train(folder, bug, seed)` records a run, `task(config)` builds the same program with the same bug, and `quality` scores
the trained model on held-out data, higher is better.
"""
