"""Job: train short twins of a program, each with one change, to decide what is wrong with a whole run.
May import: replay and below; torch when a twin trains.
Entry point: `trial.trial`, `twin.trained` in a worker.
Output: a `Trial` with a row per change, its confidence interval, and the verdict.
"""
