"""Prove that a replay reproduces the run, or find what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from steadyrun.probes.batch_hashes import arrays_of, batch_hash, example_hashes, input_hash, is_list_of_batches, joined
from steadyrun.probes.float_tensors import floats_in
from steadyrun.probes.scalars import untouched_random_states
from steadyrun.program import snapshot as training
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.program.packing import Packed, pack
from steadyrun.program.random_state import RandomState, put
from steadyrun.program.torch_compat import without_compiler
from steadyrun.replay.compare import CLOSE, DIFFERENT, Proof, ReplayDifference, compare, dtype_of, environment
from steadyrun.replay.incident import Incident
from steadyrun.replay.session import Session
from steadyrun.text import apart

if TYPE_CHECKING:
    from steadyrun.replay.result import Replay


# The same step twice from the same state: a difference between the two does not come from what was captured.


@dataclass
class Trace:
    """The model's inputs, the output of each module, and the loss."""

    inputs: int | None = None
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    loss: float = float("nan")


def nondeterminism(
    model: nn.Module, execute: Callable[[], Any], restore: Callable[[], None]
) -> ReplayDifference | None:
    """Run a step twice; return a difference that names the first module whose outputs differ."""
    first, second = _traced(model, execute, restore), _traced(model, execute, restore)
    if first.inputs != second.inputs:
        return ReplayDifference(
            "data",
            "running the same step twice gives the model different inputs: the data path draws random numbers from a "
            "generator other than the global ones of torch, numpy and random",
        )
    for (name, one), (_, two) in zip(first.outputs, second.outputs, strict=False):
        if one.shape != two.shape or not torch.equal(torch.nan_to_num(one), torch.nan_to_num(two)):
            return ReplayDifference(
                "nondeterminism",
                f"running the same step twice differs, first in the output of {name or 'the model'}: an operation "
                "there "
                "is not deterministic, uses its own random generator, or keeps state between calls",
            )
    if first.loss != second.loss and not (first.loss != first.loss and second.loss != second.loss):
        return ReplayDifference(
            "nondeterminism",
            "running the same step twice gives different losses from equal outputs: the loss function keeps state "
            "between calls, or uses its own random generator",
        )
    return None


def _traced(model: nn.Module, execute: Callable[[], Any], restore: Callable[[], None]) -> Trace:
    trace = Trace()
    names = {id(module): clean(name) for name, module in unwrapped(model).named_modules()}

    def entered(module: nn.Module, args: Any) -> None:
        if id(module) in names and trace.inputs is None:
            trace.inputs = _number(input_hash(args))

    def left(module: nn.Module, _args: Any, output: Any) -> None:
        if id(module) in names:
            trace.outputs += [(names[id(module)], tensor.detach().clone()) for tensor in floats_in(output)]

    restore()
    handles = [register_module_forward_pre_hook(entered), register_module_forward_hook(left)]
    try:
        trace.loss = float(execute())
    finally:
        for handle in handles:
            handle.remove()
    return trace


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


# Whether a task's loader yields the recorded batches.


_MOST = 500  # batches from the start of the run


def loader_difference(incident: Incident, loader: Iterable[Any] | None, random: RandomState) -> ReplayDifference | None:
    """Iterate over the newly built loader and compare batch hashes with those of the first steps."""
    recorded = _from_the_start(incident)
    if loader is None or not recorded:
        return None
    pad = incident.view.manifest.get("config", {}).get("pad_id")
    with untouched_random_states():
        put(random)
        try:
            step = _first_other(loader, recorded, pad if isinstance(pad, int) else None)
        except Exception as problem:
            return ReplayDifference("data", f"the task's loader raised {type(problem).__name__}: {problem}")
    if step is None:
        return None
    return ReplayDifference(
        "data",
        f"the task's loader yields another batch at step {step} than the run had: set its seed in the factory, or "
        "restore the data. This replay uses the captured batches; the whole run cannot be repeated",
    )


def _first_other(loader: Iterable[Any], recorded: list[int], pad: int | None) -> int | None:
    for step, batch in enumerate(islice(_endless(loader), len(recorded))):
        own_hash = _hash(batch, pad)
        if own_hash is not None and own_hash != recorded[step]:
            return step
    return None


def _from_the_start(incident: Incident) -> list[int]:
    """The hashes of the first steps, as long as each step has one batch."""
    if "batch_hash" not in incident.names():
        return []
    series = incident.series("batch_hash")
    steps = series.steps[:_MOST].tolist()
    known = next((index for index, step in enumerate(steps) if step != index), len(steps))
    return [int(value) for value in series.values[:known].tolist()]


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            return


def _hash(batch: Any, pad: int | None) -> int | None:
    parts = [arrays_of(part) for part in (batch if is_list_of_batches(batch) else [batch])]
    known = [hashes for part in parts if (hashes := example_hashes(part, pad)) is not None]
    return int(batch_hash(known[0] if len(known) == 1 else joined(known))) if known else None


