"""Job: one file per program that prints lines: which lines, and what stands in them.
May import: the rest of importers.
Entry point: `DIALECTS`.
Output: rows under the names of the lines.
"""

from __future__ import annotations

from steadyrun.importers.formats.dialects import (
    boosting,
    boxes,
    coqui,
    deepspeed,
    fairseq,
    grouped_table,
    huggingface,
    kaldi,
    keras,
    llmc,
    megatron,
    names_and_numbers,
    nanogpt,
    number_rows,
    printed_lists,
    printed_table,
    program_end,
)
from steadyrun.importers.formats.dialects.dialect import Dialect

DIALECTS: tuple[Dialect, ...] = (
    megatron.DIALECT,
    deepspeed.DIALECT,
    huggingface.DIALECT,
    fairseq.DIALECT,
    nanogpt.DIALECT,
    nanogpt.MODDED,
    nanogpt.PLAIN,
    llmc.MAIN_LOG,
    llmc.DIALECT,
    coqui.DIALECT,
    keras.DIALECT,
    boosting.DIALECT,
    kaldi.DIALECT,
    boxes.DIALECT,
    printed_lists.DIALECT,
    grouped_table.DIALECT,
    printed_table.RESULTS,
    printed_table.DIALECT,
    names_and_numbers.DIALECT,
    boxes.BARE,
    number_rows.DIALECT,
    number_rows.VALUES,
    program_end.DIALECT,
)

__all__ = ["DIALECTS", "Dialect"]
