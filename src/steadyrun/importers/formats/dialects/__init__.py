"""The dialects of training programs: which lines they print, and what stands in them."""

from __future__ import annotations

from steadyrun.importers.formats.dialects import (
    coqui,
    deepspeed,
    fairseq,
    general,
    huggingface,
    llmc,
    megatron,
    nanogpt,
)
from steadyrun.importers.formats.dialects.form import Dialect

DIALECTS: tuple[Dialect, ...] = (
    megatron.DIALECT,
    deepspeed.DIALECT,
    huggingface.DIALECT,
    fairseq.DIALECT,
    nanogpt.DIALECT,
    nanogpt.MODDED,
    llmc.MAIN_LOG,
    llmc.DIALECT,
    coqui.DIALECT,
    general.DIALECT,
)

__all__ = ["DIALECTS", "Dialect"]
