"""Small synthetic runs for the signatures of the seven panels."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import FALLING, NO_CLASSES, NORMS, SETTINGS, STEPS, run, weight
from dynamics_cases import put
from synthetic import Synthetic

from steadyrun.records import Event
from steadyrun.signals.declared_schedule import SchedulePlan

SAMPLES = [0, 1, 10, 50, 100, 300]
LATER = [0, 50, 150, 300, 450, 599]
FAST = 0.05 + 6.2 * np.exp(-STEPS / 15)
CAUSAL = {"causal": True}
BASELINE = {"baseline_loss": 1.7}
NO_ATTENTION = Event("not-recorded", 0, 0.0, 0, {"probe": "attention", "why": "no attention was seen"})
NO_UNITS = Event("not-recorded", 0, 0.0, 0, {"probe": "dead units", "why": "no layer was found"})
CLIMBS = put(FALLING, dict.fromkeys(range(20, 40), 9.0))
SCHEDULED = {"schedule": None, "warmup_steps": None}
CONSTANT = {"schedule": "constant", "warmup_steps": 0}
SHORT = SchedulePlan("cosine", 1e-3, 1e-4, 50, 300)
VAL = [99, 199, 299, 399, 499, 599]
DRY = {"inferred": {"expected_lr": {"groups": [[[0, 1e-3], [300, 1e-3], [301, 1e-4], [600, 1e-4]]]}}}
LONG = np.arange(2000.0)
SLOW = 1 + 5 * np.exp(-LONG / 300)


def at(steps: list[int], *values: float) -> tuple[list[int], list[float]]:
    """A sampled series: one value throughout, or one per step."""
    return steps, list(values) * len(steps) if len(values) == 1 else list(values)


def alike(share: float) -> Synthetic:
    """Outputs that point the same way to this share, of a loss that compares nothing."""
    series = {"output_alike": ([0, 50, 100, 150], [share] * 4)}
    return run(config={"vocab_size": None}, manifest=NO_CLASSES, **series)


def ahead(**shares: float) -> dict[str, Any]:
    return {f"future_attention/{name.replace('_', '.')}": at(SAMPLES, share) for name, share in shares.items()}


def named(names: list[str], follows: dict[str, str], **more: Any) -> dict[str, Any]:
    blocks = [{"name": "embed", "role": "embedding"}, *({"name": name, "role": "block"} for name in names)]
    weights = [weight(f"{name}.weight", "Linear", [8, 8], 0.02, fan_in=8) for name in names]
    return {"blocks": blocks, "initial_weights": weights, "inferred": {"follows": follows}, **more}


def deep(*sizes: Any, manifest: Any = None, **series: Any) -> Synthetic:
    """Blocks c0, c1, … one after the other; a size is a number, or a value per sample."""
    names = [f"c{index}" for index in range(len(sizes))]
    chain = named(names, dict(zip(names[1:], names[:-1], strict=True)))
    shown = {f"activation/{n}": at(SAMPLES, *np.atleast_1d(size)) for n, size in zip(names, sizes, strict=True)}
    return run(manifest={**chain, **(manifest or {})}, **{"activation/embed": at(SAMPLES, 1.0), **shown, **series})


DEAD = [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 5e-3]
ALIVE = [0.0, 1e-3, 1e-2, 0.1, 1.0, 1.0]
WAKES = [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 0.5]
FROZEN = [{**weight("c0.weight", "Linear", [8, 8], 0.02, fan_in=8), "trainable": False}]


def groups(*decays: Any) -> dict[str, Any]:
    made = [{"optimizer": 0, "class": "AdamW", "settings": {**SETTINGS, "weight_decay": d}} for d in decays]
    return {"param_groups": made}


DECLARED = {"weight_decay": 0.1}
UNSET = {"param_groups": [{"optimizer": 0, "settings": {"lr": 1e-3}, "parameters": ["a.weight"]}]}
MANY = np.arange(0, 600, 50)
GROWS = (MANY, 1 + MANY / 200)


UNDECAYED = groups(0.0)
EARLY = [0, 1, 2, 5, 10]


def units(share: float, silent: float | None = None, **more: Any) -> Synthetic:
    series = {"dead_units/a": at(SAMPLES, 100 * share)}
    if silent is not None:
        series["silent_inputs/a"] = at(SAMPLES, silent)
    return run(**series, **more)


def heads(*shares: float, entropy: float | None = 0.001, **more: Any) -> Synthetic:
    series = {f"low_entropy_share/a/{head}": at(SAMPLES, share) for head, share in enumerate(shares)}
    series["dead_heads/a"] = at(SAMPLES, float(sum(share > 0.99 for share in shares)))
    if entropy is not None:
        series["lowest_head_entropy/a"] = at(SAMPLES, entropy)
    return run(**series, **more)


def race(lag: Any, family: str = "class_loss", points: Any = SLOW, **more: Any) -> Synthetic:
    return run(**{f"{family}/regular": points, f"{family}/irregular": points * (1 + lag)}, **more)


CASES: list[tuple[str, str, Synthetic]] = [
    # S1.1
    ("S1.1", "not-applicable", run()),
    ("S1.1", "nothing-left", run(loss=np.where(STEPS < 300, FALLING, 0.0))),
    ("S1.1", "not-applicable", run(loss=np.where(STEPS < 300, FALLING, 1e-7))),
    ("S1.1", "not-applicable", run(loss=np.where(STEPS % 2, FALLING, 0.0) + (STEPS == 599))),
    ("S1.1", "pass", run(config=CAUSAL, **ahead(blocks_0=0.0, blocks_1=0.009))),
    ("S1.1", "sees-the-answer", run(config=CAUSAL, **ahead(blocks_0=0.0, blocks_1=0.011))),
    ("S1.1", "sees-the-answer", run(config=CAUSAL, **ahead(blocks_0=0.4, blocks_1=0.5))),
    ("S1.1", "sees-the-answer", run(config=CAUSAL | BASELINE, **ahead(blocks_0=0.4))),
    ("S1.1", "part-looks-ahead", run(config=CAUSAL, **ahead(encoder_0=0.5, encoder_1=0.5, decoder_0=0, decoder_1=0))),
    ("S1.1", "sees-the-answer", run(config=CAUSAL, **ahead(encoder_0=0.5, decoder_0=0.0, decoder_1=0.2))),
    ("S1.1", "not-applicable", run(**ahead(blocks_0=0.5))),
    ("S1.1", "not-applicable", run(config={"causal": "yes"}, **ahead(blocks_0=0.5))),
    ("S1.1", "missing", run(config=CAUSAL)),
    ("S1.1", "not-applicable", run(config=CAUSAL, events=[NO_ATTENTION])),
    ("S1.1", "pass", run(config=BASELINE)),
    ("S1.1", "too-good", run(config=BASELINE, loss=FAST)),
    ("S1.1", "pass", run(config={"baseline_loss": 0.5}, loss=FALLING)),
    ("S1.1", "pass", run(config=BASELINE | {"init": "pretrained"}, loss=FAST)),
    ("S1.1", "too-good", run(config=BASELINE, loss=FAST, **{"class_loss/x": FAST, "class_loss/y": 1.1 * FAST})),
    ("S1.1", "pass", run(config=BASELINE, loss=FAST, **{"class_loss/x": FAST, "class_loss/y": 2 * FAST})),
    # S1.2
    ("S1.2", "pass", run()),
    ("S1.2", "pass", run(loss=put(FALLING, {30: 20.0}))),
    ("S1.2", "spike", run(loss=CLIMBS)),
    ("S1.2", "stays-up", run(loss=np.where(STEPS < 20, FALLING, 9.0))),
    ("S1.2", "pass", run(loss=np.where((STEPS > 200) & (STEPS < 250), 9.0, FALLING))),
    ("S1.2", "pass", run(loss=CLIMBS, config={"vocab_size": None}, manifest=NO_CLASSES)),
    ("S1.2", "missing", run(loss=FALLING[:6])),
    # S1.3
    ("S1.3", "not-applicable", run()),
    ("S1.3", "missing", run(state="running")),
    ("S1.3", "missing", run(without=("val_loss",))),
    ("S1.3", "pass", run(val_loss=at(VAL, 4.5, 3.0, 2.3, 2.0, 1.8, 1.7))),
    ("S1.3", "flattens", run(loss=FALLING, val_loss=at(VAL, 3.0, 3.0, 3.0, 3.0, 3.01, 3.0))),
    ("S1.3", "rises", run(loss=FALLING, val_loss=at(VAL, 3.0, 3.0, 3.1, 3.2, 3.3, 3.4))),
    ("S1.3", "pass", run(loss=2 + 0 * FALLING, val_loss=at(VAL, 3.0, 3.0, 3.1, 3.2, 3.3, 3.4))),
    ("S1.3", "not-applicable", run(val_loss=at(VAL, 1.0, 0.5, 0.1, -0.1, -0.2, -0.3))),
    # S2.1
    ("S2.1", "pass", run()),
    ("S2.1", "flat", run(**{"lr/0": np.full(600, 1e-3)})),
    ("S2.1", "pass", run(config=CONSTANT, **{"lr/0": np.full(600, 1e-3)})),
    ("S2.1", "not-applicable", run(config=SCHEDULED, **{"lr/0": np.full(600, 1e-3)})),
    ("S2.1", "flat", run(config={"schedule": None, "warmup_steps": 50}, **{"lr/0": np.full(600, 1e-3)})),
    ("S2.1", "flat", run(config=SCHEDULED, manifest=DRY, **{"lr/0": np.full(600, 1e-3)})),
    ("S2.1", "pass", run(config=SCHEDULED, manifest=DRY, **{"lr/0": np.full(200, 1e-3)})),
    (
        "S2.1",
        "pass",
        run(config=SCHEDULED, manifest=DRY, scheduler_steps=STEPS // 100, **{"lr/0": np.full(600, 1e-3)}),
    ),
    ("S2.1", "missing", run(without=("lr/0",))),
    ("S2.1", "missing", run(**{"lr/0": [1e-3, 1e-3]})),
    # S2.2
    ("S2.2", "pass", run()),
    ("S2.2", "early", run(**{"lr/0": SHORT.rate(STEPS)})),
    ("S2.2", "early", run(config=SCHEDULED, **{"lr/0": SHORT.rate(STEPS)})),
    ("S2.2", "pass", run(config={"total_steps": 300}, optimizer_steps=np.ones(600), **{"lr/0": SHORT.rate(STEPS)})),
    ("S2.2", "not-applicable", run(**{"lr/0": np.where(STEPS < 200, 1e-3, 1e-4)})),
    ("S2.2", "not-applicable", run(config=CONSTANT, **{"lr/0": np.full(600, 1e-3)})),
    ("S2.2", "not-applicable", run(**{"lr/0": 1e-3 - STEPS * 1e-7})),
    ("S2.2", "missing", run(without=("lr/0",))),
    ("S2.2", "missing", run(**{"lr/0": [1e-3, 1e-4]})),
    # S3.1
    ("S3.1", "pass", run()),
    ("S3.1", "exploding", run(grad_norm=put(NORMS, {5: 1001.0}))),
    ("S3.1", "pass", run(grad_norm=put(NORMS, {5: 999.0}))),
    ("S3.1", "pass", run(grad_norm=put(NORMS, {50: 5000.0}))),
    ("S3.1", "pass", run(grad_norm=2000 * NORMS, config={"vocab_size": None}, manifest=NO_CLASSES)),
    ("S3.1", "exploding", run(grad_norm=put(NORMS, {5: 5000.0}), config={"vocab_size": None})),
    ("S3.1", "vanishing", run(grad_norm=np.where(STEPS < 300, NORMS, 1e-7))),
    ("S3.1", "pass", run(grad_norm=np.where(STEPS < 300, NORMS, 1e-4))),
    ("S3.1", "missing", run(without=("grad_norm",))),
    # S3.2
    ("S3.2", "pass", run()),
    ("S3.2", "never", run(clip_threshold=np.full(600, 10.0), clipped=np.zeros(600))),
    ("S3.2", "pass", run(clip_threshold=np.full(600, 5.0), clipped=np.zeros(600))),
    ("S3.2", "pass", run(clip_threshold=np.full(600, 10.0), clipped=put(np.zeros(600), {300: 1}))),
    ("S3.2", "never", run(without=("clip_threshold", "clipped"), config={"clip": 10.0})),
    ("S3.2", "never", run(without=("clip_threshold", "clipped"), grad_norm=np.zeros(600))),
    ("S3.2", "not-applicable", run(without=("clip_threshold", "clipped"), config={"clip": None})),
    ("S3.2", "not-applicable", run(grad_norm=NORMS[:50])),
    ("S3.2", "missing", run(grad_norm=NORMS[:50], state="running")),
    ("S3.2", "missing", run(without=("grad_norm",))),
    # S4.1
    ("S4.1", "not-applicable", run()),
    ("S4.1", "pass", deep(1.0, 1.0, 2.9)),
    ("S4.1", "outside", deep(1.0, 1.0, 3.1)),
    ("S4.1", "outside", deep(1.0, 0.3, 1.0)),
    ("S4.1", "pass", deep(1.0, 1.0, [9.0, 9.0, 1.0, 1.0, 1.0, 1.0])),
    ("S4.1", "not-applicable", deep(1.0)),
    ("S4.1", "missing", run(without=("activation/a", "activation/b"))),
    # S4.2
    ("S4.2", "pass", run()),
    ("S4.2", "dead", deep(DEAD, ALIVE)),
    ("S4.2", "dead", deep(1.0, [1e-5] * 6, 1.0)),
    ("S4.2", "quiet", deep(DEAD, ALIVE, config={"init": "pretrained"})),
    ("S4.2", "quiet", deep(DEAD, ALIVE, manifest={"initial_weights": FROZEN})),
    ("S4.2", "quiet", deep(WAKES, ALIVE)),
    ("S4.2", "quiet", deep(1.0, 1.0, 0.009)),  # the last one: nothing shows that it stops anything
    ("S4.2", "quiet", deep(1.0, [1e-5] * 6, 1.0, manifest=named(["c0", "c1", "c2"], {}))),  # a branch
    ("S4.2", "pass", deep([0.0] * 6, [0.0] * 6)),
    ("S4.2", "pass", deep(1.0, 1.0, 0.011)),
    ("S4.2", "growing", deep(1.0, 3.1, 9.7)),
    ("S4.2", "pass", deep(1.0, 3.1, 9.2)),
    ("S4.2", "pass", deep(1.0, 3.1)),
    ("S4.2", "not-applicable", deep(1.0)),
    ("S4.2", "missing", run(without=("activation/a", "activation/b"))),
    ("C5.2", "dead-block", deep(DEAD, ALIVE)),
    ("C5.2", "dead-block", deep([1e-5] * 6, 1.0, 1.1)),
    ("C5.2", "growing", deep([1e-5] * 6, 1.0, 11.0)),
    # S5.1
    ("S5.1", "pass", run()),
    ("S5.1", "pass", run(**{"spectral_norm/a.weight": at([0, 500], 0.02, 23.0)})),
    ("S5.1", "growing", run(**{"spectral_norm/a.weight": at([0, 500], 0.02, 25.0)})),
    ("S5.1", "pass", run(**{"spectral_norm/a.weight": at([0, 500], 20.0, 200.0)})),
    ("S5.1", "growing", run(**{"spectral_norm/other": at([0, 500], 1.0, 13.0)})),
    ("S5.1", "not-applicable", run(**{"spectral_norm/a.weight": at([0], 1.0)})),
    ("S5.1", "missing", run(without=("spectral_norm/a.weight",))),
    # S5.2
    ("S5.2", "pass", run()),
    ("S5.2", "pass", run(config=DECLARED)),
    ("S5.2", "decay-not-seen", run(config=DECLARED, manifest=groups(0.0, 0.0))),
    (
        "S5.2",
        "declared-decay-missing",
        run(
            config={**DECLARED, "no_decay": ["bias"]},
            manifest=UNDECAYED,
            **{"update_decay/0": at(SAMPLES, 1e-4)},
        ),
    ),
    ("S5.2", "decay-not-seen", run(config=DECLARED, manifest=UNDECAYED, **{"update_decay/0": at(SAMPLES, 1e-4)})),
    ("S5.2", "pass", run(config=DECLARED, manifest=UNDECAYED, **{"update_decay/0": at(SAMPLES, 0.1)})),
    ("S5.2", "pass", run(config=DECLARED, manifest=groups(0.1, 0.0))),
    ("S5.2", "pass", run(manifest=groups(0.0))),
    ("S5.2", "pass", run(config={"weight_decay": [0.1, 0.0]}, manifest=groups(0.0))),
    ("S5.2", "pass", run(config={"weight_decay": "0.1"}, manifest=groups(0.0))),
    ("S5.2", "not-applicable", run(config=DECLARED, manifest=UNSET)),
    ("S5.2", "not-applicable", run(config=DECLARED, manifest=groups(0.0, None))),
    ("S5.2", "growing", run(**{"block_param_norm/a": GROWS})),
    ("S5.2", "pass", run(**{"block_param_norm/a": (MANY, np.minimum(GROWS[1], 2.5))})),
    ("S5.2", "pass", run(**{"block_param_norm/a": (MANY, 1 + MANY / 700)})),
    ("S5.2", "missing", run(manifest={"param_groups": []})),
    ("S6.3", "pass", run(**{"saturated/a": ([0, 100, 200, 300], [0.1, 0.2, 0.3, 0.3])})),
    ("S6.3", "no-slope", run(**{"saturated/a": ([0, 100, 200, 300], [0.1, 0.95, 0.96, 0.97])})),
    ("S6.3", "pass", run(**{"saturated/a": ([0, 100, 200, 300], [0.95, 0.96, 0.97, 0.3])})),
    ("S6.3", "missing", run(without=("saturated/a",))),
    ("S4.3", "not-applicable", run()),
    ("S4.3", "pass", alike(0.4)),
    ("S4.3", "collapsed", alike(0.9999)),
    ("S4.3", "missing", run(config={"vocab_size": None}, manifest=NO_CLASSES)),
    # S6.1
    ("S6.1", "pass", run()),
    ("S6.1", "pass", units(0.5)),
    ("S6.1", "dead", units(0.51)),
    ("S6.1", "silent", units(1.0, silent=1.0)),
    ("S6.1", "dead", units(0.98, silent=1.0)),
    ("S6.1", "sparse", units(1.0)),
    ("S6.1", "sparse", units(1.0, silent=0.0)),
    ("S6.1", "sparse", units(1.0, silent=1.0, config={"init": "pretrained"})),
    ("S6.1", "sparse", units(1.0, silent=1.0, manifest={"initial_weights": FROZEN})),
    (
        "S6.1",
        "dead",
        run(**{"dead_units/a": at(EARLY, 100.0), "silent_inputs/a": at(EARLY, 1.0)}),
    ),
    ("S6.1", "dead", run(**{"dead_units/a": at([100, 200, 300, 400, 500], 100.0)})),
    ("S6.1", "pass", run(**{"dead_units/a": at(SAMPLES, 100, 0, 0, 0, 0, 0)})),
    ("S6.1", "not-applicable", run(manifest={"inferred": {}})),
    ("S6.1", "not-applicable", run(without=("dead_units/a",), events=[NO_UNITS])),
    ("S6.1", "missing", run(without=("dead_units/a",))),
    # S6.2
    ("S6.2", "pass", run()),
    ("S6.2", "stuck", heads(1.0, 0.2, 0.0, 0.0)),
    ("S6.2", "stuck", heads(1.0, 1.0, 1.0, 0.9)),
    ("S6.2", "stuck-block", heads(1.0, 1.0, 1.0, 1.0)),
    ("S6.2", "narrow", heads(1.0, 0.2, 0.0, 0.0, entropy=0.3)),
    ("S6.2", "narrow", heads(1.0, 0.2, 0.0, 0.0, entropy=None)),
    ("S6.2", "narrow", heads(1.0, 0.2, 0.0, 0.0, config={"init": "pretrained"})),
    ("S6.2", "dead", run(**{"dead_heads/a": at(SAMPLES, 0, 0, 0, 0, 1, 1)})),
    ("S6.2", "pass", run(**{"dead_heads/a": at(SAMPLES, 1, 0, 0, 0, 0, 0)})),
    ("S6.2", "dead", run(**{"dead_heads/a": at(SAMPLES, 1.0)})),  # which head, is not recorded
    ("S6.2", "not-applicable", run(without=("dead_heads/a",), events=[NO_ATTENTION])),
    ("S6.2", "missing", run(without=("dead_heads/a",))),
    # S7.1
    ("S7.1", "not-applicable", run()),
    ("S7.1", "not-applicable", run(**{"class_loss/x": FALLING, "class_loss/y": FALLING})),
    ("S7.1", "pass", race(0.1)),
    ("S7.1", "tangled", race(0.02 * np.sin(LONG / 80))),
    ("S7.1", "pass", race(-0.1)),
    ("S7.1", "not-applicable", race(0.02 * np.sin(STEPS / 80), points=SLOW[:600])),
    ("S7.1", "missing", race(0.1, points=SLOW[:600], state="running")),
    ("S7.1", "not-applicable", race(0.1, points=SLOW[:4])),
    ("S7.1", "missing", race(0.1, points=SLOW[:4], state="running")),
    ("S7.1", "not-applicable", race(0.1, points=SLOW - 3)),
    # S7.2
    ("S7.2", "not-applicable", run()),
    ("S7.2", "pass", race(0.1)),
    ("S7.2", "pass", race(-0.019)),
    ("S7.2", "irregular-first", race(-0.021)),
    ("S7.2", "irregular-first", race(-0.1, family="val_class_loss")),
    ("S7.2", "pass", race(0.02 * np.sin(LONG / 80))),
    ("S7.2", "not-applicable", race(-0.1, points=SLOW[:150])),
    ("S7.2", "missing", race(-0.1, points=SLOW[:150], state="running")),
]
