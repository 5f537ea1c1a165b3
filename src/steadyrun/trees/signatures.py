"""The signatures of the seven panels, asked if neither tree found a fault.

They follow the order of a dashboard: the loss, gradients, the learning rate, training against validation, the layers,
the classes; last, whether labels belong to their inputs.
"""

from steadyrun.questions.form import Question, node
from steadyrun.questions.signatures import (
    s1_1_too_good,
    s1_2_early_spike,
    s1_3_parting,
    s1_4_labels,
    s1_5_plateau,
    s2_1_flat_rate,
    s2_2_early_minimum,
    s3_1_gradient_extremes,
    s3_2_idle_clipping,
    s4_1_unbalanced,
    s4_2_dead_block,
    s4_3_outputs_alike,
    s5_1_spectral_growth,
    s5_2_decay_missing,
    s6_1_dead_units,
    s6_2_stuck_heads,
    s6_3_saturated,
    s7_1_tangled_classes,
    s7_2_irregular_first,
)

TREE: tuple[Question, ...] = (
    node(s1_1_too_good.QUESTION),
    node(s1_2_early_spike.QUESTION),
    node(s3_1_gradient_extremes.QUESTION),
    node(s3_2_idle_clipping.QUESTION),
    node(s2_1_flat_rate.QUESTION),
    node(s2_2_early_minimum.QUESTION),
    node(s1_3_parting.QUESTION),
    node(s1_5_plateau.QUESTION),
    node(s4_1_unbalanced.QUESTION),
    node(s4_2_dead_block.QUESTION),
    node(s4_3_outputs_alike.QUESTION),
    node(s5_1_spectral_growth.QUESTION),
    node(s5_2_decay_missing.QUESTION),
    node(s6_1_dead_units.QUESTION),
    node(s6_2_stuck_heads.QUESTION),
    node(s6_3_saturated.QUESTION),
    node(s7_1_tangled_classes.QUESTION),
    node(s7_2_irregular_first.QUESTION),
    node(s1_4_labels.QUESTION),
)
