"""What was not recorded, and how to record it."""

from __future__ import annotations

from collections.abc import Mapping

HOW_TO_RECORD: Mapping[str, str] = {
    "loss": "call run.step(loss) once per optimizer step",
    "val_loss": "call run.val(loss) after each validation",
    "grad_norm": "call run.watch(model, optimizer) before training, or run.log(grad_norm=…)",
    "lr/*": "call run.watch(model, optimizer) before training, or run.log(lr=…)",
    "activation/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "training": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "spectral_norm/*": "call run.watch(model, optimizer) before training",
    "block_param_norm/*": "call run.watch(model, optimizer) before training",
    "dead_units/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "dead_heads/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "future_attention/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "class_loss/*": "give run.step(loss, class_losses={…}) the loss of each class",
    "causal": 'declare config={"causal": True} to steadyrun.record where no position may see a later one',
    "baseline_loss": 'declare config={"baseline_loss": …}, the loss of a simple model such as an n-gram',
    "initial_weights": "call run.watch(model, optimizer) before training",
    "param_groups": "call run.watch(model, optimizer) before training",
    "moment1_norm/*": "call run.watch(model, optimizer) with an optimizer that keeps moments",
    "moment2_norm/*": "call run.watch(model, optimizer) with an optimizer that keeps moments",
    "example_hash/train": "give run.step(loss, batch=…) the batches",
    "example_hash/val": "give run.val(loss, batches=…) the validation batches",
    "backward_loss": "call run.watch(model, optimizer) before training",
    "vocab_size": 'declare config={"vocab_size": …} (or num_classes) to steadyrun.record',
    "no_decay": 'declare config={"no_decay": ["bias", "norm"]}, the parts of names that weight decay leaves out',
    "tied": 'declare config={"tied": True} where embedding and head are to be one tensor',
    "clip": 'declare config={"clip": …}, the norm that gradients are clipped to',
    "accumulation": 'declare config={"accumulation": …}, the number of micro-batches of a step',
    "dtype": 'declare config={"dtype": "bf16"} (fp16, fp32)',
    "lr_max": 'declare config={"lr_max": …} to steadyrun.record',
    "warmup_steps": 'declare config={"warmup_steps": …} to steadyrun.record',
}


class MissingSignal(Exception):  # noqa: N818  an answer in the making, not an error
    """A question needs something that was not recorded, or not enough of it."""

    def __init__(self, name: str, why: str = "", how: str = "") -> None:
        super().__init__(why or f"{name} was not recorded")
        self.name = name
        self.how = how or HOW_TO_RECORD.get(name, f"record {name} with run.log")
