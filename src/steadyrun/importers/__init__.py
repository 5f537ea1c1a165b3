"""Job: run directories out of the logs that other tools wrote.
May import: store, signals and below; pyarrow; tensorboard, wandb, mlflow when asked for; never torch.
Entry point: `import_log.import_log`.
Output: a run directory; nothing that is not in the log gets into it.

A format gives rows under the names of the log (`formats/`); one table says which of them is the loss, the learning
rate and so on (`series_roles.py`); one axis decides which step a row belongs to (`step_axis.py`); one writer makes a
run directory of it (`convert.py`).
"""
