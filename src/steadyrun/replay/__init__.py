"""Job: re-run an incident: proof, hunt, experiments, export.
May import: capture and below; torch.
Entry point: `replay.replay`.
Output: a `Replay`; replay.json and experiments.json in the incident folder.
"""
