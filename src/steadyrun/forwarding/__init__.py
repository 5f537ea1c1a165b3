"""Job: sends what was recorded to trackers and what was found to people, while the run goes on.
May import: monitor and below; tensorboard, wandb, mlflow, apprise when asked for.
Entry point: `forwarding.prepare`.
Output: calls of trackers, messages to people.
"""
