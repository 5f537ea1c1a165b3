"""The cases: which bug is built into which program, and which healthy runs there are."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from diagnosis.causes import CAUSES

# A bug that several programs have must be found in each of them; generic bugs are built into three.
PROGRAMS_OF: dict[str, str] = {
    "A1": "char_gpt mlp resnet",
    "A2": "char_gpt resnet bert",
    "A3": "char_gpt mlp resnet",
    "A4": "mlp resnet bert",
    "A6": "char_gpt mlp resnet",
    "A7": "char_gpt mlp seq2seq",
    "A8": "mlp",
    "A10": "mlp resnet bert",
    "A11": "resnet",
    "A12": "char_gpt resnet",
    "A15": "char_gpt mlp bert",
    "A16": "char_gpt mlp resnet",
    "A17": "char_gpt resnet bert",
    "A19": "char_gpt mlp resnet",
    "A21": "char_gpt seq2seq",
    "A22": "char_gpt seq2seq",
    "A23": "char_gpt",
    "A25": "char_gpt seq2seq",
    "A26": "char_gpt seq2seq",
    "A27": "char_gpt bert seq2seq",
    "A28": "char_gpt mlp resnet",
    "A29": "char_gpt resnet bert",
    "A30": "char_gpt bert seq2seq",
    "A31": "mlp bert seq2seq",
    "A33": "char_gpt mlp resnet",
    "A34": "mlp bert seq2seq",
    "B1": "mlp",
    "B2": "char_gpt mlp seq2seq",
    "B4": "mlp",
    "B5": "mlp",
    "B6": "char_gpt",
    "B9": "mlp",
    "B10": "mlp",
    "B11": "char_gpt",
    "B14": "char_gpt seq2seq",
    "B15": "char_gpt bert",
    "B16": "char_gpt bert seq2seq",
    "B18": "char_gpt mlp seq2seq",
    "B19": "char_gpt resnet bert",
    "B20": "mlp",
    "B21": "char_gpt mlp seq2seq",
    "B22": "char_gpt",
    "B23": "mlp resnet",
    "B26": "resnet",
    "B29": "char_gpt",
    "B30": "char_gpt mlp bert",
    "B31": "char_gpt seq2seq",
    "C15": "char_gpt",
    "C16": "char_gpt",
    "C18": "mlp",
    "C19": "mlp",
    "E1": "mlp",
    "E2": "mlp",
    "E3": "mlp",
    "E4": "mlp",
    "E5": "mlp",
    "C71": "char_gpt mlp resnet",
    "C73": "char_gpt mlp resnet",
    "C74": "mlp resnet",
    "C75": "char_gpt mlp",
    "C76": "resnet",
}

# What a program needs beside torch; where it is not installed, its cases are left out.
NEEDS = {
    **dict.fromkeys(("bert", "masked_lm", "sft", "lora", "dpo"), "transformers"),
    **dict.fromkeys(("sft_trl", "dpo_trl", "grpo_trl", "reward"), "trl"),
    "lora_peft": "peft",
}

# Name: program and the settings that make it different. All of them are as they should be.
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("char_gpt", {}),
    "gpt-sgd": ("char_gpt", {"optimizer": "sgd", "lr_max": 0.3, "lr_min": 0.03, "weight_decay": 1e-4}),
    "gpt-adafactor": ("char_gpt", {"optimizer": "adafactor", "lr_max": 0.03, "lr_min": 0.003}),
    "gpt-constant-rate": ("char_gpt", {"schedule": "constant"}),
    "gpt-linear-decay": ("char_gpt", {"schedule": "linear"}),
    "gpt-warmup-from-zero": ("char_gpt", {"warmup_from_zero": True, "warmup_steps": 50}),
    "gpt-warm-restarts": ("char_gpt", {"schedule": "cosine-warm-restarts", "warmup_steps": 0}),
    "gpt-bf16": ("char_gpt", {"dtype": "bf16", "steps": 200}),
    "gpt-accumulation": ("char_gpt", {"accumulation": 4, "steps": 250}),
    "gpt-resumed": ("char_gpt", {"resume_at": 200}),
    "gpt-dropout-half": ("char_gpt", {"dropout": 0.5}),
    "gpt-tied": ("char_gpt", {"tie_word_embeddings": True}),
    "gpt-tiny-batches": ("char_gpt", {"batch_size": 2}),
    "gpt-unclipped": ("char_gpt", {"clip": None}),
    "gpt-packed": ("language", {"kind": "packed"}),
    "gpt-checkpointing": ("language", {"kind": "checkpointing"}),
    "gpt-ema": ("language", {"kind": "ema"}),
    "gpt-recovering-spike": ("language", {"kind": "recovering-spike"}),
    "gpt-fine-tuning": ("language", {"kind": "fine-tuning"}),
    "gpt-lora": ("language", {"kind": "lora"}),
    "gpt-linear-probe": ("language", {"kind": "probe"}),
    "gpt-frozen-body": ("language", {"kind": "frozen-body"}),
    "mlp": ("mlp", {}),
    "mlp-sgd": ("mlp", {"optimizer": "sgd", "lr_max": 0.05}),
    "mlp-rmsprop": ("mlp", {"optimizer": "rmsprop", "lr_max": 1e-3}),
    "mlp-no-schedule": ("mlp", {"schedule": None}),
    "mlp-one-cycle": ("mlp", {"schedule": "one-cycle"}),
    "mlp-plateau": ("mlp", {"schedule": "plateau"}),
    "mlp-rate-halved-per-epoch": ("mlp", {"schedule": "step-per-epoch"}),
    "mlp-sum-loss": ("mlp", {"reduction": "sum", "clip": None}),
    "mlp-fixed-order": ("mlp", {"shuffle": False}),
    "mlp-batch-norm": ("mlp", {"batch_norm": True}),
    "mlp-regression": ("mlp", {"kind": "number"}),
    "mlp-yes-or-no": ("mlp", {"kind": "yes-or-no"}),
    "mlp-full-batch": ("mlp", {"batch_size": 3200, "steps": 200, "val_every": 20}),
    "mlp-tiny-batches": ("mlp", {"batch_size": 4}),
    "mlp-fp16": ("mlp", {"dtype": "fp16"}),
    "mlp-fp16-resumed": ("mlp", {"dtype": "fp16", "resume_at": 200, "loss_scale": 2.0**28}),
    "mlp-dropout-half": ("mlp", {"dropout": 0.5}),
    "resnet": ("resnet", {}),
    "resnet-sgd": ("resnet", {"optimizer": "sgd", "lr_max": 0.05, "weight_decay": 5e-4}),
    "resnet-one-cycle": ("resnet", {"schedule": "one-cycle"}),
    "resnet-plateau": ("resnet", {"schedule": "plateau"}),
    "resnet-rate-halved-per-epoch": ("resnet", {"schedule": "step-per-epoch"}),
    "resnet-bf16": ("resnet", {"dtype": "bf16", "steps": 200}),
    "resnet-group-norm-batch-1": ("resnet", {"norm": "group", "batch_size": 1, "lr_max": 1e-3, "steps": 1500}),
    "resnet-label-smoothing": ("resnet", {"smoothing": 0.1}),
    "resnet-mixup": ("resnet", {"mixup": True}),
    "resnet-imbalance": ("resnet", {"imbalance": True}),
    "resnet-workers": ("resnet", {"workers": 2}),
    "resnet-sampler": ("resnet", {"distributed": True}),
    "resnet-accumulation": ("resnet", {"accumulation": 4, "norm": "group"}),
    "resnet-resumed": ("resnet", {"resume_at": 150}),
    "bert": ("bert", {}),
    "bert-label-smoothing": ("bert", {"smoothing": 0.1}),
    "bert-adafactor": ("bert", {"optimizer": "adafactor", "lr_max": 0.01}),
    "bert-bf16": ("bert", {"dtype": "bf16", "steps": 200}),
    "bert-dropout": ("bert", {"dropout": 0.3}),
    "bert-masked-lm": ("masked_lm", {}),
    "seq2seq": ("seq2seq", {}),
    "seq2seq-sgd": ("seq2seq", {"optimizer": "sgd", "lr_max": 0.5, "lr_min": 0.05, "weight_decay": 0.0}),
    "seq2seq-rmsprop": ("seq2seq", {"optimizer": "rmsprop", "lr_max": 2e-3}),
    "seq2seq-resumed": ("seq2seq", {"resume_at": 250}),
    "seq2seq-warm-restarts": ("seq2seq", {"schedule": "cosine-warm-restarts", "warmup_steps": 0}),
    "autoencoder": ("objectives", {"kind": "autoencoder"}),
    "denoising": ("objectives", {"kind": "denoising"}),
    "vae": ("objectives", {"kind": "vae"}),
    "contrastive": ("objectives", {"kind": "contrastive"}),
    "distillation": ("objectives", {"kind": "distillation"}),
    "multi-task": ("objectives", {"kind": "multi-task"}),
    "auxiliary-loss": ("objectives", {"kind": "auxiliary"}),
    "cosine-loss": ("objectives", {"kind": "cosine"}),
    "gan": ("gan", {}),
    "grokking": ("grokking", {}),
    "gradients-zeroed-at-the-end": ("tabular", {"kind": "plain", "zero_grad": "end"}),
    "gradients-kept-as-zeros": ("tabular", {"kind": "plain", "zero_grad": "keep"}),
    "unused-pooler": ("tabular", {"kind": "unused-pooler"}),
    "looks-in-between": ("tabular", {"kind": "looks-in-between", "dropout": 0.3}),
    "random-validation": ("tabular", {"kind": "random-validation"}),
    "one-class-of-95": ("tabular", {"kind": "imbalance"}),
    "every-row-in-every-step": ("tabular", {"kind": "plain", "batch_size": 2000}),
}


@dataclass(frozen=True)
class Case:
    """One run to be judged; `bug` is None where nothing is wrong with it."""

    name: str
    program: str
    bug: str | None
    seed: int
    changes: dict[str, Any] = field(default_factory=dict)
    fleet: str = "first"

    @property
    def module(self) -> Any:
        if self.fleet != "first":
            return importlib.import_module(f"diagnosis.{self.fleet}.programs.{self.program}")
        try:
            return importlib.import_module(f"diagnosis.programs.{self.program}")
        except ModuleNotFoundError as problem:
            if problem.name != f"diagnosis.programs.{self.program}":
                raise
            return importlib.import_module(f"diagnosis.healthy.{self.program}")


def left_out(chosen: list[Case]) -> dict[str, str]:
    """Programs that cannot be run here, and the package they need."""
    programs = {case.program for case in chosen} & NEEDS.keys()
    return {name: NEEDS[name] for name in sorted(programs) if find_spec(NEEDS[name]) is None}


def cases(seeds: int = 3, only: str = "*") -> list[Case]:
    """All cases whose name fits; `only` may be a pattern such as 'mlp-A*'."""
    found = []
    assert PROGRAMS_OF.keys() == CAUSES.keys()
    for bug, programs in PROGRAMS_OF.items():
        for program in programs.split():
            found += [Case(f"{program}-{bug}-{seed}", program, bug, seed) for seed in range(1, seeds + 1)]
    for name, (program, changes) in HEALTHY.items():
        found.append(Case(f"healthy-{name}", program, None, 1, changes))
    return [case for case in found if fnmatch.fnmatchcase(case.name, only)]


Healthy = Mapping[str, tuple[str, dict[str, Any]]]
"""By name: a program, and what is changed in it."""


def twin_of(twins: str, healthy: Healthy, program: str) -> str:
    """The healthy case of a program among the twins of a bug."""
    return "healthy-" + next(name for name in twins.split() if healthy[name][0] == program)


def cases_of(fleet: str, twins: Mapping[str, str], healthy: Healthy, seeds: int, only: str) -> list[Case]:
    """The cases of a frozen fleet: each bug in the programs of its healthy twins, and the healthy runs."""
    found = []
    for bug, names in twins.items():
        for program, changes in (healthy[name] for name in names.split()):
            found += [
                Case(f"{program}-{bug}-{seed}", program, bug, seed, changes, fleet) for seed in range(1, seeds + 1)
            ]
    for name, (program, changes) in healthy.items():
        found.append(Case(f"healthy-{name}", program, None, 1, changes, fleet))
    return [case for case in found if fnmatch.fnmatchcase(case.name, only)]
