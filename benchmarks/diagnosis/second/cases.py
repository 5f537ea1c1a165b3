"""The cases of the second fleet: which bug is built into which program, and which healthy runs there are."""

from __future__ import annotations

import fnmatch
from typing import Any

from diagnosis.cases import Case
from diagnosis.second.causes import CAUSES

SGD: dict[str, Any] = {"optimizer": "sgd", "weight_decay": 1e-4}

# Name: program and the settings that make it different. All of them are as they should be, and all of them learn.
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    "keyword": ("keyword", {}),
    "keyword-sgd": ("keyword", SGD | {"lr_max": 0.05}),
    "keyword-label-smoothing": ("keyword", {"smoothing": 0.1}),
    "keyword-imbalance": ("keyword", {"imbalance": True, "steps_per_epoch": 33}),
    "keyword-accumulation": ("keyword", {"accumulation": 4}),
    "keyword-resumed": ("keyword", {"resume_at": 150}),
    "keyword-harder-validation": ("keyword", {"harder_validation": 1.0}),
    "keyword-dropout-half": ("keyword", {"dropout": 0.5}),
    "keyword-one-cycle": ("keyword", {"schedule": "one-cycle", "lr_max": 1e-2}),
    "keyword-tiny-batches": ("keyword", {"batch_size": 4, "steps_per_epoch": 400, "lr_max": 1e-3, "steps": 600}),
    "keyword-loud": ("keyword", {"volume": 1000.0}),
    "keyword-noise-from-the-middle-on": ("keyword", {"noise_from": 150}),
    "keyword-sum-loss": ("keyword", {"reduction": "sum", "clip": None, "batch_size": 40, "steps_per_epoch": 40}),
    "segment": ("segment", {}),
    "segment-sgd": ("segment", SGD | {"lr_max": 0.1}),
    "segment-weighted-classes": ("segment", {"weighted": True}),
    "segment-two-pictures": ("segment", {"norm": "group", "batch_size": 2, "steps_per_epoch": 240, "steps": 600}),
    "segment-resumed": ("segment", {"resume_at": 150}),
    "segment-sum-over-pixels": ("segment", {"reduction": "sum", "clip": None}),
    "segment-accumulation": ("segment", {"accumulation": 3, "norm": "group", "steps": 500}),
    "segment-warm-restarts": ("segment", {"schedule": "cosine-warm-restarts"}),
    "forecast": ("forecast", {}),
    "forecast-outliers": ("forecast", {"outliers": True, "loss": "smooth-l1"}),
    "forecast-loss-x10000": ("forecast", {"loss_scale": 1e4, "clip": None}),
    "forecast-resumed": ("forecast", {"resume_at": 200}),
    "forecast-dropout": ("forecast", {"dropout": 0.3}),
    "forecast-unclipped": ("forecast", {"clip": None}),
    "forecast-rmsprop": ("forecast", {"optimizer": "rmsprop", "lr_max": 4e-3}),
    "forecast-sentinels": ("forecast", {"filler": -5.0}),
    "recommend": ("recommend", {}),
    "recommend-rarely-liked": ("recommend", {"rare": True, "steps_per_epoch": 40}),
    "recommend-sum-loss": ("recommend", {"reduction": "sum"}),
    "recommend-resumed": ("recommend", {"resume_at": 250}),
    "recommend-large-batches": ("recommend", {"batch_size": 2000, "steps_per_epoch": 8, "steps": 300}),
    "recommend-dropout": ("recommend", {"dropout": 0.3}),
    "vae": ("vae", {}),
    "vae-negative-loss": ("vae", {"constant": -35.0}),
    "vae-half-divergence": ("vae", {"beta": 0.5}),
    "vae-resumed": ("vae", {"resume_at": 250}),
    "vae-warm-restarts": ("vae", {"schedule": "cosine-warm-restarts"}),
    "actor": ("actor", {}),
    "actor-rewards-x100": ("actor", {"reward_scale": 100.0, "entropy": 1.0}),
    "actor-normalised": ("actor", {"normalised": True}),
    "actor-masked-moves": ("actor", {"masked": True}),
    "graph": ("graph", {}),
    "graph-full-batch": ("graph", {"batch_size": 200, "steps_per_epoch": 1}),
    "graph-dropout-60": ("graph", {"dropout": 0.6}),
    "graph-tanh": ("graph", {"activation": "tanh"}),
    "graph-sgd": ("graph", SGD | {"lr_max": 0.2}),
    "graph-sgd-accumulation": ("graph", SGD | {"lr_max": 0.5, "accumulation": 5, "clip": None}),
    "graph-label-smoothing": ("graph", {"smoothing": 0.1}),
    "contrast": ("contrast", {}),
    "contrast-warm": ("contrast", {"temperature": 0.5}),
    "contrast-small-batches": ("contrast", {"batch_size": 10, "steps_per_epoch": 160, "steps": 600}),
    "contrast-long-warmup": ("contrast", {"warmup_steps": 200}),
    "ctc": ("ctc", {}),
    "ctc-short-ones-first": ("ctc", {"curriculum": True}),
    "ctc-early-plateau": ("ctc", {"lr_max": 1e-3, "steps": 600, "schedule": "constant"}),
    "ctc-sum-loss": ("ctc", {"reduction": "sum", "clip": None}),
    "ctc-resumed": ("ctc", {"resume_at": 200}),
    "diffusion": ("diffusion", {}),
    "diffusion-tiny-batches": ("diffusion", {"batch_size": 10, "steps_per_epoch": 200, "steps": 600}),
    "diffusion-bf16": ("diffusion", {"dtype": "bf16"}),
    "diffusion-zero-output": ("diffusion", {"zero_last": True}),
    "diffusion-loss-x1000": ("diffusion", {"loss_scale": 1e3, "clip": None}),
    "diffusion-constant-rate": ("diffusion", {"schedule": "constant"}),
    "diffusion-accumulation": ("diffusion", {"accumulation": 4}),
    "finetune": ("finetune", {}),
    "finetune-frozen-body": ("finetune", {"frozen": True, "lr_max": 1e-2}),
    "finetune-long-warmup": ("finetune", {"warmup_steps": 120}),
    "finetune-label-smoothing": ("finetune", {"smoothing": 0.1}),
    "finetune-dropout": ("finetune", {"dropout": 0.2}),
    "finetune-plateau": ("finetune", {"schedule": "plateau", "warmup_steps": 0}),
}

