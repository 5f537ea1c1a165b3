"""What to do so that a question can be answered, by what the run says about itself.

A question that lacks something says how one records it. Here that becomes true of this run: nothing is asked for that
was done already, nothing of a log that only a program could do, and nobody waits for a run that has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from steadyrun.signals.missing import HOW_TO_RECORD, MissingSignal

if TYPE_CHECKING:
    from steadyrun.signals.run import Signals

WAIT, LONGER = "let it run on", "train for longer"
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
    """What to do about what is missing."""
    how = missing.how
    begins = run.running and set(run.names) <= _OF_VALIDATION  # nothing of the loop is on disk yet
    if how in (WAIT, LONGER) or begins:
        return WAIT if run.running else LONGER
    if run.imported:
        return _of_a_log(missing)
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


def _of_a_log(missing: MissingSignal) -> str:
    if found := _DECLARED.search(missing.how):
        return f"import the log with --declare {found[1]}=…"
    if "run." not in missing.how and "steadyrun." not in missing.how:
        return missing.how
    if missing.name in _LOGGED:
        return f"let the program log {_LOGGED[missing.name]}, too"
    return "a log does not have it: record the next run with steadyrun"


def _there_already(run: Signals, name: str) -> str:
    if run.first_nonfinite is not None:
        return f"look at the non-finite values first: {name} has none that can be used before them"
    return LONGER if not run.running else WAIT


def _watched(run: Signals) -> bool:
    return bool(run.about("model") or run.listed("param_groups"))


def _validated(run: Signals) -> bool:
    return run.has("val_loss") or bool(run.events("validation"))


def _gave_validation_batches(run: Signals) -> bool:
    return run.has("example_hash/val") or any("data" in each.fields for each in run.events("validation"))


def _gave_batches(run: Signals) -> bool:
    return run.has("batch_hash") or _why(run, ("batch hash",)) != ""


def _why(run: Signals, probes: tuple[str, ...]) -> str:
    """What a probe said about itself when it could not record something."""
    told = (each.fields for kind in ("not-recorded", "probe-failed") for each in run.events(kind))
    return next((str(each.get("why")) for each in told if each.get("probe") in probes), "")


def _not_seen(run: Signals, missing: MissingSignal) -> str:
    """Of a run that was watched: why that was not enough."""
    if "moment" in missing.name:
        return "use an optimizer that keeps moments, such as Adam: the watched one has none that are known"
    if why := _why(run, _PROBES.get(missing.name, _SHARDED)):
        return f"it could not be recorded: {why}"
    if found := re.search(r"run\.log\(.*?\)", missing.how):
        return f"log it with {found[0]}: it was not seen in the watched model and optimizer"
    return (
        f"the run is watched, but {missing.name} was not seen: the watched model and optimizer do not give it, or a "
        "compiled part hides it"
    )


def _not_validated_so(run: Signals, missing: MissingSignal) -> str:
    if missing.name == "validation passes":
        return "let the watched model itself make the validation passes, right before run.val"
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
"""What a hint asks for, whether the run shows that it was done, and what to say then."""
