"""Every series the recorder writes. The docs page is generated from here, and a test compares it with recordings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogueEntry:
    """One series, or a family of series if the pattern ends with a `*`."""

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
    CatalogueEntry("grad_norm_applied", "global gradient norm at the optimizer's step, after clipping", panel=3),
    CatalogueEntry("clip_threshold", "the clip threshold: the norm that gradients were clipped to", panel=3),
    CatalogueEntry("clipped", "1 if clipping reduced the gradient", panel=3),
    CatalogueEntry("local_grad_norm", "gradient norm of this rank's shards before clipping, unscaled, if sharded"),
    CatalogueEntry("local_grad_norm_applied", "the same at the optimizer's step, after clipping"),
    CatalogueEntry("clip_norm", "the norm that clipping used, with several processes"),
    CatalogueEntry("collectives", "collectives that this process started during the step, with several processes"),
    CatalogueEntry("loss_scale", "the GradScaler's scale during the step", panel=3),
    CatalogueEntry("skipped", "1 if no optimizer step happened", panel=3),
    CatalogueEntry("backwards", "backward passes in the step (micro-batches)"),
    CatalogueEntry("backward_loss", "sum of the values on which `backward()` was called in the step, unscaled"),
    CatalogueEntry("printed_loss", "training loss as a script under `steadyrun run` prints or logs it"),
    CatalogueEntry("optimizer_steps", "optimizer steps since the last `run.step`"),
    CatalogueEntry("scheduler_steps", "scheduler steps so far when `run.step` was called", panel=2),
    CatalogueEntry("training", "1 if the model was in training mode when the optimizer stepped"),
    CatalogueEntry("step_time", "time since the last `run.step`", "s"),
    CatalogueEntry(
        "time/data", "time from the end of `run.step` to the next forward pass, with several processes", "s"
    ),
    CatalogueEntry(
        "time/forward", "time from the first forward pass to the backward pass, with several processes", "s"
    ),
    CatalogueEntry("time/backward", "time from the backward pass to the optimizer's step, with several processes", "s"),
    CatalogueEntry("time/update", "time from the optimizer's step to `run.step`, with several processes", "s"),
    CatalogueEntry(
        "time/busy", "CPU time of the training thread in the forward and backward passes of a CPU model", "s"
    ),
    CatalogueEntry("batch_index", "index of the batch, counted from the start of the attempt or as given"),
    CatalogueEntry("batch_hash", "52-bit hash of the batch: equal for equal batches"),
    CatalogueEntry("label_hash", "the same for the batch's class labels only"),
    CatalogueEntry("target_hash", "the same for the batch's targets only: its last class labels, else its last array"),
    CatalogueEntry("inputs_again", "examples in a sample of the batch whose inputs occurred before"),
    CatalogueEntry("targets_changed", "number of these with another target than before"),
    CatalogueEntry("examples", "examples in the batch"),
    CatalogueEntry("tokens", "tokens in the batch, without padding if `pad_id` is declared"),
    CatalogueEntry("repeated_tokens", "fraction of the batch's tokens that equal the previous token, without padding"),
    CatalogueEntry(
        "ignored_labels", "fraction of the batch's labels that are -100, which losses ignore; missing if there are none"
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
        "update_ratio/*", "norm of the step's change of a block's parameters, relative to their norm", probe="blocks"
    ),
    CatalogueEntry("adapter_base_norm", "norm of the frozen parameters beside adapters", probe="blocks"),
    CatalogueEntry("adapter_norm", "norm of all parameters of adapters (LoRA and its relatives)", probe="blocks"),
    CatalogueEntry("stalled", "fraction of the elements with a gradient that the step did not change", probe="blocks"),
    CatalogueEntry("moment1_norm/*", "norm of the first moments (or momentum) of a param group", probe="moments"),
    CatalogueEntry("moment2_norm/*", "norm of the second moments of a param group", probe="moments"),
    CatalogueEntry("step_count/*", "the optimizer's own step count in a param group", probe="moments"),
    CatalogueEntry(
        "update_scale/*", "size of a tensor's update, relative to what Adam computes from its moments", probe="moments"
    ),
    CatalogueEntry("update_decay/*", "the part of that update that shrinks the tensor: weight decay", probe="moments"),
    CatalogueEntry("update_misfit/*", "fraction of that update that neither explains", probe="moments"),
    CatalogueEntry("epsilon_share/*", "mean fraction of Adam's denominator that is epsilon", probe="moments"),
    CatalogueEntry("spectral_norm/*", "largest singular value of a matrix", probe="spectral", panel=5),
    CatalogueEntry(
        "dead_units/*",
        "hidden units that are inactive (below 1e-6) on over 99% of the batch",
        probe="dead_units",
        panel=6,
    ),
    CatalogueEntry(
        "silent_inputs/*", "fraction of the batch on which no hidden unit is active", probe="dead_units", panel=6
    ),
    CatalogueEntry(
        "dead_heads/*", "heads with entropy below log 2 on over 99% of the queries", probe="attention", panel=6
    ),
    CatalogueEntry(
        "low_entropy_share/*", "fraction of a head's queries with entropy below log 2", probe="attention", panel=6
    ),
    CatalogueEntry("attention_entropy/*", "mean attention entropy of a block", "nats", "attention", 6),
    CatalogueEntry(
        "lowest_head_entropy/*",
        "smallest mean attention entropy of a block's heads, from queries and keys only",
        "nats",
        "attention",
        6,
    ),
    CatalogueEntry(
        "future_attention/*", "fraction of self-attention on later keys, largest over heads", "", "attention", 1
    ),
    _objective("batchnorm_values", "fewest values per channel in a batch normalisation"),
    _objective("batchnorm_examples", "fewest examples in a batch normalisation"),
    _objective("running_statistics", "normalisations in training mode that keep statistics"),
    _objective("untouched_statistics", "normalisations whose statistics are still the initial ones"),
    _objective("empty_starts", "backward passes of the step that started without gradients"),
    CatalogueEntry("padding_attention", "fraction of attention on padding, largest over blocks", "", "attention", 6),
    CatalogueEntry(
        "saturated/*",
        "fraction of a bounded layer's values within 1% of the ends of its range",
        probe="dead_units",
        panel=6,
    ),
    _objective("output_alike", "length of the outputs' mean direction: 1 if all outputs point the same way"),
    _objective("output_rank", "effective rank of the outputs of a batch: in how many directions they vary"),
    _objective("generated/variance", "variance of generated examples over that of the real ones of the step"),
    _objective("generated/rank", "effective rank of generated examples over that of the real ones of the step"),
    _objective("log_z", "mean logsumexp of the model's output"),
    _objective("grad_norm_left", "smallest gradient norm at the start of a backward pass of the step"),
    _objective("grad_norm_used", "gradient norm that the optimizer got"),
    _objective("targets/same", "fraction of supervised targets that equal the input token"),
    _objective("targets/next", "fraction of supervised targets that equal the next input token"),
    _objective("targets/second", "fraction of supervised targets that equal the input token after the next"),
    _objective("targets/supervised", "fraction of targets that the loss does not ignore"),
    _objective("targets/padding", "fraction of supervised positions at which padding predicts padding"),
    _objective("targets/ends_given", "end-of-text tokens in the inputs, after the first position"),
    _objective("targets/ends_asked", "end-of-text tokens in the targets"),
    _objective("targets/alike", "probability that two targets of the batch have the same class"),
    _objective("targets/alike_overall", "the same over all batches sampled so far"),
    _objective("targets/entropy", "loss of guessing by the class frequencies sampled so far", "nats"),
    _objective("targets/peak", "examples compared with one another: best score of a row above the row's median"),
    _objective("targets/count", "class targets of the batch that are not ignored"),
    _objective("fit/*", "error of predictions against their targets, by kind of comparison"),
    _objective("fit_out_of_reach/*", "fraction of the learnable error that bounded outputs cannot remove"),
    _objective("fit_weight/*", "weight of a comparison in the loss; negative if errors are rewarded"),
    _objective("fit_against/*", "fraction of a comparison's weight that is negative"),
    _objective("lookup_spread/*", "largest minus smallest id that a batch looks up in a table, one for each example"),
    _objective("noised/most", "denoising: squared weight of the noise in the noisiest part of a batch"),
    _objective("noised/by_squares", "denoising: error of the rule that the squares of both weights add up to 1"),
    _objective("noised/by_sums", "denoising: error of the rule that both weights add up to 1"),
    _objective("noised/times", "denoising: largest minus smallest time of a batch"),
    _objective("taught/weight", "weight of the divergence from a teacher in the loss"),
    _objective("generated/real_mean", "mean of the real examples beside generated ones"),
    _objective("generated/real_std", "standard deviation of the same"),
    _objective("fit_target/*", "mean of the targets"),
    _objective("fit_odds/*", "weight of all positive targets relative to the negative ones"),
    _objective("passes_alike", "1 if two forward passes of the step gave the same outputs"),
    _objective("targets/itself", "whether each example of a batch is its own target"),
    _objective("targets/place", "examples compared with one another: fraction of a row's scores below its target's"),
    _objective("taught/rows", "how far a teacher's probabilities of one example are from adding up to 1"),
    _objective("taught/student_fit", "squared correlation of the student's log-probabilities with its scores"),
    _objective("taught/student_temperature", "temperature between the two"),
    _objective("taught/teacher_fit", "squared correlation of the targets' logarithms with the teacher's scores"),
    _objective("taught/teacher_temperature", "temperature between the two"),
    _objective("taught/squashed_fit", "squared correlation of the targets' logarithms with the teacher's softmax"),
    _objective("copy/distance", "distance between the model's weights and those of a copy that ran in the step"),
    _objective("copy/size", "norm of the copy's weights"),
    _objective("copy/model_size", "norm of the model's weights at the same step"),
    _objective("fit_guess/*", "error of the mean of all targets sampled so far, by kind of comparison"),
    _objective("inputs/mean", "mean of the model's floating-point inputs"),
    _objective("inputs/std", "their standard deviation"),
    _objective("inputs/nonfinite", "fraction of them that is NaN or infinite"),
    CatalogueEntry("val_inputs/*", "the same three for the first passes of a validation", "", "run.val"),
    _objective(
        "padding_counted",
        "fraction of the positions with a gradient that are padding at the end of a sequence: the padding token, or "
        "steps of zeros",
    ),
    _objective("padding_declared", "1 if the padding token is known, 0 for steps of zeros"),
    CatalogueEntry("modules_in_eval", "modules in evaluation mode during the training forward pass", probe="modes"),
    CatalogueEntry(
        "gradient_digest/*",
        "52-bit digest of the gradients at the optimizer's step, after averaging and clipping: of a class, and of a "
        "class in a block",
        probe="digests",
    ),
    CatalogueEntry("parameter_digest/*", "the same for the parameters at the end of the step", probe="digests"),
    CatalogueEntry(
        "start_digest/*",
        "the same for the parameters before the first update, of shards by tensor; 0 if all of it is constant",
        probe="digests",
    ),
    CatalogueEntry(
        "end_digest/*",
        "the same for the parameters when the run ends, if its last step is not sampled",
        probe="digests",
    ),
    CatalogueEntry("state_digest", "52-bit digest of the optimizer's moments", probe="digests"),
    CatalogueEntry("start_state_digest", "the same before the first update; 0 without moments", probe="digests"),
    CatalogueEntry(
        "unreduced_gradients",
        "parameters sharded by FSDP whose gradient is not reduced over the ranks at the optimizer's step",
        probe="digests",
    ),
    CatalogueEntry("input_digest", "52-bit hash of what the model's first pass was given", probe="digests"),
    CatalogueEntry("random_digest", "52-bit digest of torch's random states", probe="digests"),
    CatalogueEntry("memory/*", "memory of the process and the device", "MiB", "system"),
    CatalogueEntry("gpu/utilisation", "as reported by the driver", "%", "system"),
    CatalogueEntry("gpu/temperature", "as reported by the driver", "°C", "system"),
    CatalogueEntry(
        "histogram/*", "fraction of values per power of two, for activations, gradients and weights", "", "histograms"
    ),
    CatalogueEntry("example_hash/train", "52-bit hashes of (a sample of) the training examples", probe="new examples"),
    CatalogueEntry(
        "example_hash/val", "the same for the validation examples, from `run.val(batches=…)`", probe="new examples"
    ),
)


def entry_for(name: str) -> CatalogueEntry | None:
    """The entry that documents a series, None for the user's own series."""
    if (entry := _SINGLE.get(name)) is not None:
        return entry
    return next((entry for start, entry in _FAMILIES if name.startswith(start)), None)


_SINGLE = {entry.pattern: entry for entry in CATALOGUE if not entry.pattern.endswith("*")}
_FAMILIES = [(entry.pattern[:-1], entry) for entry in CATALOGUE if entry.pattern.endswith("*")]
