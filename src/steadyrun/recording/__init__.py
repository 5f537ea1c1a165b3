"""Job: `steadyrun.record` and the `Run` it returns; starts probes, capture, the monitor and forwarding.
May import: everything below it: probes, capture, monitor, forwarding, preflight, replay.
Entry point: `record.record`, `run.Run`.
Output: a run directory.
"""
