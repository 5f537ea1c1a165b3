"""The part of the fifth fleet whose programs have other objectives: healthy runs, bugs and their causes.

`HEALTHY`, `TWINS_OF` and `CAUSES` are joined with those of the other part by cases.py and causes.py; `cases` and `twin`
are for this part alone. damage_objectives.json has the numbers that `python -m diagnosis.fifth.quality_objectives`
measures. It was written without asking steadyrun anything; which answers name a cause was chosen by the titles of the
questions (families.py), so a code without an outcome stands for all its outcomes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from diagnosis.cases import Case, cases_of, twin_of
from diagnosis.fifth.cause import Cause
from diagnosis.second.causes import in_words

# Name: program and the settings that make it different. All of them are as they should be, and all of them learn.
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    "vae": ("vae", {}),
    "vae-kl-warm-up": ("vae", {"kl_schedule": "warm-up"}),
    "vae-kl-cyclical": ("vae", {"kl_schedule": "cyclical"}),
    "vae-small-beta": ("vae", {"beta": 0.1}),
    "vae-beta-2": ("vae", {"beta": 2.0}),
    "vae-free-bits": ("vae", {"free_nats": 0.25}),
    "vae-gaussian": ("vae", {"likelihood": "gaussian"}),
    "gan": ("gan", {}),
    "gan-one-sided-smoothing": ("gan", {"real_label": 0.9}),
    "gan-hinge": ("gan", {"loss": "hinge"}),
    "gan-wasserstein": ("gan", {"loss": "wasserstein"}),
    "gan-equal-rates": ("gan", {"lr_max": 2e-4, "lr_critic": 2e-4}),
    "gan-dropout": ("gan", {"dropout": 0.3}),
    "diffuse": ("diffuse", {}),
    "diffuse-cosine": ("diffuse", {"noise_schedule": "cosine"}),
    "diffuse-velocity": ("diffuse", {"prediction_type": "v_prediction"}),
    "diffuse-sample": ("diffuse", {"prediction_type": "sample"}),
    "diffuse-min-snr": ("diffuse", {"weighting": "min-snr"}),
    "diffuse-without-average": ("diffuse", {"ema_decay": 0.0}),
    "diffuse-small-batches": ("diffuse", {"batch_size": 24}),
    "contrast": ("contrast", {}),
    "contrast-small-batches": ("contrast", {"batch_size": 16, "steps": 700}),
    "contrast-warm": ("contrast", {"temperature": 0.7}),
    "contrast-cold": ("contrast", {"temperature": 0.07}),
    "contrast-learned-temperature": ("contrast", {"learned_temperature": True, "temperature": 0.3}),
    "siam": ("siam", {}),
    "siam-without-copy": ("siam", {"ema_decay": 0.0}),
    "siam-slow-copy": ("siam", {"ema_decay": 0.99}),
    "siam-large-batches": ("siam", {"batch_size": 96, "steps": 300}),
    "distil": ("distil", {}),
    "distil-hot": ("distil", {"temperature": 15.0}),
    "distil-teacher-alone": ("distil", {"alpha": 1.0}),
    "distil-logits": ("distil", {"soft": "logits"}),
    "distil-labels-half-guessed": ("distil", {"labels_right": 0.5, "alpha": 0.9}),
    "distil-small-batches": ("distil", {"batch_size": 8, "lr_max": 5e-4}),
    "quantise": ("quantise", {}),
    "quantise-256-codes": ("quantise", {"codes": 256}),
    "quantise-8-codes": ("quantise", {"codes": 8}),
    "quantise-commitment-of-1": ("quantise", {"commitment": 1.0}),
}

# The healthy runs that each bug is built into: a faulty run differs from its twin by the bug alone.
TWINS_OF: dict[str, str] = {
    "kl-sign": "vae",
    "kl-x80": "vae-kl-warm-up",
    "kl-forgotten": "vae",
    "pixels-averaged": "vae",
    "noise-missing": "vae",
    "logarithm-for-spread": "vae",
    "code-not-decoded": "vae",
    "sigmoid-twice": "vae",
    "generator-not-in-optimizer": "gan",
    "generator-labels-swapped": "gan",
    "generator-cut-off": "gan",
    "generator-never-stepped": "gan",
    "critic-never-zeroed": "gan",
    "critic-all-real": "gan",
    "critic-sign": "gan-wasserstein",
    "penalty-forgotten": "gan-wasserstein",
    "noise-not-drawn": "gan",
    "range-mismatch": "gan",
    "sigmoid-in-critic": "gan",
    "pixels-not-scaled": "gan diffuse",
    "picture-for-noise": "diffuse",
    "noisy-picture-as-target": "diffuse",
    "time-not-given": "diffuse",
    "first-time-only": "diffuse",
    "noise-drawn-once": "diffuse",
    "alphas-not-multiplied": "diffuse",
    "roots-forgotten": "diffuse",
    "weight-sign": "diffuse",
    "average-never-updated": "diffuse",
    "average-of-0.99999": "diffuse",
    "temperature-x1000": "contrast",
    "batch-of-one": "contrast",
    "batch-of-two": "contrast",
    "positive-is-itself": "contrast",
    "targets-shifted": "contrast",
    "normalised-over-batch": "contrast",
    "no-negatives": "contrast",
    "distances-for-nearness": "contrast",
    "softmax-first": "contrast",
    "encoder-cut-off": "contrast",
    "same-view-twice": "contrast siam",
    "views-not-augmented": "contrast siam",
    "views-of-others": "contrast siam",
    "no-predictor": "siam-without-copy",
    "no-stop-gradient": "siam-without-copy",
    "neither-stop-nor-predictor": "siam-without-copy",
    "target-never-updated": "siam",
    "goal-of-the-same-view": "siam",
    "teacher-in-training-mode": "distil",
    "teacher-in-optimizer": "distil-teacher-alone",
    "teacher-at-random": "distil",
    "teacher-classes-reordered": "distil",
    "teacher-of-other-rows": "distil",
    "probabilities-for-logits": "distil",
    "student-temperature-only": "distil",
    "teacher-temperature-only": "distil",
    "temperature-not-squared": "distil-hot",
    "student-not-in-logarithms": "distil",
    "arguments-swapped": "distil",
    "softmax-over-batch": "distil",
    "soft-sign": "distil",
    "alpha-of-0": "distil",
    "alpha-of-20": "distil",
    "farthest-code": "quantise",
    "not-passed-through": "quantise",
    "passed-wrong-way": "quantise",
    "latent-not-quantised": "quantise",
    "codebook-forgotten": "quantise",
    "codes-far-away": "quantise",
    "commitment-sign": "quantise",
    "commitment-x1000": "quantise",
}

FILE = Path(__file__).with_name("damage_objectives.json")
DAMAGE: dict[str, dict[str, dict[str, float | None]]] = json.loads(FILE.read_text("utf-8")) if FILE.is_file() else {}

CAUSES: dict[str, Cause] = {
    "kl-sign": Cause("the divergence is subtracted", "divergence has the wrong sign"),
    "kl-x80": Cause("the divergence weighs 80 times too much", "divergence outweighs the others"),
    "kl-forgotten": Cause("the divergence is logged, but not in the loss", "divergence not counted"),
    "pixels-averaged": Cause(
        "the reconstruction is a mean over pixels, the divergence a sum", "divergence outweighs the others"
    ),
    "noise-missing": Cause("the mean is decoded without noise", "noise of the code is wrong"),
    "logarithm-for-spread": Cause(
        "the logarithm of the variance is taken for the spread", "noise of the code is wrong"
    ),
    "code-not-decoded": Cause("fresh noise is decoded, not the code", "code not used"),
    "sigmoid-twice": Cause("a sigmoid before the loss, which has one", "squashed twice"),
    "generator-not-in-optimizer": Cause("both optimizers have the critic's parameters", "generator does not learn"),
    "generator-labels-swapped": Cause("the generator learns to be found out", "generator learns the wrong thing"),
    "generator-cut-off": Cause("a detach in the generator's own step", "generator does not learn"),
    "generator-never-stepped": Cause("the step of the generator's optimizer is missing", "generator does not learn"),
    "critic-never-zeroed": Cause(
        "the critic keeps the gradients of the generator's loss", "gradients of the other side"
    ),
    "critic-all-real": Cause("the critic is told that made pictures are real", "critic learns the wrong thing"),
    "critic-sign": Cause("the critic's gap has the wrong sign", "critic learns the wrong thing"),
    "penalty-forgotten": Cause("the critic of a Wasserstein loss has no slope penalty", "loss term missing"),
    "noise-not-drawn": Cause("the generator is given the same constant for its noise", "generator without noise"),
    "range-mismatch": Cause("made pictures go from 0 to 1, real ones from -1", "output cannot reach the target"),
    "sigmoid-in-critic": Cause("a sigmoid before the loss, which has one", "squashed twice"),
    "pixels-not-scaled": Cause("real pictures go from 0 to 255", "inputs not scaled"),
    "picture-for-noise": Cause("the clean picture is learned, noise is declared", "another target than declared"),
    "noisy-picture-as-target": Cause("the noisy input is the target", "target is visible"),
    "time-not-given": Cause("the network is always given time 0", "time not used"),
    "first-time-only": Cause("only the first time is ever drawn", "noise schedule is wrong"),
    "noise-drawn-once": Cause("the noise is drawn with the same seed every time", "noise is wrong"),
    "alphas-not-multiplied": Cause("the alpha of a time stands for the product of all", "noise schedule is wrong"),
    "roots-forgotten": Cause("picture and noise are mixed without the roots", "noise schedule is wrong"),
    "weight-sign": Cause("the weight of early times is negative", "wrong sign"),
    "average-never-updated": Cause("the average of the weights stays as it began", "average of weights stands still"),
    "average-of-0.99999": Cause("the average takes 100000 steps, the run is short", "average of weights stands still"),
    "temperature-x1000": Cause("a temperature of 200, not 0.2", "contrastive temperature out of range"),
    "batch-of-one": Cause("a batch of one picture: nothing to compare with", "too few negatives"),
    "batch-of-two": Cause("a batch of two pictures: two negatives", "too few negatives"),
    "positive-is-itself": Cause("every view is its own positive", "wrong positives"),
    "targets-shifted": Cause("the positive is the view beside the right one", "wrong positives"),
    "normalised-over-batch": Cause(
        "places are normalised over the batch",
        "wrong axis",
        "the place of a picture depends on the others of its batch; the encoder before it learns all the same",
    ),
    "no-negatives": Cause("only right pairs are in the loss", "no negatives"),
    "distances-for-nearness": Cause("nearness is taken for distance", "wrong sign"),
    "softmax-first": Cause("a softmax before the cross-entropy", "squashed twice"),
    "encoder-cut-off": Cause("a detach between encoder and projector", "gradient cut off"),
    "same-view-twice": Cause("both views are one: the same random change", "views too alike"),
    "views-not-augmented": Cause("no view is changed", "views too alike"),
    "views-of-others": Cause("the second view is of another picture", "labels unrelated"),
    "no-predictor": Cause("the predictor is left out", "no negatives"),
    "no-stop-gradient": Cause("the gradient also goes through what is to be predicted", "no negatives"),
    "neither-stop-nor-predictor": Cause("neither a predictor nor a stop of the gradient", "no negatives"),
    "target-never-updated": Cause("the slow copy stays as it began", "target follows too fast or not"),
    "goal-of-the-same-view": Cause(
        "the prediction is compared with the copy's place of the same view", "views too alike"
    ),
    "teacher-in-training-mode": Cause(
        "the teacher is in training mode: half of its units drop",
        "teacher in training mode",
        "every goal is noisy, which a student evens out here, but the loss never gets as low",
    ),
    "teacher-in-optimizer": Cause("the teacher is in the optimizer and follows its student", "teacher learns as well"),
    "teacher-at-random": Cause("the teacher's weights were not loaded", "teacher at random"),
    "teacher-classes-reordered": Cause("the teacher numbers the classes in another order", "numbered differently"),
    "teacher-of-other-rows": Cause("the teacher is asked about other rows", "labels unrelated"),
    "probabilities-for-logits": Cause("the teacher's probabilities go through another softmax", "squashed twice"),
    "student-temperature-only": Cause(
        "only the student's scores are divided",
        "temperature on one side",
        "classes are right, but probabilities are three times too sharp",
    ),
    "teacher-temperature-only": Cause(
        "only the teacher's scores are divided",
        "temperature on one side",
        "classes are right, but probabilities are as flat as at a temperature of 3",
    ),
    "temperature-not-squared": Cause(
        "the soft term lacks the square of the temperature", "weight of the terms is wrong"
    ),
    "student-not-in-logarithms": Cause(
        "the divergence is given probabilities, not logarithms",
        "wrong formula",
        "the loss falls below zero without end; classes come out right here since labels help",
    ),
    "arguments-swapped": Cause("input and target of the divergence are swapped", "wrong formula"),
    "softmax-over-batch": Cause("the softmax of the teacher runs over the batch", "softmax over the wrong axis"),
    "soft-sign": Cause("the divergence from the teacher is subtracted", "wrong sign"),
    "alpha-of-0": Cause("the teacher has no weight", "weight of the terms is wrong"),
    "alpha-of-20": Cause("the teacher weighs 20, the labels minus 19", "weight of the terms is wrong"),
    "farthest-code": Cause("the farthest code is taken, not the nearest", "wrong sign"),
    "not-passed-through": Cause("the reconstruction's gradient does not reach the encoder", "gradient cut off"),
    "passed-wrong-way": Cause("the encoder's value is decoded, with the gradient of the code", "gradient cut off"),
    "latent-not-quantised": Cause("the encoder's vectors are decoded, not the codes", "code not used"),
    "codebook-forgotten": Cause("the codebook's term is not in the loss", "codebook does not follow"),
    "codes-far-away": Cause("codes start far from what the encoder makes: one wins them all", "few codes used"),
    "commitment-sign": Cause("the commitment is subtracted", "wrong sign"),
    "commitment-x1000": Cause("the commitment weighs 1000 times too much", "weight of the terms is wrong"),
}


def twin(program: str, bug: str) -> str:
    """The healthy case that a faulty one differs from by the bug alone."""
    return twin_of(TWINS_OF[bug], HEALTHY, program)


def cases(seeds: int = 3, only: str = "*") -> list[Case]:
    """All cases of this part whose name fits; `only` may be a pattern such as 'gan-*'."""
    assert TWINS_OF.keys() == CAUSES.keys()
    return cases_of("fifth", TWINS_OF, HEALTHY, seeds, only)


def damage(bug: str) -> str:
    """Held-out scores and validation losses without the bug and with it, and why it is wrong if they look fine."""
    return in_words(DAMAGE[bug], CAUSES[bug].fine)
