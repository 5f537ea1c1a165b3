"""What the bugs do to the programs: each next to its clean twin, and remarks where the curve does not show it."""

from __future__ import annotations

import math
from pathlib import Path

from diagnosis.harness import Log

# The healthy run that differs from a faulty one by the bug alone; the plain one of the program unless named here.
TWINS: dict[str, str] = {"char_gpt": "gpt", "mlp": "mlp", "resnet": "resnet", "bert": "bert", "seq2seq": "seq2seq"}
TWINS |= {f"char_gpt-{bug}": "gpt-resumed" for bug in ("B18", "B19", "B21")}
TWINS |= {f"seq2seq-{bug}": "seq2seq-resumed" for bug in ("B18", "B21")}
TWINS |= {f"mlp-{bug}": "mlp-fp16" for bug in ("B1", "B4", "B5")}
TWINS |= {f"mlp-{bug}": "mlp-batch-norm" for bug in ("A3", "B23")}
TWINS |= {f"mlp-{bug}": "mlp-regression" for bug in ("A8", "B10")}
TWINS |= {"mlp-B9": "mlp-yes-or-no", "mlp-B20": "mlp-fp16-resumed"}
TWINS |= {"char_gpt-B22": "gpt-tied", "char_gpt-B29": "gpt-tied", "resnet-A12": "resnet-sampler"}
TWINS |= {"resnet-A11": "resnet-workers", "resnet-B19": "resnet-resumed"}

# Why a bug is missed, where it is: by bug and program.
MISSED: dict[str, str] = {
    "A6 resnet": "after thirty steps a tenth of the rate is not ahead by a tenth of the first loss",
    "A33 resnet": "training pictures are augmented: none is equal to one of validation",
    "A34 seq2seq": "targets were permuted once: the decoder learns their language, and no example contradicts another",
    "B23 resnet": "two pictures have thousands of values per channel, and validation is no worse: the note A2.3",
    "C15 char_gpt": "attention entropy falls from 2.9 to 0.2 nats: recorded, but no limit is measured for it yet",
    "C16 char_gpt": "it hardly bites: the normaliser reaches 11, where healthy runs reach 7 to 10",
}

REMARKS: dict[str, str] = {
    "A1": "clipping and Adam hide it: slower in the GPT, even a little faster in the MLP and the ResNet",
    "A2": "the loss drops by the dropout's share at the first validation, no more; nothing is wrong with the curve",
    "A3": "validation is a little worse (dropout) or the same (batch normalisation); it is not the same when repeated",
    "A6": "nothing explodes: gradients are clipped, the loss stays three times as high",
    "A11": "nothing in the curve: workers draw the same shifts for different pictures",
    "A12": "nothing in the curve",
    "A19": "AdamW does not mind the scale of gradients: nothing in the curve, clipping engages at every step",
    "A21": "the loss of the token after the next stays higher by a third",
    "A25": "nothing in the curve: the end of a sentence is easy to predict, and is never learnt",
    "A26": "the loss looks better than the clean one: padding is easy",
    "A27": "the body makes up for a head that stays as it was drawn",
    "A33": "validation is lower by a hundredth where nothing is learnt by heart; only the examples themselves tell",
    "B1": "gradients clipped to 1e-5 of their size, where Adam's epsilon counts: the loss is higher by a tenth",
    "B2": "nothing in the curve: only the norm at the moment of the step tells",
    "B4": "the scaler skips the one bad step of every epoch, and training goes on",
    "B14": "the loss is NaN for one step; its gradients are zero, so training goes on",
    "B16": "the models learn to live with it: the loss is no worse",
    "B20": "ten skipped steps after the resume, and nothing else",
    "B21": "nothing in the curve",
    "B22": "nothing in the curve",
    "B26": "validation is a little worse and differs when repeated",
    "B30": "nothing in the curve",
    "C16": "log Z reaches 13 in 400 steps, where the clean run has 7.5: hardly a drift in a run this short",
}


def last_losses(log: Path) -> tuple[float, float] | None:
    """Training and validation loss at the end of a plain log; NaN where they are."""
    rows = Log.read(log) if log.is_file() else []
    if not rows:
        return None
    tail = [row["loss"] for row in rows[-max(1, len(rows) // 10) :]]
    validated = [row["val_loss"] for row in rows if "val_loss" in row]
    return sum(tail) / len(tail), validated[-1] if validated else math.nan


def twin(program: str, bug: str) -> str:
    return "healthy-" + (TWINS.get(f"{program}-{bug}") or TWINS[program])
