"""Learned tokens, adapters, preferences, policies and losses of several terms: asked of runs that have them."""

from steadyrun.questions.adapters import l1_1_trained, l1_2_start, l1_3_scale, l1_4_base
from steadyrun.questions.form import Question, node
from steadyrun.questions.goals import (
    g1_1_margin,
    g1_2_chosen_likely,
    g1_3_reference,
    g2_1_groups,
    g2_2_entropy,
    g2_3_reference,
    g2_4_lengths,
    g2_5_value_function,
    g2_6_sampler,
    g2_7_update_size,
    g3_1_diversity,
    g3_2_latent_code,
    g3_3_scores,
    g3_4_embeddings,
    g3_5_noise_target,
    g3_6_teacher,
    g3_7_codes,
)
from steadyrun.questions.supervision import m1_1_answers, m1_2_prompts, m1_3_ends, m1_4_format

TREE: tuple[Question, ...] = (
    node(m1_1_answers.QUESTION),
    node(m1_2_prompts.QUESTION),
    node(m1_3_ends.QUESTION),
    node(m1_4_format.QUESTION),
    node(l1_1_trained.QUESTION),
    node(l1_2_start.QUESTION),
    node(l1_3_scale.QUESTION),
    node(l1_4_base.QUESTION),
    node(g1_1_margin.QUESTION),
    node(g1_2_chosen_likely.QUESTION),
    node(g1_3_reference.QUESTION),
    node(g2_1_groups.QUESTION),
    node(g2_2_entropy.QUESTION),
    node(g2_3_reference.QUESTION),
    node(g2_4_lengths.QUESTION),
    node(g2_5_value_function.QUESTION),
    node(g2_6_sampler.QUESTION),
    node(g2_7_update_size.QUESTION),
    node(g3_1_diversity.QUESTION),
    node(g3_2_latent_code.QUESTION),
    node(g3_3_scores.QUESTION),
    node(g3_4_embeddings.QUESTION),
    node(g3_5_noise_target.QUESTION),
    node(g3_6_teacher.QUESTION),
    node(g3_7_codes.QUESTION),
)
