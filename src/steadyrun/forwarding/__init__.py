"""Job: forward the recording to trackers and findings to people while the run continues.
May import: monitor and below; tensorboard, wandb, mlflow, apprise when asked for.
Entry point: `forwarding.prepare`.
Output: calls of trackers, messages to people.
"""
