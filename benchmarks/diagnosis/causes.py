"""The bugs: what the cause of each is in words, and which of steadyrun's answers name it.

A headline that only says what happened (the loss is NaN, nothing moves) does not name a cause.
"""

from __future__ import annotations

from dataclasses import dataclass

from steadyrun.questions.aliases import outcome_of


@dataclass(frozen=True)
class Cause:
    """What is wrong in a program that has the bug.

    `accepted` are the answers that a headline may be, "code outcome" with commas between them; anything else is a wrong
    headline. `culprits` are the causes that the hunt of a replay may name, where a bug ends in a non-finite number.
    """

    words: str
    accepted: str = ""
    culprits: tuple[str, ...] = ()

    @property
    def named(self) -> set[tuple[str, str]]:
        """The headlines that are right, as code and outcome; former codes count as those of today."""
        pairs = {
            outcome_of(code, outcome) for code, outcome in (each.split() for each in self.accepted.split(",") if each)
        }
        return pairs | {("E1.1", culprit) for culprit in self.culprits}


CAUSES: dict[str, Cause] = {
    "A1": Cause("gradients are never zeroed: every update sums all past ones", "A1.1 not-cleared"),
    "A2": Cause("the model stays in eval mode after the first validation", "A2.1 left-on, A2.1 parts-left-on"),
    "A3": Cause("validation runs in training mode", "A2.2 in-training"),
    "A4": Cause("probabilities are softmaxed again by the cross-entropy", "A3.1 squashed-twice"),
    "A6": Cause("the learning rate is 50 times too high", "C7.2 rate-too-high, C4.1 diverging, P6.5 too-high"),
    "A7": Cause("the learning rate is 1000 times too low", "C7.1 rate-too-low, C4.1 too-slow, P6.5 too-low"),
    "A8": Cause("predictions (N, 1) against targets (N) broadcast to N x N", "A3.2 broadcast"),
    "A10": Cause("the data are sorted by class and not shuffled", "A3.6 sorted"),
    "A11": Cause("every loader worker has the same seed: augmentations repeat", "P2.1 clones"),
    "A12": Cause("the order of batches is the same in every epoch", "A5.1 not-reshuffled"),
    "A15": Cause(
        "the scheduler is stepped once per process, four times as often", "C2.1 stepped-too-often, C2.1 not-as-declared"
    ),
    "A16": Cause(
        "a schedule over epochs is stepped every batch: its horizon is far too short",
        "C2.1 horizon-too-short, C2.1 stepped-too-often, C2.1 counts-epochs, C2.1 not-as-declared",
    ),
    "A17": Cause("a schedule over steps is stepped once per epoch", "C2.1 stepped-too-seldom, C2.1 not-as-declared"),
    "A19": Cause("the loss is not divided by the number of micro-batches", "C6.3 not-divided"),
    "A21": Cause("labels are shifted twice: the token after the next is predicted", "A3.3 shifted-twice"),
    "A22": Cause("labels are not shifted: the target is the input", "A3.3 not-shifted"),
    "A23": Cause("attention sees later tokens", "S1.1 sees-the-answer, S1.1 sees-target"),
    "A25": Cause("pad is eos, so the end of a sequence is never supervised", "A3.5 never-asked"),
    "A26": Cause("padding is part of the loss", "A3.4 supervised"),
    "A27": Cause(
        "a layer was replaced after the optimizer was built and is not in it",
        "A4.1 stale, A4.1 left-out",
    ),
    "A28": Cause("layers in a plain list: not parameters of the model, never trained", "A4.2 unregistered"),
    "A29": Cause(
        "what is optimized is frozen, what is trainable is not optimized",
        "A4.4 nothing-trainable, A4.4 frozen-at-random",
    ),
    "A30": Cause("the graph is cut: layers before it get no gradient", "A4.3 cut-off"),
    "A31": Cause("gradients are erased between backward and step", "C1.2 erased, A1.2 erased"),
    "A33": Cause("validation examples were trained on", "C4.2 leak"),
    "A34": Cause("labels belong to other inputs", "S1.4 unrelated, P1.7 labels-change"),
    "B1": Cause("gradients are clipped before they are unscaled", "A1.3 before-unscale"),
    "B2": Cause("gradients are clipped after the step", "A1.3 after-step"),
    "B4": Cause(
        "a value beyond the range of fp16 overflows",
        "D3.1 overflow, D3.3 overflow, D2.3 fp16-overflow, P5.7 overflow",
        ("fp16-overflow",),
    ),
    "B5": Cause("gradients are infinite at any loss scale: every step is skipped", "D3.2 collapsed"),
    "B6": Cause("bf16 parameters: updates are smaller than the spacing of their values", "A4.5 rounded-away"),
    "B9": Cause("logarithm of zero in the loss", "", ("log-of-zero",)),
    "B10": Cause(
        "0 / 0 in a branch that torch.where hides: the gradient is NaN",
        "",
        (
            "hidden-branch",
            "division-by-zero",
        ),
    ),
    "B11": Cause(
        "a row of attention in which every key is masked",
        "",
        (
            "hidden-branch",
            "fully-masked",
            "masked-row",
        ),
    ),
    "B14": Cause("a batch without a single label", "A3.7 nothing-to-learn", ("mean-of-nothing",)),
    "B15": Cause(
        "a token beyond the table: IndexError in the embedding",
        "A7.1 token-out-of-range, P1.1 beyond-the-table, P1.9 larger-than-the-table",
    ),
    "B16": Cause("padding is attended to", "A8.1 attended, A8.1 seems-attended"),
    "B18": Cause("the optimizer's state was lost at the resume", "D2.3 optimizer-reset, C6.2 rebuilt"),
    "B19": Cause("the schedule began again at the resume", "C2.1 restarted"),
    "B20": Cause("the loss scale was lost at the resume", "A6.1 lost"),
    "B21": Cause("the data begin again at the resume", "A5.2 from-the-start"),
    "B22": Cause("the output matrix is declared as tied to the embedding and is not", "A4.7 untied"),
    "B23": Cause("batches of two: batch normalisation has no statistics", "A2.3 unlike-in-evaluation, A2.3 degenerate"),
    "B26": Cause("validation is augmented like training", "A5.3 changed"),
    "B29": Cause("an embedding with deviation 1 is tied to the output", "C5.1 too-wide, C1.1 weights"),
    "B30": Cause("biases and norms are decayed", "C6.1 vectors-decayed, C6.1 declared-exempt"),
    "B31": Cause("one batch of a single repeated token", "A5.4 degenerate, D2.3 long-tail-batch, D2.3 duplicate-batch"),
    "C15": Cause("attention logits grow without bound", ""),
    "C16": Cause("the normaliser of the output drifts", ""),
    "C18": Cause("nearly all units of a layer are dead", "S6.1 silent, S4.2 dead"),
    "C19": Cause("gradients vanish on the way to the first layers", "A4.8 vanishing"),
    "E1": Cause("a value in the data is NaN", "A5.5 non-finite", ("non-finite-input",)),
    "E2": Cause("validation inputs are not standardised, training inputs are", "A5.6 other-scale, A5.6 differs"),
    "E3": Cause("every step has the labels of the first batch", "A5.7 repeated, A5.7 repeated-unrelated"),
    "E4": Cause("labels are shuffled apart from inputs in each epoch", "A5.7 reassigned, A5.7 reassigned-unrelated"),
    "E5": Cause("training sees 64 of 3,200 rows", "V1.6 by-heart, C4.2 overfitting"),
    "C71": Cause("the learning rate is 100 times too low", "C7.1 rate-too-low, C4.1 too-slow, P6.5 too-low"),
    "C73": Cause("weight decay 50 pulls harder than the gradient", "C7.3 too-strong"),
    "C74": Cause("Adam's epsilon is larger than its gradients", "C7.4 epsilon"),
    "C75": Cause("dropout removes nine of ten activations", "C7.5 too-high"),
    "C76": Cause("label smoothing of 0.9 leaves nothing to learn", "C7.6 hides-learning, P3.4 hides-learning"),
}
