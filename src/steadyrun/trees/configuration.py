"""The configuration tree: whether the run is set up as intended, from top to bottom; the first fault is the answer."""

from steadyrun.questions.configuration import (
    c1_1_initial_loss,
    c1_2_first_gradient,
    c2_1_schedule,
    c2_2_end_of_warmup,
    c3_1_gradient_level,
    c3_2_gradient_spikes,
    c4_1_loss_falls,
    c4_2_generalisation,
    c5_1_initial_weights,
    c5_2_activations,
    c6_1_decay_groups,
    c6_2_moments,
    c6_3_accumulation,
    c7_1_travel,
    c7_2_large_steps,
    c7_3_decay,
    c7_4_adam,
    c7_5_dropout,
    c7_6_smoothing,
)
from steadyrun.questions.form import Question, node

TREE: tuple[Question, ...] = (
    node(
        c1_1_initial_loss.QUESTION,
        {
            "off": ("C5",),
            "high": ("C5", "C1.2"),
            "low": ("C1.2", "C3.1"),
            "already-trained": ("C1.2", "C3.1"),
            "counts-too-little": ("C1.2", "C3.1"),
        },
    ),
    node(c1_2_first_gradient.QUESTION, {"perhaps-summed": ("C5",), "too-large": ("C5",)}),
    node(c2_1_schedule.QUESTION, {"late-warmup": ("C2.2",)}),
    node(c2_2_end_of_warmup.QUESTION),
    node(c3_1_gradient_level.QUESTION, {"always-clipping": ("C6.2",)}),
    node(c3_2_gradient_spikes.QUESTION, {"many": ("D2",)}),
    node(
        c4_1_loss_falls.QUESTION,
        {
            "diverging": ("C6.2", "C7"),
            "not-learning": ("C6.2", "C7"),
            "static": ("C6.2",),
            "too-slow": ("C6.2", "C7"),
        },
    ),
    node(c4_2_generalisation.QUESTION),
    node(c5_1_initial_weights.QUESTION),
    node(c5_2_activations.QUESTION, {"dead-block": ("S4.2",)}),
    node(c6_1_decay_groups.QUESTION),
    node(c6_2_moments.QUESTION),
    node(c6_3_accumulation.QUESTION),
    node(c7_1_travel.QUESTION),
    node(c7_2_large_steps.QUESTION),
    node(c7_3_decay.QUESTION),
    node(c7_4_adam.QUESTION),
    node(c7_5_dropout.QUESTION),
    node(c7_6_smoothing.QUESTION),
)
