"""Which finding of which tool names which bug.

Read from the tools' own rules and messages, in their favour: a finding is said to name a bug where its title, message
or remedy says what is wrong in the program, so that one would look at the right place. Where a tool lists several
possible causes under one finding, the bugs among them are in `AMONG`: they count as named somewhere, not as the first.
A finding that only says that something happened (NaN, a spike, no progress) names nothing.

torchmortem and trainscope describe dynamics, and trainscope only spikes of the loss: most bugs are outside of what they
promise. Hints of torch-audit about speed (TA2xx) are left out altogether.
"""

from __future__ import annotations

Table = dict[str, dict[str, tuple[str, ...]]]

NAMES: Table = {
    "torch-audit": {
        "TA100": ("B5",),  # NaN or infinity in a gradient, with its parameter
        "TA102": ("A6",),  # gradient explosion
        "TA103": ("C18",),  # a gradient that is exactly zero: dead unit or layer
        "TA104": ("A31",),  # no gradients at the step
        "TA105": ("C18",),  # activation collapse
        "TA304": ("B23",),  # tiny batches with batch normalisation
        "TA402": ("B30",),  # weight decay on norms and biases
    },
    "torchmortem": {
        "Vanishing gradients detected": ("C19",),
        "Exploding gradients detected": ("A6",),
        "Gradient stalling": ("C18", "C19"),
        "Dead units": ("C18",),
        "Activation saturation": ("C19",),
        "Update ratio too low": ("A7", "B6"),
        "Update ratio too high": ("A6",),
        "Training divergence detected": ("A6",),
        "Gradient starvation causing unit death": ("C18",),
        "Instability feedback loop -- gradients and weights exploding": ("A6",),
    },
    "trainscope": {
        "spike at the odd batch": ("B31",),  # a spike snapshot with the index of the batch
    },
    "runmedic": {
        "divergence": ("A6",),
        "loss_spikes": ("B31",),  # its first cause: individual bad batches, with the step
    },
    "trainproof": {
        "TP-DIVERGE": ("A6",),
        "TP-NAN-GRAD": ("B5",),
        "TP-ZERO-GRAD": ("A31",),  # no gradient reached the weights
        "TP-OBJ-LABEL-SHIFT-DOUBLE": ("A21", "A22"),
        "TP-OBJ-DEAD-CLASS": ("A25",),  # a class that is never a target; asked without padding and start marks
        "TP-OBJ-TARGET-OUT-OF-RANGE": ("B15",),
    },
}

AMONG: Table = {
    "torch-audit": {"TA103": ("C19",), "TA500": ("A27", "A28")},
    "torchmortem": {
        "Stagnant weight norms": ("A7", "A29", "A30", "A31", "B6"),
        "Loss plateau detected": ("A7",),
    },
    "trainscope": {},
    "runmedic": {
        # "Weights are not updated: step missing, zero_grad after backward, frozen or not passed to the optimizer",
        # "learning rate far too low", "labels are misaligned with inputs"
        "no_learning": ("A7", "A27", "A29", "A31", "A34"),
        # "a single bad batch, or an unstable op (log/sqrt/division near zero, attention logits overflowing)", fp16
        "non_finite": ("B4", "B9", "B10", "B14"),
        "divergence": ("A10", "A12", "B30"),  # among its remedies
        "loss_spikes": ("A6",),
        "grad_spikes": ("A6", "B31"),
        "val_below_train": ("A33",),
    },
    "trainproof": {"TP-GRAD-SPIKE": ("B31",)},
}
