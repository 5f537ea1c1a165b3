"""Job: asks the questions of `check` while the run goes on.
May import: report and below.
Entry point: `monitor.Monitor`.
Output: events, a line, a callback, a stop.
"""
