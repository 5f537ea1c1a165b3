"""Small synthetic runs for the audits: where each fires, where it stays silent, where it cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import (
    BIAS,
    FALLING,
    MANIFEST,
    MATRIX,
    NOISE,
    NORMS,
    OBJECTIVE,
    SAMPLED,
    SHRINKING,
    STEPS,
    WIDE,
    first_loss_of,
    grown,
    run,
    weight,
    with_settings,
)
from synthetic import Synthetic

from steadyrun.records import Event

NAN = float("nan")
CYCLE = np.arange(600) % 100 + 1.0
REPEATS = np.where(np.arange(600) < 450, np.arange(600) + 1.0, np.arange(600) - 449.0)
SEAM = [Event("resume", 450, 0.0)]
SHUFFLED = {"loaders": [{"batches": 100, "shuffles": True, "sampler": "RandomSampler"}]}
BATCHNORM = {"model": {"modules": [{"class": "BatchNorm1d"}]}}
PARTS = ([0, 50, 101, 150, 200], [0, 0, 4, 4, 4])
CRASH = {"type": "IndexError", "message": "index out of range in self"}


TENS = np.arange(9, 600, 10)
LATE_NAN = np.where(np.arange(600) < 500, FALLING, NAN)


def smoothed(values: Any) -> Any:
    """An exponential mean, as scripts print it."""
    mean, means_so_far = values[0], []
    for value in values:
        mean = 0.98 * mean + 0.02 * value
        means_so_far.append(mean)
    return np.array(means_so_far)


def means(values: Any) -> Any:
    """Means over ten steps."""
    return np.array([values[end - 9 : end + 1].mean() for end in TENS])


def at(value: float) -> Any:
    """A sampled series with one value throughout."""
    return SAMPLED, [value] * len(SAMPLED)


def objective(**facts: Any) -> dict[str, Any]:
    """The manifest of a healthy run whose loss has other facts."""
    return {"inferred": {**MANIFEST["inferred"], "objective": {**OBJECTIVE, **facts}}}


def validations(*modes: tuple[int, int], sensitive: int = 3) -> list[Event]:
    """Validations with so many passes, of which so many in training mode."""
    counts = [{"passes": passes, "passes_in_training": wrong, "sensitive": sensitive} for passes, wrong in modes]
    return [Event("validation", 100 * (index + 1), 0.0, 0, {"modes": count}) for index, count in enumerate(counts)]


def copies(*facts: tuple[float, float, float], untouched: int = 0, passes: int = 0) -> list[Event]:
    """Validations of a copy: its distance from the model, its size, the model's; `passes` of the model beside it."""
    names = ("copy_distance", "copy_size", "size")
    others = {"copy_untouched": untouched, "passes": passes}
    modes = [dict(zip(names, one, strict=True)) | others for one in facts]
    return [Event("validation", 100 * (index + 1), 0.0, 0, {"modes": one}) for index, one in enumerate(modes)]


TUNED = {"init": "pretrained"}
AVERAGE = ((0.2, 5.0, 5.1), (0.15, 5.1, 5.2), (0.1, 5.3, 5.4))


def used_copy(*, moves: float) -> dict[str, Any]:
    """A copy that training uses, while the model moves away from where both began."""
    steps = np.arange(len(SAMPLED))
    return {
        "copy/size": (SAMPLED, 5.0 + moves * steps),
        "copy/model_size": (SAMPLED, 5.0 + 0.2 * steps),
        "copy/distance": (SAMPLED, 0.5 * steps),
    }


REFERENCE = used_copy(moves=0.0)


def called(given: int, in_training: int, uneven: float, *losses: float, **more: Any) -> Synthetic:
    """A run whose validations give the model so many tensors and call one part so much more often."""
    calls = {"given": given, "given_in_training": in_training, "uneven": uneven, "part": "decoder"}
    steps = [300 + 40 * index for index in range(len(losses))]
    events = [Event("validation", step, 0.0, 0, {"calls": calls}) for step in steps]
    return run(events=events, val_loss=(steps, list(losses)), **more)


def passes(*data: tuple[float, float]) -> list[Event]:
    """Validations with the hashes of their inputs and of their labels."""
    fields = [{"data": {"examples": 64, "inputs_hash": one, "labels_hash": two, "classes": 4}} for one, two in data]
    return [Event("validation", 100 * (index + 1), 0.0, 0, validation) for index, validation in enumerate(fields)]


def with_blocks(*norms: float) -> Synthetic:
    names = [f"c{index}" for index in range(len(norms))]
    chain = {"blocks": [{"name": name, "role": "block"} for name in names]}
    return run(manifest=chain, **{f"block_grad_norm/{n}": at(size) for n, size in zip(names, norms, strict=True)})


STUCK = 2.08 + 0.01 * np.random.default_rng(1).normal(0, 1, 600)


OFTEN = np.arange(0, 600, 20)
FLAT_SCORES = {"targets/peak": (OFTEN, np.full(30, 0.05)), "output_alike": (OFTEN, np.full(30, 0.2))}


