"""Small synthetic runs with adapters, preferences, policies and losses of several terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import NOISE
from synthetic import Synthetic

ROWS = np.arange(60)
SHAKY = NOISE[:60]
UP, DOWN, LEVEL = ROWS / 60, 1 - ROWS / 60, np.full(60, 0.5)
SOLVED = np.minimum(1.0, ROWS / 20)


def goal(**series: Any) -> Synthetic:
    return Synthetic(config={}, manifest={}, **{name.replace("__", "/"): values for name, values in series.items()})


def policy(reward: Any = None, **series: Any) -> Synthetic:
    return goal(reward=UP + 0.01 * SHAKY if reward is None else reward, **series)


def weight(name: str, *, trainable: bool = True, largest: float = 0.1) -> dict[str, Any]:
    return {"name": name, "trainable": trainable, "min": -largest, "max": largest, "shape": [8, 8]}


FRESH = {**weight("layer.lora_B.default.weight", largest=0.3535), "fan_in": 8}  # as torch makes a layer
BASE = [weight("layer.weight", trainable=False), weight("layer.norm.weight", trainable=False)]
LORA = [weight("layer.lora_A.default.weight"), weight("layer.lora_B.default.weight", largest=0.0)]
NAMES = [str(each["name"]) for each in LORA]


def adapted(
    weights: list[dict[str, Any]] | None = None,
    optimized: list[str] = NAMES,
    rate: float = 2e-4,
    config: dict[str, Any] | None = None,
    adapters: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    **series: Any,
) -> Synthetic:
    groups = [{"class": "AdamW", "settings": {"lr": rate}, "parameters": optimized}]
    manifest = {"initial_weights": [*BASE, *LORA] if weights is None else weights, "param_groups": groups}
    return Synthetic(config or {}, {**manifest, **(more or {}), "adapters": adapters or {}}, loss=DOWN, **series)


FROZEN = [{**each, "trainable": False} for each in LORA]
OPEN_BASE = [{**each, "trainable": True} for each in BASE]
BY_HAND = [weight("w.lora_down"), weight("w.lora_up", largest=0.0)]
MARGINS = {"rewards__margins": 2 * UP + 0.02 * SHAKY}


def tokens(**counts: Any) -> Synthetic:
    usual = {"examples": 32, "tokens": 3200, "learned": 1600, "empty": 0, "ends": 32, "learned_ends": 32, "ended": 32}
    return Synthetic({}, {"supervision": {**usual, "roles": CHAT, **counts}}, loss=DOWN)


def chat(user: int, assistant: int) -> dict[str, Any]:
    """Of 100 tokens each, how many are learned."""
    return {"user": {"learned": user, "tokens": 100}, "assistant": {"learned": assistant, "tokens": 100}}


def sampled(value: float, last: int = 600) -> tuple[Any, Any]:
    steps = np.arange(0, last + 1, last // 12)
    return steps, np.full(len(steps), value)


def generated(variance: float, rank: float, last: int = 600, **series: Any) -> Synthetic:
    shapes = {"generated__variance": sampled(variance, last), "generated__rank": sampled(rank, last)}
    return goal(loss=DOWN, **shapes, **series)


def declared(config: dict[str, Any], **series: Any) -> Synthetic:
    return Synthetic(config, {}, **{name.replace("__", "/"): values for name, values in series.items()})


def trained_at(rate: float, **series: Any) -> Synthetic:
    group = {"class": "Adam", "settings": {"lr": rate}, "parameters": ["net.weight"]}
    return Synthetic({}, {"param_groups": [group]}, reward=UP + 0.01 * SHAKY, **series)


def noised(most: float, squares: float, sums: float, spread: float = 99.0, kind: str = "epsilon") -> Synthetic:
    values = {"most": most, "by_squares": squares, "by_sums": sums, "times": spread}
    series = {f"noised/{name}": sampled(value) for name, value in values.items()}
    return Synthetic({"prediction_type": kind}, {}, loss=DOWN, **series)


def contrastive(
    scores: int = 128,
    peak: float = 4.0,
    alike: float = 0.2,
    rank: float = 5.0,
    itself: float = 0.0,
    fit: float = 1.0,
    config: dict[str, Any] | None = None,
) -> Synthetic:
    series = {
        "targets/itself": sampled(itself),
        "targets/peak": sampled(peak),
        "output_alike": sampled(alike),
        "output_rank": sampled(rank),
        "fit/classes": sampled(fit),
        "fit_guess/classes": sampled(float(np.log(scores))),
    }
    facts = {"objective": {"contrastive": True, "classes": scores}}
    return Synthetic(config or {}, {"inferred": facts}, loss=DOWN, **series)


MERGED = np.array([20.0, 20.0, 23.0])
LOGPS = {"logps__chosen": -5 - 15 * UP + 0.2 * SHAKY, "logps__rejected": -2 - UP + 0.2 * SHAKY}
EQUAL_GROUPS = {"frac_reward_zero_std": np.ones(60), "kl": 0.5 + UP}
HALF = {"reward": LEVEL + 0.1 * SHAKY}
BOTH_DOWN = np.exp(-np.arange(300) / 20)
LENGTHS = 50 + 20 * UP + 5 * SHAKY
NEW_ROWS = {"supervision": {"examples": 32, "small_rows": [[51, 0.2, 8], [40, 0.4, 8], [7, 0.45, 1], [9, 0.7, 30]]}}
LOW_DISCOUNT = {"explained_variance": 0.8 * UP, "ep_return": UP + 0.01 * SHAKY}
ALWAYS_ONE = {"clip_fraction": np.zeros(60), "approx_kl": np.zeros(60), "reward": UP + 0.01 * SHAKY}
WEIGHTED_KL = {"recon_loss": DOWN + 1, "kl": np.ones(60), "kl_weight": np.ones(60)}
CODES = {"codebook_loss": DOWN, "perplexity": np.ones(60)}
PAIR = {"rewards/margins": UP, "copy/model_size": sampled(5.0)}


def taught(
    rows: float = 0.0,
    teacher: float = 1.0,
    heat: float = 3.0,
    squashed: float = 0.7,
    facts: dict[str, Any] | None = None,
    largest: float = 0.2,
    weight: float = 1.0,
) -> Synthetic:
    """A student of a teacher; `largest` is the largest weight of the teacher, whose fan-in is 64."""
    numbers = {"rows": rows, "student_fit": 1.0, "student_temperature": 3.0}
    numbers |= {"weight": weight, "teacher_fit": teacher, "teacher_temperature": heat, "squashed_fit": squashed}
    inside = {"name": "teacher.0.weight", "shape": [64, 64], "fan_in": 64, "min": -largest, "max": largest}
    kept = {"teacher": {"random": False, "differentiated": False, "optimized": 0} | (facts or {})}
    manifest = {"inferred": {"objective": {"companions": kept}}, "companion_weights": [inside]}
    return Synthetic({}, manifest, loss=DOWN, **{f"taught/{name}": sampled(value) for name, value in numbers.items()})


def target(kind: str, variance: float, mean: float) -> Synthetic:
    series = {"fit_guess/squared": sampled(variance), "fit_target/squared": sampled(mean)}
    return Synthetic({"prediction_type": kind}, {}, loss=DOWN, **series)


CHAT = chat(0, 100)
CASES: list[tuple[str, str, Any]] = [
    ("M1.1", "not-applicable", goal(loss=DOWN)),
    ("M1.1", "pass", tokens()),
    ("M1.1", "pass", tokens(roles={})),
    ("M1.1", "some-empty", tokens(empty=2)),
    ("M1.1", "empty", tokens(empty=20)),
    ("M1.1", "nothing", tokens(learned=0, empty=32)),
    ("M1.1", "reversed", tokens(roles=chat(100, 2))),
    ("M1.2", "not-applicable", tokens(roles={})),
    ("M1.2", "masked", tokens(roles=chat(4, 100))),
    ("M1.2", "learned", tokens(roles=chat(100, 100))),
    ("M1.2", "partly", tokens(roles=chat(40, 100))),
    ("M1.3", "not-applicable", tokens(roles={}, learned=3168)),
    ("M1.3", "learned", tokens()),
    ("M1.3", "some-cut", tokens(cut=6, ends=26, learned_ends=26)),
    ("M1.3", "cut", tokens(cut=30, ends=2, ended=2)),
    ("M1.3", "cut", tokens(ends=0, learned_ends=0, ended=0, longest_unended=4, unended_alike=30)),
    ("M1.3", "no-ends", tokens(ends=0, learned_ends=0, ended=0, longest_unended=40, unended_alike=1)),
    ("M1.3", "no-ends", tokens(roles={}, ends=0, learned_ends=0, ended=0)),
    ("M1.3", "no-ends", tokens(ends=0, learned_ends=0, ended=0)),
    ("M1.3", "no-ends", tokens(ends=0, learned_ends=0, ended=0, cut=32, packed=30)),  # not even within a row
    ("M1.3", "no-ends", tokens(ends=0, learned_ends=0, ended=0, cut=32, last_alike=32)),  # another end token
    ("M1.3", "cut", tokens(ends=0, learned_ends=0, ended=0, cut=32, last_alike=4)),
    ("M1.3", "masked", tokens(learned_ends=0)),
    ("M1.3", "not-applicable", tokens(roles=chat(100, 0), learned_ends=0)),
    ("M1.3", "padding", tokens(learned_padding=800)),
    ("M1.4", "not-applicable", goal(loss=DOWN)),
    ("M1.4", "pass", tokens()),
    ("M1.4", "pass", tokens(packed=8, restarts=8)),
    ("M1.4", "foreign", tokens(foreign=["<|im_start|>"])),
    ("M1.4", "twice", tokens(double_starts=32)),
    ("M1.4", "together", tokens(packed=8, roles={})),
    ("M1.4", "mixed", tokens(packed=8, roles=chat(2, 100))),
    ("M1.4", "pass", tokens(packed=8, apart=8)),
    ("M1.4", "partly", tokens(packed=8, restarts=3)),
    ("L1.1", "not-applicable", goal(loss=DOWN)),
    ("L1.1", "pass", adapted()),
    ("L1.1", "pass", adapted([*BASE, *BY_HAND], ["w.lora_down", "w.lora_up"])),
    ("L1.1", "pass", adapted(adapter_norm=UP)),
    ("L1.1", "frozen", adapted([*BASE, *FROZEN])),
    ("L1.1", "not-optimized", adapted(optimized=["layer.weight"])),
    ("L1.1", "merged", adapted(adapters={"merged": 2})),
    ("L1.1", "never-move", adapted(adapter_norm=np.full(5, 3.0))),
    ("L1.1", "new-words", adapted(more=NEW_ROWS)),
    ("L1.1", "pass", adapted(more={"supervision": {"examples": 32, "small_rows": [[7, 0.3, 1], [9, 0.7, 30]]}})),
    ("L1.1", "partly", adapted(optimized=NAMES[:1])),
    ("L1.2", "not-applicable", goal(loss=DOWN)),
    ("L1.2", "zero", adapted()),
    ("L1.2", "not-zero", adapted([*BASE, LORA[0], weight(NAMES[1])])),
    ("L1.2", "trained-before", adapted([*BASE, LORA[0], weight(NAMES[1])], config={"init": "pretrained"})),
    (
        "L1.2",
        "not-zero",  # drawn as torch draws any layer: only the base is pretrained
        adapted([*BASE, LORA[0], {**weight(NAMES[1], largest=0.35), "fan_in": 8}], config={"init": "pretrained"}),
    ),
    ("L1.2", "not-zero", adapted([*BASE, LORA[0], FRESH], config={"init": "pretrained"})),
    ("L1.2", "both-zero", adapted([*BASE, weight(NAMES[0], largest=0.0), LORA[1]])),
    ("L1.3", "not-applicable", goal(loss=DOWN)),
    ("L1.3", "usual", adapted(adapters={"scale": [2.0, 2.0]})),
    ("L1.3", "usual", adapted()),
    ("L1.3", "large", adapted(adapters={"scale": [64, 64]})),
    ("L1.3", "small", adapted(adapters={"scale": [0.001, 2]})),
    ("L1.3", "low-rate", adapted(rate=1e-6)),
    ("L1.3", "high-rate", adapted(rate=0.5)),
    ("L1.4", "not-applicable", goal(loss=DOWN)),
    ("L1.4", "frozen", adapted()),
    ("L1.4", "frozen", adapted([*OPEN_BASE[1:], BASE[0], *LORA], ["layer.norm.weight", *NAMES])),
    ("L1.4", "frozen", adapted(adapter_base_norm=np.full(5, 20.0), adapter_norm=np.arange(5.0))),
    (
        "L1.4",
        "frozen",
        adapted(adapter_base_norm=np.array([20.0, 20, 23]), adapter_norm=np.array([5.0, 6, 4])),
    ),  # ReLoRA
    ("L1.4", "moves", adapted(adapter_base_norm=np.array([20.0, 20, 23]), adapter_norm=np.array([5.0, 6, 7]))),
    ("L1.4", "trains", adapted([*OPEN_BASE, *LORA], ["layer.weight", *NAMES])),
    ("G1.1", "not-applicable", goal(loss=DOWN)),
    ("G1.1", "not-applicable", goal(rewards__margins=UP[:5])),
    ("G1.1", "rises", goal(**MARGINS)),
    ("G1.1", "rises", goal(**MARGINS, rewards__accuracies=0.5 + UP / 3)),
    ("G1.1", "rises", goal(rewards__margins=0.02 * SHAKY[:20])),  # too short to call it flat
    ("G1.1", "reversed", goal(rewards__margins=-2 * UP + 0.02 * SHAKY, rewards__accuracies=0.5 - UP / 3)),
    ("G1.1", "flat", goal(rewards__margins=0.02 * SHAKY, rewards__accuracies=0.5 + 0.01 * SHAKY)),
    ("G1.1", "identical", goal(rewards__margins=np.zeros(60))),
    ("G1.1", "identical", goal(rewards__margins=np.zeros(60), logps__chosen=-UP - 1, logps__rejected=-UP - 1)),
    ("G1.1", "flat", goal(rewards__margins=np.zeros(60), logps__chosen=-UP - 1, logps__rejected=-UP - 2)),
    (
        "G1.1",
        "reversed",
        goal(**MARGINS, logps__chosen=-200 - 90 * UP + SHAKY, logps__rejected=-210 + 50 * UP + SHAKY),
    ),
    ("G1.1", "reversed", goal(**MARGINS, **LOGPS)),  # the sign of the rewards is wrong
    ("G1.1", "rises", goal(**MARGINS, logps__chosen=-5 + UP + SHAKY, logps__rejected=-9 - 20 * UP + SHAKY)),
    ("G1.1", "flat", goal(loss=LEVEL, margin=0.02 * SHAKY[:20], mean_reward=UP[:20], accuracy=LEVEL[:20])),
    ("G1.1", "not-applicable", goal(margin=0.02 * SHAKY)),  # of another loss
    ("G1.1", "opposed", goal(**MARGINS, eval_rewards__margins=np.array([-0.7, -1.5]))),
    ("G1.1", "rises", goal(**MARGINS, eval_rewards__margins=np.array([0.1, -0.1]))),  # learned by heart
    ("G1.1", "beta-high", declared({"beta": 10}, **MARGINS)),
    ("G1.1", "beta-low", declared({"beta": 1e-4}, **MARGINS)),
    ("G1.1", "rises", declared({"beta": 10, "loss_type": ["simpo"]}, **MARGINS)),
    ("G1.2", "not-applicable", goal(**MARGINS)),
    ("G1.2", "stay", goal(logps__chosen=-200 + SHAKY, logps__rejected=-210 - 50 * UP)),
    ("G1.2", "both-fall", goal(logps__chosen=-200 - 40 * UP + SHAKY, logps__rejected=-210 - 90 * UP)),
    ("G1.2", "chosen-falls", goal(logps__chosen=-200 - 40 * UP + SHAKY)),
    ("G1.2", "collapse", goal(logps__chosen=-2 - 20 * np.minimum(1, ROWS / 25) + 6 * SHAKY)),  # pairs differ
    ("G1.2", "stay", goal(logps__chosen=-2 - 2 * UP + 5 * SHAKY)),
    ("G1.2", "collapse", goal(logps__chosen=-200 - 400 * UP + SHAKY, logps__rejected=-210 - 900 * UP)),
    ("G1.3", "not-applicable", goal(**MARGINS)),
    ("G1.3", "same", Synthetic({}, {}, **PAIR, **{"copy/distance": sampled(0.001)})),
    ("G1.3", "another", Synthetic({}, {}, **PAIR, **{"copy/distance": sampled(7.0)})),
    ("G2.1", "not-applicable", policy()),
    ("G2.1", "vary", policy(frac_reward_zero_std=0.3 + 0.01 * SHAKY)),
    ("G2.1", "vary", policy(reward_std=0.3 + 0.01 * SHAKY)),
    ("G2.1", "solved", policy(SOLVED, frac_reward_zero_std=np.minimum(1.0, ROWS / 30))),
    ("G2.1", "all-right", policy(np.ones(60), frac_reward_zero_std=np.ones(60))),
    ("G2.1", "all-wrong", policy(np.zeros(60), frac_reward_zero_std=np.ones(60))),
    ("G2.1", "all-wrong", policy(0.6 + 0.4 * DOWN, reward_std=np.zeros(60))),
    ("G2.1", "lost", policy(DOWN, reward_std=np.where(ROWS < 30, 0.4, 0.0))),
    ("G2.2", "not-applicable", policy()),
    ("G2.2", "not-applicable", goal(loss=DOWN, entropy=DOWN)),  # not of a policy
    ("G2.2", "not-applicable", policy(entropy=UP - 0.5)),  # of continuous actions
    ("G2.2", "alive", policy(entropy=0.7 - 0.3 * UP)),
    ("G2.2", "alive", policy(entropy_loss=-0.7 + 0.3 * UP)),
    ("G2.2", "low", policy(entropy=0.7 * np.exp(-ROWS / 5))),
    ("G2.2", "gone", policy(LEVEL + 0.01 * SHAKY, entropy=0.7 * np.exp(-ROWS / 5))),
    ("G2.2", "weight", declared({"ent_coef": 2.0}, reward=UP, entropy=0.7 - 0.3 * UP)),
    ("G2.2", "weight", declared({"entropy_coef": -0.01}, reward=UP, entropy=0.7 - 0.3 * UP)),
    ("G2.2", "temperature", declared({"temperature": 5.0}, reward=UP, entropy=0.7 - 0.3 * UP)),
    ("G2.2", "alive", declared({"ent_coef": 0.01, "temperature": 1.0}, reward=UP, entropy=0.7 - 0.3 * UP)),
    ("G2.2", "runaway", policy(DOWN + 0.01 * SHAKY, actor__entropy=0.5 + 3 * UP)),
    ("G2.3", "not-applicable", goal(loss=DOWN, kl=UP)),  # of a VAE
    ("G2.3", "near", policy(kl=0.1 * UP + 0.001 * SHAKY)),
    ("G2.3", "far", policy(kl=0.01 * np.exp(ROWS / 10))),
    ("G2.3", "runaway", policy(DOWN + 0.01 * SHAKY, objective__kl=0.01 * np.exp(ROWS / 10))),
    ("G2.3", "negative", policy(objective__kl=-5 * UP + 0.05 * SHAKY)),
    ("G2.3", "rewarded", policy(loss=-0.02 * (0.5 + UP), **EQUAL_GROUPS)),
    ("G2.3", "near", policy(loss=0.02 * (0.5 + UP), **EQUAL_GROUPS)),
    ("G2.3", "heavy", declared({"kl_coef": 5.0}, reward=UP, kl=0.1 * UP)),
    ("G2.4", "rewarded", policy(0.1 * LENGTHS, completions__mean_length=LENGTHS)),
    ("G2.4", "end", policy(0.1 * LENGTHS + 2 * SHAKY[::-1], completions__mean_length=LENGTHS)),
    ("G2.4", "not-applicable", policy()),
    ("G2.4", "end", policy(completions__clipped_ratio=0.1 * UP, completions__mean_length=100 + 50 * UP)),
    ("G2.4", "end", policy(completions__mean_length=100 + 900 * UP)),  # reasoning that pays
    ("G2.4", "cut", policy(response_length__clip_ratio=UP)),
    ("G2.4", "truncated", policy(LEVEL + 0.01 * SHAKY, response_length__clip_ratio=UP)),
    ("G2.4", "short", policy(LEVEL, completion_length=200 * np.exp(-ROWS / 5))),
    ("G2.4", "runaway", policy(DOWN + 0.01 * SHAKY, response_length__mean=100 + 900 * UP)),
    ("G2.5", "not-applicable", policy()),
    ("G2.5", "explains", policy(train__explained_variance=0.8 * UP)),
    ("G2.5", "unexplained", policy(explained_variance=0.01 * SHAKY)),
    ("G2.5", "nothing", policy(LEVEL + 0.01 * SHAKY, critic__vf_explained_var=0.01 * SHAKY)),
    ("G2.5", "off-centre", policy(advantage_mean=5 * np.ones(60), reward_std=LEVEL)),
    ("G2.5", "short-sighted", Synthetic({"gamma": 0.0}, {}, **LOW_DISCOUNT)),
    ("G2.5", "explains", Synthetic({"gamma": 0.9}, {}, **LOW_DISCOUNT)),
    ("G2.5", "off-centre", policy(critic__advantages__mean=LEVEL * 4, critic__advantages__std=LEVEL)),
    ("G2.6", "not-applicable", policy()),
    ("G2.6", "agree", policy(sampling__sampling_logp_difference__mean=0.02 + 0.001 * SHAKY)),
    ("G2.6", "differ", policy(training__rollout_probs_diff_mean=0.02 + 0.5 * UP)),
    ("G2.7", "not-applicable", policy()),
    ("G2.7", "small", policy(train__clip_fraction=0.2 * UP, train__approx_kl=0.01 * UP)),
    ("G2.7", "large", policy(train__clip_fraction=0.9 * np.minimum(1, 2 * UP))),
    ("G2.7", "always-one", Synthetic({"ppo_epochs": 4}, {}, **ALWAYS_ONE)),
    ("G2.7", "small", Synthetic({"ppo_epochs": 1}, {}, **ALWAYS_ONE)),
    ("G2.7", "small", Synthetic({"ppo_epochs": 4}, {}, clip_fraction=np.zeros(60), reward=UP)),
    ("G2.7", "too-large", policy(DOWN + 0.01 * SHAKY, losses__approx_kl=UP)),
    ("G2.7", "too-large", policy(losses__approx_kl=np.where(ROWS % 4 == 0, 0.5, 0.01))),  # the reward rises
    ("G2.7", "rate", trained_at(0.06, approx_kl=0.01 * UP)),
    ("G2.7", "small", trained_at(3e-4, approx_kl=0.01 * UP)),
    ("G3.1", "not-applicable", goal(loss=DOWN)),
    ("G3.1", "not-opposed", goal(loss_g=0.7 * BOTH_DOWN, loss_d=1.4 * BOTH_DOWN)),
    ("G3.1", "differ", generated(0.5, 0.5, loss_g=2 - BOTH_DOWN, loss_d=1.4 * BOTH_DOWN)),
    (
        "G3.1",
        "one-label",
        generated(0.5, 0.5, fit_target__logits=sampled(1.0), **{"fit_target__logits#2": sampled(1.0)}),
    ),
    ("G3.1", "differ", generated(0.5, 0.5, fit_target__logits=sampled(0.9), **{"fit_target__logits#2": sampled(0.1)})),
    ("G3.1", "not-applicable", generated(0.01, 0.2, last=100)),
    ("G3.1", "differ", generated(0.5, 0.5)),
    ("G3.1", "differ", generated(0.07, 1.0)),  # on the way of a healthy generator
    ("G3.1", "collapsed", generated(0.03, 0.3)),
    ("G3.1", "equal", generated(1e-14, 0.1)),
    ("G3.1", "noise", generated(100.0, 1.0)),
    ("G3.2", "not-applicable", goal(loss=DOWN)),
    ("G3.2", "not-applicable", policy(kl=UP, recon=DOWN)),
    ("G3.2", "bounded", goal(loss=DOWN + 1, recon=DOWN, kl=np.ones(60))),
    ("G3.2", "bounded", goal(recon=DOWN, kl_loss=4 * SOLVED)),
    ("G3.2", "bounded", goal(loss=DOWN + 1, recon=DOWN + 1, kl=np.ones(60))),  # does not grow
    ("G3.2", "not-counted", goal(loss=DOWN + 1, recon_loss=DOWN + 1, kl_loss=UP * 100)),
    ("G3.2", "not-counted", goal(loss=DOWN + 1, **WEIGHTED_KL)),
    ("G3.2", "subtracted", goal(loss=DOWN - UP, recon=DOWN, kl=UP)),
    ("G3.2", "runaway", goal(loss=DOWN, recon=DOWN, kld=np.exp(ROWS / 5))),
    ("G3.3", "not-applicable", goal(loss=DOWN)),
    ("G3.3", "separate", contrastive()),
    ("G3.3", "some", contrastive(8)),
    ("G3.3", "few", contrastive(4)),
    ("G3.3", "itself", contrastive(itself=1.0)),
    ("G3.3", "flat", contrastive(peak=0.05)),
    ("G3.3", "temperature", contrastive(config={"temperature": 200})),
    ("G3.3", "separate", contrastive(config={"temperature": 0.07})),
    ("G3.3", "lost", contrastive(fit=4.85, alike=0.99)),
    ("G3.4", "not-applicable", goal(loss=DOWN)),
    ("G3.4", "spread", contrastive(rank=1.1, alike=0.8)),  # a cone that still opens
    ("G3.4", "not-applicable", contrastive(8)),
    ("G3.4", "spread", contrastive()),
    ("G3.4", "narrow", contrastive(alike=0.99)),
    ("G3.4", "one-direction", contrastive(rank=1.1)),
    ("G3.6", "not-applicable", goal(loss=DOWN)),
    ("G3.6", "follows", taught()),
    ("G3.6", "not-counted", taught(weight=0.0)),
    ("G3.6", "follows", taught(facts={"optimized": 6})),  # held, but without gradients
    ("G3.6", "learns", taught(facts={"optimized": 6, "differentiated": True})),
    ("G3.6", "random", taught(facts={"random": True})),
    ("G3.6", "untrained", taught(largest=0.1249)),
    ("G3.6", "wrong-axis", taught(rows=0.8)),
    ("G3.6", "squashed-twice", taught(teacher=0.7, squashed=1.0)),
    ("G3.6", "not-its-answers", taught(teacher=0.1, squashed=0.1)),
    ("G3.6", "one-sided", taught(heat=1.0)),
    ("G3.7", "not-applicable", goal(perplexity=np.ones(60))),
    ("G3.7", "one-code", goal(**CODES)),
    ("G3.7", "used", goal(codebook_loss=DOWN, perplexity=6 * np.ones(60))),
    ("G3.5", "not-applicable", goal(loss=DOWN)),
    ("G3.5", "not-applicable", target("sample", 0.4, -0.7)),
    ("G3.5", "one-time", noised(0.99, 0.02, 0.2, spread=0.0)),
    ("G3.5", "weak", noised(0.05, 0.02, 0.2)),
    ("G3.5", "linear", noised(0.99, 0.2, 0.05)),
    ("G3.5", "not-applicable", noised(0.99, 0.02, 0.2)),
    ("G3.5", "not-applicable", noised(0.05, 0.2, 0.05, kind="v_prediction")),
    ("G3.5", "noise", target("epsilon", 0.99, 0.001)),
    ("G3.5", "other", target("epsilon", 0.4, -0.7)),
]
