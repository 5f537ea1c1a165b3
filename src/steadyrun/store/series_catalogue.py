"""Every series the recorder writes, once: the docs page is generated from here and a test holds it to the truth."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogueEntry:
    """One series, or a family of them where the pattern has a `*`."""

    pattern: str
    meaning: str
    unit: str = ""
    probe: str = "every step"
    panel: int | None = None


def _objective(pattern: str, meaning: str, unit: str = "") -> CatalogueEntry:
    """A series of the probe of the loss and the batch."""
    return CatalogueEntry(pattern, meaning, unit, "objective")


CATALOGUE: tuple[CatalogueEntry, ...] = (
    CatalogueEntry("loss", "training loss as given to `run.step`", panel=1),
    CatalogueEntry("val_loss", "validation loss as given to `run.val`", probe="run.val", panel=1),
    CatalogueEntry("lr/*", "learning rate of each param group as used by the optimizer's step", panel=2),
    CatalogueEntry("grad_norm", "global gradient norm before clipping, unscaled", panel=3),
    CatalogueEntry("grad_norm_applied", "the same when the optimizer stepped: after clipping", panel=3),
    CatalogueEntry("clip_threshold", "the norm that gradients were clipped to", panel=3),
    CatalogueEntry("clipped", "1 where clipping made the gradient smaller", panel=3),
    CatalogueEntry("loss_scale", "the GradScaler's scale during the step", panel=3),
    CatalogueEntry("skipped", "1 where no optimizer step happened", panel=3),
    CatalogueEntry("backwards", "backward passes in the step (micro-batches)"),
    CatalogueEntry("backward_loss", "sum of the numbers on which `backward()` was called in the step, unscaled"),
    CatalogueEntry("optimizer_steps", "optimizer steps since the last `run.step`"),
    CatalogueEntry("scheduler_steps", "how often the scheduler had been stepped when `run.step` was called", panel=2),
    CatalogueEntry("training", "1 where the model was in training mode when the optimizer stepped"),
    CatalogueEntry("step_time", "time since the last `run.step`", "s"),
    CatalogueEntry("batch_index", "number of the batch: counted from the start of the attempt, or as given"),
    CatalogueEntry("batch_hash", "52-bit hash of the batch: equal for equal batches"),
    CatalogueEntry("label_hash", "the same of the batch's class labels alone"),
    CatalogueEntry("target_hash", "the same of the batch's targets alone: its last classes, else its last array"),
    CatalogueEntry("inputs_again", "examples of the batch, of a sample, whose inputs came before"),
    CatalogueEntry("targets_changed", "how many of them have another target now"),
    CatalogueEntry("examples", "examples in the batch"),
    CatalogueEntry("tokens", "tokens in the batch, without padding where `pad_id` is declared"),
    CatalogueEntry("repeated_tokens", "share of the batch's tokens that are the token before them, without padding"),
    CatalogueEntry(
        "ignored_labels", "share of the batch's labels that are -100, which losses skip; missing where none is"
    ),
    CatalogueEntry("batch_nonfinite", "fraction of the batch's floating-point values that are NaN or infinite"),
    CatalogueEntry("class_loss/*", "loss per class as given to `run.step`", panel=7),
    CatalogueEntry("val_class_loss/*", "loss per class as given to `run.val`", probe="run.val", panel=7),
    CatalogueEntry("activation/*", "mean magnitude of a block's output", probe="activations", panel=4),
    CatalogueEntry("activation_std/*", "standard deviation of a block's output", probe="activations", panel=4),
    CatalogueEntry(
        "block_grad_norm/*", "gradient norm of a block's parameters before clipping", probe="blocks", panel=3
    ),
    CatalogueEntry("block_param_norm/*", "norm of a block's parameters", probe="blocks", panel=5),
    CatalogueEntry(
        "update_ratio/*", "how far the step moved a block's parameters, relative to their norm", probe="blocks"
    ),
    CatalogueEntry(
        "stalled", "share of the elements with a gradient that the step did not change at all", probe="blocks"
    ),
    CatalogueEntry("moment1_norm/*", "norm of the first moments (or momentum) of a param group", probe="moments"),
    CatalogueEntry("moment2_norm/*", "norm of the second moments of a param group", probe="moments"),
    CatalogueEntry("step_count/*", "the optimizer's own step count in a param group", probe="moments"),
    CatalogueEntry(
        "update_scale/*", "size of a tensor's update, 1 where it is what Adam makes of its moments", probe="moments"
    ),
    CatalogueEntry(
        "update_decay/*", "the part of that update that shrinks the tensor: its weight decay", probe="moments"
    ),
    CatalogueEntry("update_misfit/*", "share of that update which neither explains", probe="moments"),
    CatalogueEntry("epsilon_share/*", "how much of Adam's denominator is its epsilon, on average", probe="moments"),
    CatalogueEntry("spectral_norm/*", "largest singular value of a matrix", probe="spectral", panel=5),
    CatalogueEntry(
        "dead_units/*", "hidden units silent (below 1e-6) on over 99% of the batch", probe="dead_units", panel=6
    ),
    CatalogueEntry(
        "silent_inputs/*", "share of the batch on which no hidden unit is active", probe="dead_units", panel=6
    ),
    CatalogueEntry(
        "dead_heads/*", "heads with entropy below log 2 on over 99% of the queries", probe="attention", panel=6
    ),
    CatalogueEntry(
        "low_entropy_share/*", "share of a head's queries with entropy below log 2", probe="attention", panel=6
    ),
    CatalogueEntry("attention_entropy/*", "mean attention entropy of a block", "nats", "attention", 6),
    CatalogueEntry(
        "lowest_head_entropy/*",
        "the smallest mean attention entropy of a head of a block, by queries and keys alone",
        "nats",
        "attention",
        6,
    ),
    CatalogueEntry(
        "future_attention/*", "share of self-attention on later keys, of the head with most", "", "attention", 1
    ),
    _objective("batchnorm_values", "fewest values per channel that a batch normalisation had"),
    _objective("running_statistics", "normalisations in training mode that keep statistics"),
    _objective("untouched_statistics", "those whose statistics are still the initial ones"),
    _objective("empty_starts", "backward passes of the step that began without gradients"),
    CatalogueEntry("padding_attention", "share of attention on padding, of the block with most", "", "attention", 6),
    CatalogueEntry(
        "saturated/*",
        "share of a bounded layer's values within 1% of the ends of its range",
        probe="dead_units",
        panel=6,
    ),
    _objective("output_alike", "how far outputs of other inputs point the same way: 1 if all do"),
    _objective("log_z", "mean log of the sum of the exponentials of the model's output"),
    _objective("grad_norm_left", "smallest norm of the gradients when a backward pass of the step began"),
    _objective("grad_norm_used", "norm of the gradients that the optimizer found when it stepped"),
    _objective("targets/same", "share of supervised targets that are the input token itself"),
    _objective("targets/next", "share that are the next input token"),
    _objective("targets/second", "share that are the input token after the next"),
    _objective("targets/supervised", "share of targets that are not ignored by the loss"),
    _objective("targets/padding", "share of supervised positions at which padding is to predict padding"),
    _objective("targets/ends_given", "how often the end of a text stands in the inputs, after their start"),
    _objective("targets/ends_asked", "how often the end of a text is a target"),
    _objective("targets/alike", "how likely two targets of the batch are of one class"),
    _objective("targets/alike_overall", "the same of all batches sampled so far together"),
    _objective("targets/entropy", "loss of guessing by the class frequencies sampled so far", "nats"),
    _objective("targets/count", "class targets that count in the batch"),
    _objective("fit/*", "error of predictions against their targets, by kind of comparison"),
    _objective("fit_out_of_reach/*", "part of the learnable error that bounded outputs cannot remove"),
    _objective("fit_weight/*", "factor of a comparison in the loss; negative if errors are rewarded"),
    _objective("fit_target/*", "mean of the targets"),
    _objective("fit_odds/*", "weight of all positive targets against that of the negative ones"),
    _objective("passes_alike", "1 if two passes of the step gave the same outputs"),
    _objective("copy/distance", "distance of a copy of the model that ran in the step"),
    _objective("copy/size", "norm of its weights"),
    _objective("copy/model_size", "norm of the model's weights at the same time"),
    _objective("fit_guess/*", "error of the mean of all targets sampled so far, by kind of comparison"),
    _objective("inputs/mean", "mean of the floating-point values that the model is given"),
    _objective("inputs/std", "their standard deviation"),
    _objective("inputs/nonfinite", "fraction of them that is NaN or infinite"),
    CatalogueEntry("val_inputs/*", "the same three of the first passes of a validation", "", "run.val"),
    _objective(
        "padding_counted",
        "fraction of the positions with a gradient that are padding at the end of a sequence: the token that pads, or "
        "steps of zeros",
    ),
    _objective("padding_declared", "1 where the token that pads is known, 0 for steps of zeros"),
    CatalogueEntry("modules_in_eval", "modules in evaluation mode during the training forward pass", probe="modes"),
    CatalogueEntry("memory/*", "memory of the process and the device", "MiB", "system"),
    CatalogueEntry("gpu/utilisation", "as the driver tells", "%", "system"),
    CatalogueEntry("gpu/temperature", "as the driver tells", "°C", "system"),
    CatalogueEntry(
        "histogram/*", "share of values per power of two, of activations, gradients and weights", "", "histograms"
    ),
    CatalogueEntry("example_hash/train", "52-bit hashes of (a sample of) the training examples", probe="new examples"),
    CatalogueEntry(
        "example_hash/val", "the same of the validation examples, from `run.val(batches=…)`", probe="new examples"
    ),
)


def entry_for(name: str) -> CatalogueEntry | None:
    """The entry that documents a series, None for a series of the user's own."""
    return next((entry for entry in CATALOGUE if fnmatch.fnmatchcase(name, entry.pattern)), None)
