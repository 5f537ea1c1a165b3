"""The dynamics tree: what happened during training, from top to bottom; the first fault is the answer."""

from steadyrun.questions.dynamics import (
    d1_1_non_finite,
    d1_2_number_format,
    d1_3_origin,
    d2_1_spikes,
    d2_2_recovery,
    d2_3_cause,
    d2_4_elevation,
    d3_1_overflow,
    d3_2_loss_scale,
    d3_3_fingerprint,
    d4_1_upward,
    d4_2_rate_rises,
    d4_3_weight_norms,
    d4_4_gradient_trend,
)
from steadyrun.questions.form import Question, node

TREE: tuple[Question, ...] = (
    node(d1_1_non_finite.QUESTION, {"non-finite": ("D1.2", "D1.3")}),
    node(d1_2_number_format.QUESTION, {"fp16": ("D3",)}),
    node(d1_3_origin.QUESTION),
    node(d2_1_spikes.QUESTION),
    node(d2_2_recovery.QUESTION, {"stays": ("D2.3", "D2.4")}),
    node(d2_3_cause.QUESTION),
    node(d2_4_elevation.QUESTION),
    node(d3_1_overflow.QUESTION, {"overflow": ("D3.2",)}),
    node(d3_2_loss_scale.QUESTION),
    node(d3_3_fingerprint.QUESTION),
    node(d4_1_upward.QUESTION, {"rising": ("D4.2", "D4.3", "D4.4")}),
    node(d4_2_rate_rises.QUESTION),
    node(d4_3_weight_norms.QUESTION),
    node(d4_4_gradient_trend.QUESTION),
)
