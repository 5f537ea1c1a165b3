"""trainproof 0.22.0: its verdict on a log, and its checks of the objective on the batches of the first steps."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from trainproof.epoch import check_epoch
from trainproof.objective import TargetCoverage, check_label_alignment

from diagnosis.cases import Case
from diagnosis.programs import seq2seq
from diagnosis.programs.text import Tokenizer
from diagnosis.tools.findings import Finding

LEVEL = {"FAIL": "error", "WARN": "warning"}
COVERED = 60  # batches whose targets are counted


def findings(log: Path, case: Case) -> list[Finding]:
    found = [] if not log.read_text("utf-8") else list(check_epoch(log)["findings"])
    found += objective(case)
    return [
        Finding(each["id"], LEVEL[each["level"]], f"{each['message']} {each.get('evidence', '')}")
        for each in found
        if each["level"] in LEVEL
    ]


def objective(case: Case) -> list[dict[str, Any]]:
    """For programs that predict tokens: every loss here takes labels that are shifted already."""
    if case.program not in ("char_gpt", "seq2seq"):
        return []
    steps = {"steps": case.changes["steps"]} if "steps" in case.changes else {"steps": 400}
    changes = {name: value for name, value in case.changes.items() if name != "steps"}
    config = case.module.configure(case.bug, case.seed, **steps, **changes)
    batches = [part for batch in islice(case.module.task(config).loader, COVERED) for part in _parts(batch)]
    inputs = "input_ids" if case.program == "char_gpt" else "decoder_input_ids"
    said = list(check_label_alignment(batches[0][inputs], batches[0]["labels"], loss_shifts=False))
    covered = TargetCoverage(config["vocab_size"], ignore_index=-100)
    for batch in batches:
        covered.observe(batch["labels"])
    # Padding and the mark of the start are never targets of a sound program either: nobody would ask about them.
    untargeted = {"char_gpt": {Tokenizer.pad_token_id}, "seq2seq": {seq2seq.PAD, seq2seq.SOS}}[case.program]
    return said + [each for each in covered.result() if not _named(each) or _named(each) - untargeted]


def _named(finding: dict[str, Any]) -> set[int]:
    """The classes that a finding calls dead: its evidence begins with their list."""
    if finding["id"] != "TP-OBJ-DEAD-CLASS":
        return set()
    return {int(number) for number in re.findall(r"\d+", finding["evidence"].split("]")[0])}


def _parts(batch: Any) -> list[dict[str, torch.Tensor]]:
    return batch if isinstance(batch, list) else [batch]