# The healthy runs that each bug is built into: a faulty run differs from its twin by the bug alone.
TWINS_OF: dict[str, str] = {
    "rate-too-high": "keyword-sgd segment-sgd forecast vae",
    "rate-too-low": "ctc vae recommend keyword",
    "decay-too-high": "keyword recommend forecast",
    "dropout-too-high": "graph finetune recommend",
    "smoothing-too-high": "keyword finetune",
    "clip-too-tight": "graph-sgd keyword-sgd",
    "epsilon-too-large": "forecast diffusion",
    "momentum-too-high": "segment-sgd keyword-sgd",
    "betas-swapped": "vae ctc",
    "temperature-too-high": "contrast",
    "start-too-wide": "forecast vae diffusion",
    "start-all-alike": "diffusion vae",
    "same-batch": "segment contrast recommend",
    "tiny-data": "ctc keyword",
    "duplicated": "keyword",
    "sorted": "keyword-sgd",
    "labels-permuted": "graph finetune keyword ctc",
    "labels-partly-wrong": "segment graph keyword",
    "labels-truncated": "ctc",
    "one-batch-in-other-units": "forecast-unclipped",
    "labels-numbered-anew": "keyword",
    "val-not-normalised": "keyword forecast segment",
    "another-vocabulary": "finetune",
    "identifiers-shifted": "recommend",
    "validation-in-training": "graph finetune recommend",
    "decoder-sees-target": "forecast",
    "teacher-forced": "forecast",
    "same-view": "contrast",
    "part-not-in-optimizer": "segment ctc contrast",
    "cut-off": "contrast vae forecast",
    "unregistered": "segment diffusion",
    "input-ignored": "graph diffusion",
    "checkpoint-not-loaded": "finetune-frozen-body",
    "micro-batches-lost": "keyword-accumulation diffusion-accumulation",
    "padding-learned": "forecast-sentinels segment finetune",
    "mask-inverted": "forecast-sentinels finetune",
    "dead-units": "keyword diffusion vae",
    "inputs-not-scaled": "forecast diffusion",
    "vanishing": "diffusion",
    "batchnorm-momentum-0": "keyword segment",
    "eval-left-on": "keyword segment",
    "validated-in-training-mode": "graph-dropout-60 keyword-dropout-half",
    "divergence-x50": "vae",
    "divergence-sign": "vae",
    "wrong-reduction": "vae",
    "no-negatives": "contrast recommend",
    "entropy-too-heavy": "actor",
    "advantage-sign": "actor",
    "returns-reversed": "actor",
    "stepped-per-epoch": "ctc finetune",
    "horizon-in-epochs": "ctc segment",
    "rate-grows": "diffusion keyword",
    "decayed-too-soon": "contrast forecast",
    "optimizer-rebuilt": "recommend vae",
    "optimizer-of-a-copy": "actor graph",
    "never-zeroed": "forecast recommend",
    "erased": "graph finetune",
    "clipped-after-step": "forecast",
    "not-divided": "graph-sgd-accumulation",
    "log-of-zero": "actor-masked-moves vae",
    "nan-example": "forecast segment",
    "impossible-example": "ctc",
    "half-precision": "diffusion recommend",
    "root-of-zero": "graph contrast",
    "softmax-twice": "keyword segment finetune",
    "softmax-over-batch": "graph finetune",
    "blank-is-a-symbol": "ctc",
    "broadcast": "forecast",
    "wrong-target": "diffusion",
    "variance-for-deviation": "diffusion",
    "optimizer-lost": "forecast-resumed recommend-resumed",
    "schedule-restarted": "segment-resumed recommend-resumed",
    "data-restarted": "keyword-resumed",
    "old-weights": "vae-resumed",
    "partly-loaded": "ctc-resumed segment-resumed",
}


def twin(program: str, bug: str) -> str:
    """The healthy case that a faulty one differs from by the bug alone."""
    return "healthy-" + next(name for name in TWINS_OF[bug].split() if HEALTHY[name][0] == program)


def cases(seeds: int = 3, only: str = "*") -> list[Case]:
    """All cases whose name fits; `only` may be a pattern such as 'vae-*'."""
    found = []
    assert TWINS_OF.keys() == CAUSES.keys()
    for bug, twins in TWINS_OF.items():
        for program, changes in (HEALTHY[name] for name in twins.split()):
            found += [
                Case(f"{program}-{bug}-{seed}", program, bug, seed, changes, "second") for seed in range(1, seeds + 1)
            ]
    for name, (program, changes) in HEALTHY.items():
        found.append(Case(f"healthy-{name}", program, None, 1, changes, "second"))
    return [case for case in found if fnmatch.fnmatchcase(case.name, only)]
