"""Job: short twins of a training program, one thing changed at a time, that decide what is wrong with a whole run.
May import: replay and below; torch when a twin trains.
Entry point: `trial.trial`, `twin.trained` in a worker.
Output: a `Trial`: a row per change with its interval, and the verdict.
"""