def stuck(loss: Any = STUCK, **more: Any) -> Synthetic:
    """A classifier that never gets below the entropy of its labels."""
    series = {
        "loss": loss,
        "examples": np.full(600, 32.0),
        "example_hash/train": (np.arange(640) // 2, np.arange(640.0)),
        "targets/entropy": at(2.07),
        "val_loss": None,
        **grown(1.0, 1e-2),
        **more,
    }
    return run(config={"num_classes": 8, "vocab_size": None}, **series)


BEHIND = [5.0] * 8
NEARLY_ONE = {"targets/alike_overall": at(0.85)}


def labelled(**more: Any) -> Synthetic:
    """The same, with what its batches show of labels: each batch has its own, and an input keeps its own."""
    seen = {
        "target_hash": np.random.default_rng(6).integers(1, 2**40, 600).astype(float),
        "inputs_again": np.full(600, 32.0),
        "targets_changed": np.zeros(600),
    }
    return stuck(**{**seen, **more})


def frozen(*names: str, **more: float) -> dict[str, Any]:
    made = {**weight("", "Linear", [8, 8], 0.02, fan_in=8), **more}
    weights = [{**made, "name": name, "trainable": name not in names} for name in "ab"]
    return {"initial_weights": weights, "param_groups": [{"optimizer": 0, "settings": {}, "parameters": ["a", "b"]}]}


def two_sides() -> dict[str, Any]:
    """A run of two optimizers."""
    groups = [{"optimizer": index, "parameters": [f"{name}.weight"]} for index, name in enumerate(("made", "judge"))]
    return {"param_groups": groups}


STILL = {"lr/0": None, "lr/1": np.full(600, 1e-3), "block_param_norm/made": ([0, 99], [5.0, 5.0])}


def sized(mean: float, std: float, **more: Any) -> Synthetic:
    """A run whose inputs have this mean and deviation."""
    return stuck(**{"inputs/mean": at(mean), "inputs/std": at(std), **more})


def broken_at(step: int) -> Any:
    """A loss that is NaN from a step on."""
    return np.where(step > STEPS, FALLING, NAN)


def prepared(mean: float, std: float, end: float, *, falling: Any = None, **more: Any) -> Synthetic:
    """A run trained on standardised inputs whose validation is given others, and ends at this loss.

    With `falling` it is a classifier with that loss.
    """
    sides = {
        "inputs/mean": (SAMPLED, np.linspace(-0.1, 0.1, len(SAMPLED))),
        "inputs/std": (SAMPLED, np.linspace(0.9, 1.1, len(SAMPLED))),
        "val_inputs/mean": ([199, 399, 599], [mean] * 3),
        "val_inputs/std": ([199, 399, 599], [std] * 3),
        "val_loss": ([199, 399, 599], [end] * 3),
    }
    return run(**sides, **more) if falling is None else stuck(loss=falling, **{**sides, **more})


HALVED = 2.08 - 1.04 * np.minimum(STEPS, 300) / 300 + 0.01 * NOISE


def seen_once(*losses: float, first: int = 200, **more: Any) -> Synthetic:
    """A classifier whose first steps see new examples each time, with validations at these losses."""
    seen = {"example_hash/train": (np.arange(32 * first) // 32, np.arange(32.0 * first))}
    return stuck(loss=HALVED, val_loss=([199, 399, 599], list(losses)), **{**seen, **more})


def compared(ratio: float, *losses: float, rounds: int = 30, **more: Any) -> Synthetic:
    """A regression that ends at this fraction of a guess's error, with validations at these losses."""
    loss = np.linspace(1.0, ratio, 600)
    sampled = [*SAMPLED, 200, 300, 400, 500, 590]
    fits = {"fit/squared": (sampled, loss[sampled]), "fit_guess/squared": (sampled, np.ones(len(sampled)))}
    seen = {"example_hash/train": (np.zeros(19200 // rounds), np.arange(19200.0 // rounds))}
    val = ([199, 399, 599], list(losses))
    return run(
        config={"vocab_size": None},
        manifest={"inferred": {"objective": {"compares": "squared", "sides": 1}}},
        without=("targets/entropy",),
        **{"loss": loss, "val_loss": val, **fits, **seen, **more},
    )


def evaluated(first: int, last: int = 600) -> Any:
    return np.where((first <= STEPS) & (last > STEPS), 0.0, 1.0)


MISSING = {"without": ("loss",)}
CASES: list[tuple[str, str, Synthetic]] = [
    ("A1.1", "pass", run()),
    ("A1.1", "not-cleared", run(grad_norm_left=at(2.0))),
    ("A1.1", "missing", run(without=("grad_norm_left",))),
    ("A1.2", "pass", run()),
    ("A1.2", "erased", run(grad_norm_used=at(0.0))),
    ("A1.2", "pass", run(grad_norm_used=at(0.0), grad_norm=np.where(STEPS % 50 == 7, 0.3, 0.0))),  # nothing to erase
    ("A1.2", "missing", run(without=("grad_norm_used",))),
    ("A1.2", "not-applicable", run(grad_norm_used=at(0.0), manifest=objective(trained=0))),
    ("A1.3", "pass", run()),
    ("A1.3", "after-step", run(clipped=np.zeros(600), events=[Event("clip-after-step", 0, 0.0)])),
    ("A1.3", "also-late", run(events=[Event("clip-after-step", 3, 0.0)])),
    ("A1.3", "before-backward", run(clipped=np.zeros(600), events=[Event("clip-before-backward", 0, 0.0)])),
    ("A1.3", "also-late", run(events=[Event("clip-before-backward", 3, 0.0)])),
    ("A1.3", "before-unscale", run(events=[Event("clip-before-unscale", 0, 0.0)])),
    ("A1.3", "not-applicable", run(without=("clip_threshold", "clipped"))),
    ("A1.4", "not-applicable", run()),
    ("A1.4", "not-applicable", run(manifest=objective(sides=2), backwards=np.full(600, 4.0), empty_starts=at(4.0))),
    ("A1.4", "pass", run(manifest=objective(sides=1), backwards=np.full(600, 4.0), empty_starts=at(1.0))),
    ("A1.4", "missing", run(manifest=objective(sides=1), backwards=np.full(600, 4.0))),
    ("A1.4", "perhaps-erased", run(manifest=objective(sides=1), backwards=np.full(600, 4.0), empty_starts=at(4.0))),
    (
        "A1.4",
        "erased",
        run(
            manifest=objective(sides=1),
            backwards=np.full(600, 4.0),
            empty_starts=at(4.0),
            config={"accumulation": 4},
        ),
    ),
    ("A2.1", "pass", run()),
    ("A2.1", "left-on", run(training=evaluated(100), events=validations((3, 0)))),
    ("A2.1", "sometimes", run(training=evaluated(100, 110), events=validations((3, 0)))),
    ("A2.1", "never", run(training=np.zeros(600))),
    ("A2.1", "not-applicable", run(training=evaluated(100), events=validations((3, 0), sensitive=0))),
    (
        "A2.1",
        "parts-left-on",
        run(modules_in_eval=([0, 50, 101, 150, 200], [0, 0, 4, 4, 4]), events=validations((3, 0))),
    ),
    ("A2.1", "missing", run(without=("training",))),
    ("A2.2", "pass", run(events=validations((3, 0), (3, 0)))),
    ("A2.2", "in-training", run(events=validations((3, 3), (3, 3)))),
    ("A2.2", "mixed", run(events=validations((3, 0), (3, 1)))),
    ("A2.2", "missing", run()),
    ("A2.2", "not-applicable", run(events=validations((3, 3)), config={"val_mode": "train"})),
    ("A2.4", "not-applicable", run()),
    ("A2.4", "pass", run(running_statistics=at(3.0), untouched_statistics=at(0.0))),
    ("A2.4", "untouched", run(running_statistics=at(3.0), untouched_statistics=at(1.0))),
    ("A2.4", "missing", run(running_statistics=([0], [3.0]), untouched_statistics=([0], [3.0]))),
    ("A8.1", "not-applicable", run()),
    ("A8.1", "pass", run(config={"pad_id": 0}, padding_attention=at(0.0))),
    ("A8.1", "seems-attended", run(config={"pad_id": 0}, padding_attention=at(0.2))),
    ("A8.1", "not-applicable", run(config={"pad_id": 0})),
    ("A8.1", "missing", run(config={"pad_id": 0}, without=("dead_heads/a",))),
    ("A6.2", "not-applicable", run()),
    ("A6.2", "pass", run(events=[Event("resume", 300, 0.0)])),
    ("A6.2", "set-back", run(events=[Event("resume", 300, 0.0)], loss=np.where(STEPS < 300, FALLING, FALLING + 2))),
    (
        "A6.2",
        "back-at-start",
        run(events=[Event("resume", 300, 0.0)], loss=np.where(STEPS < 300, FALLING, np.roll(FALLING, 300))),
    ),
    ("A6.2", "missing", run(events=[Event("resume", 595, 0.0)])),
    ("A2.5", "not-applicable", run(events=validations((3, 0)))),
    ("A2.5", "pass", run(events=copies((0.1, 5.0, 5.1), (0.1, 5.2, 5.3)))),
    ("A2.5", "never-moves", run(events=copies((0.1, 5.0, 5.1), (0.3, 5.0, 5.3)))),
    ("A2.5", "never-moves", run(events=copies((0.1, 5.0, 5.1), (0.3, 5.0, 5.3), passes=1))),
    ("A2.5", "never-moves", run(config=TUNED, events=copies((0.1, 5.0, 5.1), (0.3, 5.0, 5.3)))),
    ("A2.5", "pass", run(config=TUNED, events=copies((0.1, 5.0, 5.1), (0.3, 5.0, 5.3), passes=1))),  # a reference
    ("A2.5", "statistics-left-behind", run(events=copies((0.1, 5.0, 5.1), (0.1, 5.2, 5.3), untouched=2))),
    ("A2.5", "lags", run(events=copies((0.1, 5.0, 5.1), (0.5, 5.2, 5.3)), val_loss=([99, 599], [6.0, 6.0]))),
    ("A2.5", "missing", run(events=copies((0.1, 5.0, 5.1)))),
    (
        "A2.5",
        "lost-at-resume",
        run(events=[*copies(*AVERAGE, (0.4, 4.5, 5.5)), Event("resume", 380, 0.0)]),
    ),
    ("A2.5", "pass", run(events=[*copies(*AVERAGE, (0.05, 5.4, 5.5)), Event("resume", 380, 0.0)])),
    ("A2.5", "pass", run(events=copies((0.1, 5.0, 5.1), (0.3, 5.0, 5.3)), config={"init": "pretrained"}, **REFERENCE)),
    ("A2.5", "target-stands-still", run(**used_copy(moves=0.0))),
    ("A2.5", "follows-too-slowly", run(**used_copy(moves=1e-4))),
    ("A2.5", "pass", run(**used_copy(moves=0.1) | {"copy/distance": (SAMPLED, np.full(len(SAMPLED), 0.3))})),
    ("A2.5", "pass", run(config={"init": "pretrained"}, **used_copy(moves=0.0))),  # a reference model
    ("A2.6", "missing", run(events=validations((3, 0)))),
    ("A2.6", "alike", called(2, 2, 1.0, *BEHIND)),
    ("A2.6", "alike", called(3, 2, 2.0, *BEHIND)),  # layers that training skips at random, a mask of validation
    ("A2.6", "differs", called(1, 2, 1.0, *BEHIND)),
    ("A2.6", "differs", called(2, 2, 6.0, *BEHIND)),
    ("A2.6", "follows", called(1, 2, 6.0, *np.linspace(2.2, 1.7, 8))),
    ("A2.6", "follows", called(1, 2, 6.0, *np.linspace(2.2, 5.0, 8))),  # learned by heart
    ("A2.6", "not-applicable", called(1, 2, 6.0, 5.0, 5.0)),
    ("A2.6", "not-applicable", called(1, 2, 6.0, *BEHIND, loss=np.linspace(6, 7, 600))),
    ("A5.8", "not-applicable", run()),
    ("A5.8", "pass", sized(0.0, 1.0)),
    ("A5.8", "pass", sized(100.0, 50.0, loss=STUCK - 1.08)),  # and it learns
    ("A5.8", "not-scaled", sized(100.0, 50.0)),
    ("A5.8", "not-scaled", sized(0.0, 1e-3)),
    ("A5.8", "not-scaled", sized(0.0, 1.0, **{"generated/real_mean": at(20.0), "generated/real_std": at(60.0)})),
    ("A5.8", "pass", sized(0.0, 1.0, **{"generated/real_mean": at(-0.7), "generated/real_std": at(0.6)})),
    ("A5.9", "not-applicable", run()),
    ("A5.9", "pass", run(**{"fit/squared": at(0.5), "fit_guess/squared": at(1.0)})),
    ("A5.9", "constant", run(loss=np.full(600, 0.1), **{"fit/squared": at(0.1), "fit_guess/squared": at(0.0)})),
    ("A5.9", "not-applicable", run(**{"fit/squared": at(0.1), "fit_guess/squared": at(0.0)})),  # one term of several
    ("A5.9", "same-twice", run(manifest=objective(contrastive=True), passes_alike=at(1.0))),
    ("A5.9", "not-applicable", run(manifest=objective(contrastive=True), passes_alike=at(0.0))),
    ("A5.9", "missing", run(**{"fit/squared": ([0], [0.1]), "fit_guess/squared": ([0], [0.0])})),
    ("S1.4", "by-heart-alone", stuck(loss=STUCK - 1.08, val_loss=([199, 399, 599], [2.08, 2.1, 2.2]))),
    (
        "S1.4",
        "by-heart-alone",
        stuck(
            loss=2.08 - STEPS / 600,
            val_loss=([199, 399, 599], [2.08, 2.1, 2.2]),
            **{"example_hash/val": (np.full(1920, 1), np.arange(1920.0))},
        ),
    ),
    ("S1.4", "by-heart-alone", prepared(0.0, 1.5, end=2.2, falling=2.08 - 1.0 * STEPS / 600)),
    ("S1.4", "pass", stuck(loss=STUCK - 1.08, val_loss=([199, 399, 599], [1.5, 1.4, 1.3]))),
    ("S1.4", "pass", stuck(loss=STUCK - 1.08, val_loss=([199, 399, 599], [2.5, 2.6, 2.9]))),  # other labels there
    # By heart and slowly: a little better than a guess after many steps, while validation is not.
    ("S1.4", "by-heart-alone", stuck(loss=STUCK - 0.08, val_loss=([199, 399, 599], [2.08, 2.1, 2.2]))),
    ("S1.4", "pass", stuck(loss=STUCK - 0.05, val_loss=([199, 399, 599], [2.05, 2.05, 2.05]))),
    ("C4.2", "gap", stuck(loss=HALVED, val_loss=([99, 199, 299, 399, 499, 599], [2.05, 2.05, 2.05, 2.2, 2.4, 2.6]))),
    ("S1.4", "by-heart-alone", compared(0.9, 1.02, 1.05, 1.1)),
    ("S1.4", "not-applicable", compared(0.9, 1.02, 1.0, 0.95)),
    ("S1.4", "not-applicable", compared(0.9, 1.02, 1.05, 1.1, rounds=2)),
    ("A2.3", "not-applicable", run()),
    ("A2.3", "missing", run(manifest=BATCHNORM, without=("examples",))),
    ("A2.3", "pass", run(manifest=BATCHNORM, examples=np.full(600, 32.0))),
    ("A2.3", "few", run(manifest=BATCHNORM, examples=np.full(600, 2.0))),
    (
        "A2.3",
        "pass",  # the loop names one of four micro-batches
        run(manifest=BATCHNORM, examples=np.full(600, 4.0), backwards=np.full(600, 4.0), batchnorm_examples=at(4.0)),
    ),
    ("A2.3", "degenerate", run(manifest=BATCHNORM, examples=np.full(600, 2.0), batchnorm_values=at(2.0))),
    (
        "A2.3",
        "unlike-in-evaluation",
        run(manifest=BATCHNORM, examples=np.full(600, 2.0), val_loss=([199, 399, 599], [9.0, 8.0, 7.0])),
    ),
    ("A3.1", "pass", run()),
    ("A3.1", "squashed-twice", run(manifest=objective(squashed="softmax"))),
    ("A3.1", "not-logarithms", run(manifest=objective(probabilities=True))),
    ("A3.1", "wrong-axis", run(manifest=objective(wrong_axis=[32, 10]))),
    ("A3.1", "out-of-reach", run(**{"fit_out_of_reach/squared": at(0.5)})),
    ("A3.1", "pass", run(**{"fit_out_of_reach/squared": at(0.1)})),
    ("A3.1", "rewards-errors", run(**{"fit_weight/squared": at(-2.0)})),
    ("A3.1", "pass", run(manifest=objective(advantages=True), **{"fit_weight/classes": at(-0.01)})),
    ("A3.1", "pass", run(**{"fit_weight/squared": at(2.0)})),
    ("A3.1", "rewards-errors", run(**{"fit_against/squared": at(0.2)})),  # some examples have a negative weight
    ("A3.1", "pass", run(**{"fit_against/squared": at(0.0)})),
    ("A3.1", "pass", run(**{"fit_against/classes": at(0.5)})),  # advantages of actions
    ("A3.1", "one-sided", run(**{"fit_odds/logits": at(100.0)})),
    ("A3.1", "pass", run(**{"fit_odds/logits": at(1.2)})),
    ("A3.1", "missing", run(manifest={"inferred": {}})),
    ("A3.2", "pass", run()),
    ("A3.2", "broadcast", run(manifest=objective(broadcast=[[32, 1], [32, 32]]))),
    ("A3.2", "missing", run(manifest={"inferred": {}})),
    ("A3.3", "pass", run()),
    ("A3.3", "shifted-twice", run(**{"targets/next": at(0.04), "targets/second": at(1.0)})),
    ("A3.3", "not-shifted", run(config={"causal": True}, **{"targets/next": at(0.04), "targets/same": at(1.0)})),
    ("A3.3", "copies", run(**{"targets/next": at(0.04), "targets/same": at(1.0)})),
    ("A3.3", "not-applicable", run(without=("targets/same", "targets/next", "targets/second"))),
    ("A3.4", "pass", run(**{"targets/padding": at(0.0)})),
    ("A3.4", "supervised", run(**{"targets/padding": at(0.3)})),
    ("A3.4", "a-little", run(**{"targets/padding": at(0.001)})),
    ("A3.4", "not-applicable", run(**{"targets/padding": at(0.3), "targets/next": at(0.1)})),
    ("A3.4", "missing", run(without=("targets/padding",))),
    ("A3.5", "pass", run(**{"targets/supervised": at(0.6)})),
    ("A3.5", "never-asked", run(**{"targets/ends_asked": at(0.0), "targets/supervised": at(0.6)})),
    ("A3.5", "not-applicable", run()),
    (
        "A3.5",
        "not-applicable",  # the answers are masked as a whole
        run(
            manifest={"supervision": {"roles": {"assistant": {"learned": 0, "tokens": 100}}}},
            **{"targets/ends_asked": at(0.0), "targets/supervised": at(0.6)},
        ),
    ),
    ("A3.5", "missing", run(without=("targets/ends_given",))),
    ("A3.6", "pass", run()),
    ("A3.6", "sorted", run(**{"targets/alike": at(0.9)})),
    ("A3.6", "not-applicable", run(config={"shuffle": False})),
    ("A3.6", "missing", run(without=("examples",))),
    ("A3.7", "not-applicable", run()),
    ("A3.7", "pass", run(ignored_labels=np.full(600, 0.5))),
    ("A3.7", "empty", run(ignored_labels=([5, 6], [0.2, 1.0]))),
    ("A3.7", "nothing-to-learn", run(ignored_labels=([5, 599], [0.2, 1.0]), loss=[*np.ones(599), NAN])),
    ("A3.8", "pass", run()),
    ("A3.8", "filtered", run(backward_loss=[*np.ones(599), NAN])),
    ("A3.8", "pass", run(printed_loss=(TENS, FALLING[TENS]))),
    ("A3.8", "pass", run(printed_loss=(TENS, smoothed(FALLING)[TENS]))),
    ("A3.8", "pass", run(printed_loss=(TENS[:5], 64 * FALLING[TENS][:5]))),
    ("A3.8", "scaled", run(printed_loss=(TENS, 64 * FALLING[TENS]))),
    ("A3.8", "scaled", run(printed_loss=(TENS, 10 * means(FALLING)))),
    ("A3.8", "filtered", run(loss=LATE_NAN, backward_loss=LATE_NAN, printed_loss=(TENS, FALLING[TENS]))),
    ("A3.8", "pass", run(loss=LATE_NAN, backward_loss=LATE_NAN, printed_loss=(TENS, LATE_NAN[TENS]))),
    ("A3.8", "pass", run(loss=LATE_NAN, backward_loss=LATE_NAN, printed_loss=(TENS, np.full(60, 2.5)))),
    ("A3.8", "missing", run(without=("backward_loss",))),
    ("A4.1", "pass", run()),
    ("A4.1", "stale", run(manifest=objective(left_out=["head"], left_out_count=1, strange=1))),
    ("A4.1", "left-out", run(manifest=objective(left_out=["head"], left_out_count=1))),
    ("A4.1", "not-optimized", run(config={"init": "pretrained"}, manifest=objective(left_out=["a"], left_out_count=1))),
    ("A4.1", "never-stepped", run(manifest=two_sides(), **STILL)),
    ("A4.1", "pass", run(manifest=two_sides(), **STILL | {"block_param_norm/made": ([0, 99], [5.0, 5.1])})),
    ("A4.1", "pass", run(manifest=two_sides() | objective(unreached=["made.weight"], unreached_count=1), **STILL)),
    ("A4.1", "missing", run(manifest={"inferred": {}})),
    ("A4.2", "pass", run()),
    ("A4.2", "unregistered", run(manifest=objective(hidden=["layers[0].weight"], hidden_count=1))),
    ("A4.2", "missing", run(manifest={"inferred": {"objective": {"classes": 4}}})),
    ("A4.3", "pass", run()),
    ("A4.3", "cut-off", run(manifest=objective(unreached=["a"], unreached_count=1, cut_before="head"))),
    ("A4.3", "nothing-reached", run(manifest=objective(unreached=["a", "b"], unreached_count=2))),
    (
        "A4.3",
        "table-unused",
        run(
            manifest=objective(unreached=["p.weight"], unreached_count=1)
            | {"initial_weights": [MATRIX, weight("p.weight", "Embedding", [16, 128], 0.02)]}
        ),
    ),
    ("A4.3", "one-row", run(**{"lookup_spread/time.weight": at(0.0)})),
    ("A4.3", "pass", run(**{"lookup_spread/time.weight": at(40.0)})),
    ("A4.3", "unused", run(manifest=objective(unreached=["pooler"], unreached_count=1))),
    ("A4.3", "missing", run(manifest={"inferred": {}})),
    ("A4.4", "pass", run(manifest=frozen())),
    ("A4.4", "nothing-trainable", run(manifest=frozen("a", "b"))),
    ("A4.4", "frozen-at-random", run(manifest=frozen("a"))),
    (
        "A4.4",
        "perhaps-at-random",
        run(config={"init": "pretrained"}, manifest=frozen("a", min=-0.353, max=0.35)),
    ),
    ("A4.4", "frozen-at-zero", run(manifest=frozen("a", min=0, max=0), grad_norm=np.zeros(600))),
    ("A4.4", "some-frozen", run(config={"init": "pretrained"}, manifest=frozen("a", min=0, max=0))),
    ("A4.4", "some-frozen", run(config={"init": "pretrained"}, manifest=frozen("a"))),
    ("A4.4", "missing", run(manifest={"param_groups": None})),
    ("A4.5", "pass", run()),
    ("A4.5", "rounded-away", run(stalled=at(0.97), manifest={"model": {"parameter_dtypes": ["bfloat16"]}})),
    ("A4.5", "tiny", run(stalled=at(0.97), manifest={"model": {"parameter_dtypes": ["float32"]}})),
    ("A4.5", "missing", run(without=("stalled",))),
    ("A4.6", "pass", run()),
    ("A4.6", "stopped", run(**{"update_ratio/b": ([0, 100, 200, 300, 400], [1e-3, 1e-3, 0, 0, 0])})),
    ("A4.6", "missing", run(without=("update_ratio/a",))),
    ("A4.7", "not-applicable", run()),
    ("A4.7", "pass", run(manifest={"model": {"tied": [["head", "embed"]], "declares_tied": True}})),
    ("A4.7", "untied", run(config={"tied": True})),
    ("A4.8", "pass", with_blocks(1.0, 1.2, 1.1, 1.0)),
    ("A4.8", "vanishing", with_blocks(1e-10, 1e-7, 1e-3, 1.0)),
    ("A4.8", "weak", with_blocks(1e-4, 1e-3, 1e-2, 1.0)),
    ("A4.8", "not-applicable", with_blocks(1.0, 1.0)),
    ("A4.8", "missing", run()),
    ("A5.1", "pass", run()),
    ("A5.1", "not-reshuffled", run(batch_hash=CYCLE, manifest=SHUFFLED)),
    ("A5.1", "fixed", run(batch_hash=CYCLE)),
    ("A5.1", "not-applicable", run(batch_hash=np.ones(600))),
    ("A5.1", "not-reshuffled", run(label_hash=CYCLE, manifest=SHUFFLED)),
    ("A5.1", "pass", run(label_hash=np.where(np.arange(600) % 20 == 19, 2.0, 1.0), manifest=SHUFFLED)),
    ("A5.1", "missing", run(without=("batch_hash",))),
    ("A5.2", "not-applicable", run()),
    ("A5.2", "missing", run(without=("batch_hash",), events=SEAM)),
    ("A5.2", "pass", run(events=SEAM)),
    ("A5.2", "from-the-start", run(batch_hash=REPEATS, events=SEAM, config={"shuffle": True})),
    ("A5.2", "again", run(batch_hash=REPEATS, events=SEAM)),
    ("A5.3", "missing", run()),
    ("A5.3", "pass", run(events=passes((1, 1), (1, 1)))),
    ("A5.3", "changed", run(events=passes((1, 1), (2, 1)))),
    ("A5.3", "drawn", run(events=passes((1, 1), (2, 2)))),
    ("A5.4", "not-applicable", run()),
    ("A5.4", "pass", run(repeated_tokens=np.full(600, 0.03))),
    ("A5.4", "strange", run(repeated_tokens=np.where(STEPS == 300, 1.0, 0.03))),
    (
        "A5.4",
        "degenerate",
        run(repeated_tokens=np.where(STEPS == 300, 1.0, 0.03), grad_norm=np.where(STEPS == 300, 50.0, NORMS)),
    ),
    ("A6.1", "not-applicable", run()),
    ("A6.1", "pass", run(loss_scale=np.full(600, 1024.0), events=SEAM)),
    ("A6.1", "lost", run(loss_scale=np.where(STEPS < 450, 1024.0, 65536.0), events=SEAM)),
    ("A7.1", "not-applicable", run()),
    ("A7.1", "crashed", run(manifest={"failure": {"type": "ValueError", "message": "no"}})),
    ("A7.1", "crashed", run(manifest={"failure": {"type": "OutOfMemory", "message": ""}})),
    ("A7.1", "exception", run(manifest={"failure": {"type": "TimeLimit", "message": ""}})),
    ("A7.1", "exception", run(manifest={"failure": {"type": "KeyboardInterrupt", "message": ""}})),
    ("A7.1", "before-first-step", Synthetic(manifest={"failure": {**CRASH, "traceback": ["a.py:3 in f"]}})),
    ("A7.1", "exception", Synthetic(manifest={"failure": {"type": "KeyboardInterrupt", "message": ""}})),
    (
        "A7.1",
        "token-out-of-range",
        run(manifest={"failure": {**CRASH, "shown": {"what": "token", "smallest": 0, "largest": 512, "size": 512}}}),
    ),
    (
        "A7.1",
        "label-out-of-range",
        run(manifest={"failure": {**CRASH, "shown": {"what": "label", "smallest": -1, "largest": 5, "size": 10}}}),
    ),
    ("S1.4", "unrelated", stuck()),
    ("S1.4", "nothing-yet", stuck(loss=STUCK + 1.42)),
    ("S1.4", "not-applicable", stuck(loss=STUCK * 8, manifest=objective(reduction="sum"))),
    # a size that is off explains it as well
    ("S1.4", "nothing-yet", stuck(**grown(1.0, 3e-4))),
    ("S1.4", "nothing-yet", stuck(**grown(5.0, 0.1))),
    (
        "S1.4",
        "nothing-yet",
        stuck(
            manifest=with_settings(weight_decay=100.0), **{**SHRINKING, "block_param_norm/a": ([0, 599], [10.0, 6.0])}
        ),
    ),
    ("S1.4", "nothing-yet", stuck(**{"epsilon_share/0": at(0.95)})),
    ("S1.4", "nothing-yet", stuck(manifest={"model": {"dropout": {"drop": 0.9}}})),
    ("S1.4", "nothing-yet", stuck(manifest=objective(smoothing=0.9))),
    ("S1.4", "nothing-yet", stuck(manifest=objective(contrastive=True, classes=8), **FLAT_SCORES)),
    ("S1.4", "nothing-yet", stuck(loss=first_loss_of(STUCK, 20.0), manifest={"initial_weights": [WIDE, BIAS]})),
    ("S1.4", "nothing-yet", stuck(grad_norm=first_loss_of(NORMS, 200.0), manifest={"initial_weights": [WIDE, BIAS]})),
    ("S1.4", "pass", stuck(loss=STUCK - 1.08)),
    ("S1.4", "not-applicable", run(without=("targets/entropy",))),
    ("S1.4", "missing", run(without=("loss",))),
    ("A5.5", "not-applicable", run()),
    ("A5.5", "missing", run(without=("batch_hash",))),
    ("A5.5", "pass", run(batch_nonfinite=np.zeros(600))),
    ("A5.5", "non-finite", run(loss=broken_at(0), without=("batch_hash",), **{"inputs/nonfinite": at(0.2)})),
    ("A5.5", "handled", run(batch_nonfinite=np.full(600, 0.1))),
    ("A5.5", "handled", run(loss=broken_at(300), batch_nonfinite=np.where(STEPS % 100 == 0, 0.1, 0.0))),
    ("A5.5", "non-finite", run(loss=broken_at(300), batch_nonfinite=np.where(STEPS == 300, 0.01, 0.0))),
    ("A5.5", "non-finite", run(loss=broken_at(300), batch_nonfinite=np.where(STEPS == 299, 0.01, 0.0))),
    ("A5.5", "handled", run(loss=broken_at(300), batch_nonfinite=np.where(STEPS == 320, 0.01, 0.0))),
    ("A5.6", "unlike", seen_once(2.2, 2.4, 2.6)),
    ("A5.6", "unlike", seen_once(1.9, 1.95, 2.0)),  # better than a guess, and far behind first sight
    ("A5.6", "not-applicable", seen_once(1.4, 1.2, 1.1)),
    ("A5.6", "not-applicable", seen_once(2.2, 1.4, 1.3)),  # it comes later: another balance of classes
    ("A5.6", "not-applicable", seen_once(2.2, 2.4, 2.6, first=10)),  # nothing is learned at first sight
    ("A5.6", "not-applicable", seen_once(2.2, 2.4, 2.6, manifest=objective(contrastive=True, classes=8))),
    ("A5.6", "not-applicable", run()),
    ("A5.6", "missing", run(manifest={"inferred": {}})),
    ("A5.6", "missing", run(**{"inputs/mean": at(0.0), "inputs/std": at(1.0)})),
    ("A5.6", "pass", prepared(0.1, 1.3, end=8.0)),
    ("A5.6", "follows", prepared(0.1, 3.0, end=1.7)),  # noise in training alone
    ("A5.6", "differs", prepared(0.1, 3.0, end=8.0)),
    ("A5.6", "differs", prepared(1.5, 1.0, end=5.0)),
    ("A5.6", "differs", prepared(100.0, 70.0, end=5.0)),  # bad, and still better than untrained
    ("A5.6", "other-scale", prepared(100.0, 70.0, end=8.0)),
    ("A5.6", "not-applicable", prepared(100.0, 70.0, end=8.0, loss=np.linspace(6, 7, 600))),
    ("A5.7", "not-applicable", run()),
    ("A5.7", "not-applicable", labelled(target_hash=np.full(600, 7.0), **{"targets/alike_overall": at(1.0)})),
    ("A5.7", "missing", run(without=("batch_hash",))),
    ("A5.7", "pass", labelled()),
    ("A5.7", "missing", labelled(target_hash=([0, 1], [1.0, 2.0]))),
    ("A5.7", "pass", labelled(target_hash=(STEPS[1:], STEPS[1:] + 0.5))),  # a batch without targets among the others
    ("A5.7", "not-applicable", labelled(target_hash=np.ones(600), batch_hash=np.ones(600))),  # full batches
    ("A5.7", "meant", labelled(target_hash=np.ones(600), loss=FALLING)),  # the same classes in each episode
    ("A5.7", "repeated", labelled(target_hash=np.ones(600), **{"targets/entropy": None})),
    ("A5.7", "pass", labelled(target_hash=np.where(STEPS % 10 == 0, STEPS, 1.0), examples=np.ones(600), **NEARLY_ONE)),
    ("A5.7", "repeated-unrelated", labelled(target_hash=np.ones(600))),
    ("A5.7", "pass", labelled(targets_changed=np.full(600, 3.0))),
    ("A5.7", "reassigned", labelled(targets_changed=np.full(600, 28.0), **{"targets/entropy": None})),
    ("A5.7", "reassigned-unrelated", labelled(targets_changed=np.full(600, 28.0))),
    ("A3.9", "not-applicable", run()),
    ("A3.9", "missing", run(manifest={"inferred": {}})),
    ("A3.9", "pass", run(padding_counted=at(0.0), padding_declared=at(1.0))),
    ("A3.9", "pass", run(padding_counted=(SAMPLED, [0.3, 0, 0, 0.3, 0, 0, 0, 0]), padding_declared=at(1.0))),
    ("A3.9", "counted", run(padding_counted=at(0.3), padding_declared=at(1.0))),
    ("A3.9", "zeros-counted", run(padding_counted=at(0.3), padding_declared=at(0.0))),
]
