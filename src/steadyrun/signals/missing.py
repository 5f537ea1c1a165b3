"""Missing signals, and how to record them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadyrun.signals.run_signals import Signals

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
    "output_alike": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "saturated/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "padding_attention": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "dead_heads/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "future_attention/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "class_loss/*": "give run.step(loss, class_losses={…}) the loss of each class",
    "causal": 'declare config={"causal": True} if no position may see a later one',
    "baseline_loss": 'declare config={"baseline_loss": …}, the loss of a simple model such as an n-gram model',
    "initial_weights": "call run.watch(model, optimizer) before training",
    "param_groups": "call run.watch(model, optimizer) before training",
    "moment1_norm/*": "call run.watch(model, optimizer) with an optimizer that keeps moments",
    "moment2_norm/*": "call run.watch(model, optimizer) with an optimizer that keeps moments",
    "example_hash/train": "give run.step(loss, batch=…) the batches",
    "example_hash/val": "give run.val(loss, batches=…) the validation batches",
    "backward_loss": "call run.watch(model, optimizer) before training",
    "vocab_size": 'declare config={"vocab_size": …} (or num_classes)',
    "episodic_return": "log a measure of success: run.log(episodic_return=…), accuracy=… or score=…",
    "fit/*": "call run.watch(model, optimizer) before the first forward pass of an eager model",
    "gradient_digest/*": "call run.watch(model, optimizer) on every rank before training",
    "parameter_digest/*": "call run.watch(model, optimizer) on every rank before training",
    "start_digest/*": "call run.watch(model, optimizer) on every rank before training",
    "local_grad_norm": "call run.watch(model, optimizer) on every rank before training",
    "no_decay": 'declare config={"no_decay": ["bias", "norm"]}, parts of the names without weight decay',
    "tied": 'declare config={"tied": True} if embedding and output layer share one tensor',
    "clip": 'declare config={"clip": …}, the norm that gradients are clipped to',
    "accumulation": 'declare config={"accumulation": …}, the number of micro-batches per step',
    "dtype": 'declare config={"dtype": "bf16"} (or fp16, fp32)',
    "lr_max": 'declare config={"lr_max": …}',
    "warmup_steps": 'declare config={"warmup_steps": …}',
}


class MissingSignal(Exception):  # noqa: N818  it becomes an answer, not an error
    """A question needs something that was not recorded, or too little of it."""

    def __init__(self, name: str, why: str = "", how: str = "") -> None:
        super().__init__(why or f"{name} was not recorded")
        self.name = name
        self.how = how or HOW_TO_RECORD.get(name, f"record {name} with run.log")


class NotApplicable(Exception):  # noqa: N818  it becomes an answer, not an error
    """The question does not apply to this run; the message gives the reason.

    `missing` names what the run would have to record or declare for it to apply; empty if it cannot apply.
    """

    def __init__(self, why: str, *missing: str) -> None:
        super().__init__(why)
        self.missing = missing


# How to record what a question lacks in this run: never what was already done, nor what a log cannot do.
WAIT, LONGER = "let it run on", "train for longer"
NOT_IN_A_LOG = "a log never contains this: record the next run with steadyrun"
_LET_LOG = "let the program also log "
_NAME_IT = "name the loss with --map loss=NAME"
_LIKE_A_LOSS = re.compile(r"loss|err|mse|mae|nll|cost|perplex|ppl", re.IGNORECASE)
_TIMES = re.compile(r"time|elapsed|eta$|seconds", re.IGNORECASE)
_SHOWN = 5  # series of a log in one hint
_WATCH, _VAL, _VAL_BATCHES, _BATCHES = (
    "run.watch(model",
    "run.val(loss)",
    "run.val(loss, batches=…)",
    "run.step(loss, batch=…)",
)
_DECLARED = re.compile(r"""declare config=\{["'](\w+)["']""")
_LOGGED = {"loss": "the loss", "val_loss": "the validation loss", "grad_norm": "the gradient norm",
           "lr/*": "the learning rate", "loss_scale": "the loss scale"}  # fmt: skip
_FORWARD = ("activation/*", "dead_units/*", "objective", "training")
_ATTENTION = ("dead_heads/*", "future_attention/*")
_PROBES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_FORWARD, ("forward probe",)),
    **dict.fromkeys(_ATTENTION, ("attention", "forward probe")),
}
_SHARDED = ("norms of sharded parameters",)
_OF_VALIDATION = {"val_loss", "example_hash/val"}


