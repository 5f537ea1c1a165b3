"""Preference tuning and reinforcement learning: asked of runs that log their numbers."""

from steadyrun.questions.form import Question, node
from steadyrun.questions.goals import (
    g1_1_margin,
    g1_2_chosen_likely,
    g2_1_groups,
    g2_2_entropy,
    g2_3_reference,
    g2_4_lengths,
    g2_5_value_function,
    g2_6_sampler,
    g2_7_update_size,
)

TREE: tuple[Question, ...] = (
    node(g1_1_margin.QUESTION),
    node(g1_2_chosen_likely.QUESTION),
    node(g2_1_groups.QUESTION),
    node(g2_2_entropy.QUESTION),
    node(g2_3_reference.QUESTION),
    node(g2_4_lengths.QUESTION),
    node(g2_5_value_function.QUESTION),
    node(g2_6_sampler.QUESTION),
    node(g2_7_update_size.QUESTION),
)