def prove(session: Session, result: Replay, before: Packed | None) -> Proof:
    """Compare the losses; if they differ, find out why. `before` is the state before the first different step."""
    incident = result.incident
    proof = compare(result.losses, incident.recorded("loss"), dtype_of(incident))
    if result.raised:
        again = _raised_then(incident, result)
        proof = replace(proof, raised_again=again, verdict=proof.verdict if again else DIFFERENT)
    loader = loader_difference(incident, session.task.loader, session.built)
    differences = [] if loader is None else [loader]
    if proof.holds and proof.verdict != CLOSE:
        return replace(proof, differences=differences)
    if result.raised and not proof.raised_again:
        differences.append(_raised_now(result))
    if incident.lost and not proof.holds:
        differences.append(
            ReplayDifference(
                "data",
                f"parts of the batches are not tensors and were not captured: {', '.join(incident.lost[:3])}",
            )
        )
    differences += environment(incident, session.device)
    if proof.first_different is not None and before is not None:
        within = _within(session, result, before, proof.first_different)
        result.explained = "; ".join(difference.message for difference in within)
        differences += within
    if proof.verdict == DIFFERENT and not differences:
        differences.append(
            ReplayDifference(
                "unknown",
                "versions, threads and flags equal those of the run, and the step is deterministic. Possible causes: "
                "the code changed; the program holds state that is not captured (a counter, a cache, gradients left "
                "from the previous step); the loop does more than loss_fn, clip_grad_norm_, step and zero_grad "
                "(another loss in backward(), clip_grad_value_, changes of mode, momentum or parameters between "
                "steps). Give the task a train_step that does what the loop does",
            )
        )
    return replace(proof, differences=differences)


def _raised_then(incident: Incident, result: Replay) -> bool:
    """Whether the run ended with the exception that the replay raised."""
    kind = result.raised.partition(":")[0]
    return incident.raised and result.first_bad == incident.step and incident.why.partition(":")[0] == kind


def _raised_now(result: Replay) -> ReplayDifference:
    words = f"step {result.first_bad} raised {result.raised}, but not in the run"
    if "SimpleNamespace" in result.raised or "AttributeDict" in result.raised:
        words += "; objects in a captured batch keep their attributes, but not their methods and properties"
    return ReplayDifference("raised", words)


def _within(session: Session, result: Replay, before: Packed, step: int) -> list[ReplayDifference]:
    """What differs within the first different step."""
    incident, differences = result.incident, []
    then, now = incident.input_hash(step), result.inputs.get(step)
    if step in session.unaligned:
        differences.append(
            ReplayDifference(
                "random",
                f"step {step} draws random numbers before it calls the model, and the loop (a shuffling loader, an "
                "augmentation) drew from the same generator before that: the generator's state at the start of the "
                "step is unknown. Draw these numbers in the loop and put them into the batch",
            )
        )
    elif then is not None and now is not None and then != now:
        differences.append(
            ReplayDifference(
                "data",
                f"the model got other inputs at step {step} than in the run: run.step got a batch other than the one "
                "trained on, or the data path is not deterministic",
            )
        )

    def restore() -> None:
        training.restore(session.objects, before.tree, before.tensors)

    repeated = nondeterminism(session.task.model, lambda: session.execute(step), restore)
    if repeated is not None:
        differences.append(repeated)
    elif (changed := _changed_batch(session, step, restore)) is not None:
        differences.append(changed)
    if without_compiler(session.task.model) is not None:
        differences.append(
            ReplayDifference(
                "nondeterminism",
                "the model is compiled: compiled code can differ from process to process, and random numbers that the "
                "loop draws between two steps (a shuffling loader) cannot be observed before it",
            )
        )
    root = _other_root(session, incident, step)
    if root is not None:
        differences.append(root)
    differences += _rates(session, incident, step, restore)
    return differences


def _changed_batch(session: Session, step: int, restore: Callable[[], None]) -> ReplayDifference | None:
    """A step that modifies its batch in place, so that run.step got the modified batch."""
    restore()
    batch = session.incident.batch(step, session.device)
    tensors = pack(batch, copy=False).tensors.values()
    before = [tensor._version for tensor in tensors]
    session.execute(step, batch)
    if [tensor._version for tensor in tensors] == before:
        return None
    return ReplayDifference(
        "data",
        f"step {step} modifies its batch in place before run.step gets it, so the replay modifies it twice. Work on a "
        "copy, or give run.step a copy made before the step",
    )


def _other_root(session: Session, incident: Incident, step: int) -> ReplayDifference | None:
    """A loss given to backward() that differs from the one given to run.step: only a train_step has both."""
    root, loss = (incident.recorded(name).get(step) for name in ("backward_loss", "loss"))
    if session.task.train_step is not None or not root or not loss or not math.isfinite(root - loss):
        return None
    if abs(root - loss) <= 1e-3 * abs(loss):
        return None
    if incident.recorded("backwards").get(step, 1.0) > 1 or incident.recorded("loss_scale").get(step):
        return None
    of_root, of_loss = apart(root, loss)
    return ReplayDifference(
        "loss",
        f"step {step} called backward() on {of_root}, but run.step got {of_loss}: a term or a factor of the loss is "
        "not "
        "in loss_fn. Give the task a train_step that does what the loop does",
        loss,
        root,
    )


def _rates(session: Session, incident: Incident, step: int, restore: Callable[[], None]) -> list[ReplayDifference]:
    """A learning rate before the step that differs from the recorded one."""
    restore()
    groups = [group for optimizer in session.task.optimizers for group in optimizer.param_groups]
    for index, group in enumerate(groups):
        then, now = incident.recorded(f"lr/{index}").get(step), float(group["lr"])
        if session.task.train_step is not None and then is not None and then != now:
            shown_now, shown_then = apart(now, then)
            return [
                ReplayDifference(
                    "learning-rate",
                    f"the learning rate of parameter group {index} is {shown_now} at step {step}, in the run "
                    f"{shown_then}",
                    then,
                    now,
                )
            ]
    return []