def hint(run: Signals, missing: MissingSignal) -> str:
    """What to do to get the missing signal."""
    how = missing.how
    begins = run.running and set(run.names) <= _OF_VALIDATION  # no series of the loop is on disk yet
    if how in (WAIT, LONGER) or begins:
        return WAIT if run.running else LONGER
    if run.imported:
        return _of_a_log(run, missing)
    if how == HOW_TO_RECORD.get(missing.name) and run.matching(missing.name):
        return _there_already(run, missing.name)
    asked = [(done, instead) for word, done, instead in _ACTIONS if word in how and done(run)]
    if not asked:
        return how
    wanted = [word for word, done, _ in _ACTIONS if word in how and not done(run)]
    if wanted and _VAL in wanted:
        return HOW_TO_RECORD["val_loss"]
    if wanted and _WATCH in wanted:
        return HOW_TO_RECORD["backward_loss"]
    return asked[-1][1](run, missing)


def _of_a_log(run: Signals, missing: MissingSignal) -> str:
    if declared := _DECLARED.search(missing.how):
        return f"import the log with --declare {declared[1]}=…"
    if "run." not in missing.how and "steadyrun." not in missing.how:
        return missing.how
    others = [name for name in run.own if not _TIMES.search(name)]
    if missing.name == "loss" and others and not run.has("loss"):
        return f"{_NAME_IT}, or a reward, accuracy or another score with --map score=NAME: {_candidates(others)}"
    if missing.name in _LOGGED:
        return f"{_LET_LOG}{_LOGGED[missing.name]}"
    return NOT_IN_A_LOG


def _candidates(names: list[str]) -> str:
    """The series that may be the loss: those with a similar name, otherwise all."""
    like = [name for name in names if _LIKE_A_LOSS.search(name)] or names
    more = f" and {len(like) - _SHOWN} more" if len(like) > _SHOWN else ""
    return f"the log has {', '.join(like[:_SHOWN])}{more}"


def absent_from_log(how: str) -> bool:
    """Whether a hint means that the log lacks what a question needs."""
    return how == NOT_IN_A_LOG or how.startswith((_LET_LOG, _NAME_IT))


def unnamed_in_log(how: str) -> bool:
    """Whether a hint means that the log may have the loss under an unknown name."""
    return how.startswith(_NAME_IT)


def _there_already(run: Signals, name: str) -> str:
    if run.first_nonfinite is not None:
        return f"fix the non-finite values first: {name} has no usable value before them"
    return LONGER if not run.running else WAIT


def _watched(run: Signals) -> bool:
    return bool(run.about("model") or run.listed("param_groups"))


def _validated(run: Signals) -> bool:
    return run.has("val_loss") or bool(run.events("validation"))


def _gave_validation_batches(run: Signals) -> bool:
    return run.has("example_hash/val") or any("data" in event.fields for event in run.events("validation"))


def _gave_batches(run: Signals) -> bool:
    return run.has("batch_hash") or _why(run, ("batch hash",)) != ""


def _why(run: Signals, probes: tuple[str, ...]) -> str:
    """The reason that a probe gave for not recording something."""
    reports = (event.fields for kind in ("not-recorded", "probe-failed") for event in run.events(kind))
    return next((str(report.get("why")) for report in reports if report.get("probe") in probes), "")


def _not_seen(run: Signals, missing: MissingSignal) -> str:
    """Why a signal is missing although the run was watched."""
    if "moment" in missing.name:
        return "use an optimizer that keeps moments, such as Adam: the watched optimizer has none that steadyrun knows"
    if why := _why(run, _PROBES.get(missing.name, _SHARDED)):
        return f"it could not be recorded: {why}"
    if log_call := re.search(r"run\.log\(.*?\)", missing.how):
        return f"log it with {log_call[0]}: the watched model and optimizer did not show it"
    return (
        f"the run is watched, but {missing.name} did not appear: the watched model and optimizer do not have it, or a "
        "compiled part hides it"
    )


def _not_validated_so(run: Signals, missing: MissingSignal) -> str:
    if missing.name == "validation passes":
        return "run the validation passes with the watched model itself, right before run.val"
    return f"validate more often, or {WAIT if run.running else LONGER}"


_Instead = Callable[["Signals", MissingSignal], str]
_ACTIONS: tuple[tuple[str, Callable[[Signals], bool], _Instead], ...] = (
    (_WATCH, _watched, _not_seen),
    (_VAL, _validated, _not_validated_so),
    (
        _VAL_BATCHES,
        _gave_validation_batches,
        lambda run, _: f"validate more often, or {WAIT if run.running else LONGER}",
    ),
    (_BATCHES, _gave_batches, lambda run, _: _why(run, ("batch hash",)) or "give batches of tensors or arrays"),
)
"""What a hint asks for, whether the run already did it, and the hint to give then."""
