"""The proof of a replay, and the search for what differs where it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steadyrun.incidents import proof as proving
from steadyrun.incidents import state as training
from steadyrun.incidents.loading import loader_difference
from steadyrun.incidents.packing import Packed
from steadyrun.incidents.proof import Difference, Proof
from steadyrun.incidents.reading import Incident
from steadyrun.incidents.repeating import nondeterminism
from steadyrun.incidents.session import Session

if TYPE_CHECKING:
    from steadyrun.incidents.outcome import Replay


def prove(session: Session, result: Replay, before: Packed | None) -> Proof:
    """Compare the losses; where they are not the recorded ones, say what differs. `before` is the state before that."""
    incident = result.incident
    found = proving.compare(result.losses, incident.recorded("loss"), _dtype(incident))
    if result.raised:
        again = _raised_then(incident, result)
        found = replace(found, raised_again=again, verdict=found.verdict if again else proving.DIFFERENT)
    loader = loader_difference(incident, session.task.loader)
    differences = [] if loader is None else [loader]
    if found.holds and found.verdict != proving.CLOSE:
        return replace(found, differences=differences)
    if result.raised and not found.raised_again:
        differences.append(_raised_now(result))
    differences += proving.environment(incident, session.device)
    if found.first_different is not None and before is not None:
        differences += _within(session, result, before, found.first_different)
    if found.verdict == proving.DIFFERENT and not differences:
        differences.append(
            Difference(
                "unknown",
                "state, inputs, random states, versions and threads are as recorded, and the step repeats itself: the "
                "program's code differs from the one that was recorded, or it holds state that is not captured (a "
                "counter, a cache, a random generator of its own); a train_step may be needed",
            )
        )
    return replace(found, differences=differences)


def _raised_then(incident: Incident, result: Replay) -> bool:
    """Whether the run ended with the exception that the replay met."""
    kind = result.raised.partition(":")[0]
    return incident.raised and result.first_bad == incident.step and incident.why.partition(":")[0] == kind


def _raised_now(result: Replay) -> Difference:
    words = f"step {result.first_bad} raised {result.raised}, and in the run it did not"
    if "SimpleNamespace" in result.raised or "AttributeDict" in result.raised:
        words += "; an object comes back from a batch with its attributes, without its methods and properties"
    return Difference("raised", words)


def _within(session: Session, result: Replay, before: Packed, step: int) -> list[Difference]:
    """What differs inside of the first step that differs."""
    incident, found = result.incident, []
    then, now = incident.input_hash(step), result.inputs.get(step)
    if step in session.unaligned:
        found.append(
            Difference(
                "random",
                f"step {step} draws random numbers before it calls the model, and the loop (a loader that shuffles, an "
                "augmentation) drew from the same generator before it: where the step began is not known. Draw what "
                "the step needs in the loop and make it part of the batch",
            )
        )
    elif then is not None and now is not None and then != now:
        found.append(
            Difference(
                "data",
                f"the model was given other inputs at step {step} than in the run: the batch handed to run.step is not "
                "what was trained on, or the data path is not deterministic",
            )
        )

    def restore() -> None:
        training.restore(session.objects, before.tree, before.tensors)

    repeated = nondeterminism(session.task.model, lambda: session.execute(step), restore)
    if repeated is not None:
        found.append(repeated)
    found += _rates(session, incident, step, restore)
    return found


def _rates(session: Session, incident: Incident, step: int, restore: Callable[[], None]) -> list[Difference]:
    """A learning rate that is not the recorded one before the step."""
    restore()
    groups = [group for optimizer in session.task.optimizers for group in optimizer.param_groups]
    for place, group in enumerate(groups):
        then, now = incident.recorded(f"lr/{place}").get(step), float(group["lr"])
        if session.task.train_step is not None and then is not None and then != now:
            return [
                Difference("learning-rate", f"group {place} has {now:g} at step {step}, in the run {then:g}", then, now)
            ]
    return []


def _dtype(incident: Incident) -> str:
    autocast: Mapping[str, Any] | None = incident.checkpoint.get("autocast")
    if autocast:
        return str(autocast["dtype"])
    kinds = incident.view.manifest.get("model", {}).get("parameter_dtypes", ["float32"])
    return str(kinds[0]) if len(kinds) == 1 else "float32"
