"""Job: one file per kind of log, and the table of them; detection goes from top to bottom.
May import: the rest of importers.
Entry point: `FORMATS`.
Output: rows under the names of the log.
"""

from __future__ import annotations

from steadyrun.importers.formats import (
    aim,
    csvfile,
    jsonfile,
    mlflow,
    parquet,
    printed_text,
    sqlite,
    tensorboard,
    trainer_state,
    wandb,
)
from steadyrun.importers.log_rows import Format

FORMATS: tuple[Format, ...] = (
    tensorboard.FORMAT,
    aim.FORMAT,
    wandb.FORMAT,
    mlflow.FORMAT,
    sqlite.FORMAT,
    parquet.FORMAT,
    trainer_state.FORMAT,
    *jsonfile.FORMATS,
    *csvfile.FORMATS,
    *printed_text.FORMATS,
)
