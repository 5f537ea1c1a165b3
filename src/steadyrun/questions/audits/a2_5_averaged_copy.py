"""A2.5: does a copy of the model follow it?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import RANDOM
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    copies = [(event.step, modes) for event in run.events("validation") if (modes := _copy(event.fields)) is not None]
    in_training = run.maybe("copy/size")  # a sample after a validation may also hold what was validated
    if not copies or (in_training is not None and len(in_training) > len(copies)):  # a reference, or a target
        return _in_training(run, limit)
    if len(copies) < limit["validations"]:
        words = f"{counted(len(copies), 'validation')} of a copy recorded, {limit['validations']:g} needed"
        raise MissingSignal("val_loss", words)
    first, last = copies[0][1], copies[-1][1]
    measured = {"distance": last["copy_distance"], "validations": float(len(copies))}
    words = f"The validated copy differs from the model by {percent(last['copy_distance'])} of the weight norm"
    sizes = {modes["copy_size"] for _, modes in copies}
    if len(sizes) == 1 and last["size"] != first["size"]:
        if last["passes"] and known_facts(run, limit).start != RANDOM:
            return Finding("pass", f"{words} and stands still beside it, as a reference model does.", measured)
        message = f"{words} and has not moved in {len(copies)} validations, while the model has."
        return Finding("never-moves", message, measured, copies[0][0])
    if (lost := _lost_at_resume(run, limit, copies)) is not None:
        return lost
    if last["copy_untouched"]:
        layers = counted(int(last["copy_untouched"]), "normalisation layer")
        message = f"The copy has {layers} with initial running statistics, though the model's have moved."
        return Finding("statistics-left-behind", message, measured, copies[-1][0])
    val, loss = run.maybe("val_loss"), run.maybe("loss")
    if val is not None and loss is not None and last["copy_distance"] > limit["distance"]:
        train = loss.mean_until(float(val.steps[-1]), limit.count("recent"))
        measured["gap"] = float(val.values[-1]) / train if train > 0 else 0.0
        if measured["gap"] > limit["gap"]:
            message = f"{words}, and validation is {shown(measured['gap'])} times the training loss."
            return Finding("lags", message, measured, copies[-1][0])
    return Finding("pass", f"{words}.", measured)


def _lost_at_resume(run: Signals, limit: Limits, copies: list[tuple[int | None, dict[str, float]]]) -> Finding | None:
    """A copy that jumps away from the model at a resume while the model does not jump."""
    for seam in (event.step for event in run.events("resume") if event.step is not None):
        before = [modes for step, modes in copies if step is not None and step < seam]
        after = next((modes for step, modes in copies if step is not None and step >= seam), None)
        if len(before) < limit["before"] or after is None:
            continue
        jumped = [_jump(before, after, name) > limit["jump"] for name in ("copy_size", "size")]
        near, far = before[-1]["copy_distance"], after["copy_distance"]
        if jumped == [True, False] and far > limit["jump"] * near:
            message = (
                f"At the resume at step {seam}, the distance of the validated copy from the model jumped from "
                f"{percent(near)} to {percent(far)} of the weight norm."
            )
            return Finding("lost-at-resume", message, {"distance": far, "before": near}, seam)
    return None


def _jump(before: list[dict[str, float]], after: dict[str, float], name: str) -> float:
    """The change of a norm at the resume, as a multiple of its largest change between earlier validations."""
    sizes = [modes[name] for modes in before]
    usual = max(abs(later - earlier) for earlier, later in pairwise(sizes))
    return abs(after[name] - sizes[-1]) / usual if usual > 0 else 0.0


def _in_training(run: Signals, limit: Limits) -> Finding:
    """A copy that runs in training steps, such as a target network."""
    series = [run.maybe(f"copy/{name}") for name in ("size", "model_size", "distance")]
    if any(points is None for points in series):
        raise NotApplicable("no copy of the model was validated or used in training")
    size, of_model, distance = (points.values for points in series if points is not None)
    if len(size) < limit["samples"]:
        words = f"a copy ran in {counted(len(size), 'sampled step')}, {limit['samples']:g} needed"
        raise MissingSignal("copy/size", words)
    apart = [float(distance[index] / of_model[index]) for index in (0, -1)]
    measured = {"distance": apart[1], "samples": float(len(size))}
    words = f"The copy used in training differs from the model by {percent(apart[1])} of the weight norm"
    still = float(size.min()) == float(size.max()) and of_model[0] != of_model[-1]
    if still and apart[0] < limit["began"] and apart[1] > limit["distance"] and known_facts(run, limit).start == RANDOM:
        message = f"{words} ({percent(apart[0])} at the start) and has not moved in {len(size)} sampled steps."
        return Finding("target-stands-still", message, measured)
    away = distance / of_model
    began = apart[0] < limit["began"] and known_facts(run, limit).start == RANDOM
    if began and apart[1] > limit["distance"] and bool((away[1:] >= away[:-1]).all()):
        return Finding("follows-too-slowly", f"{words}, and was never nearer than before.", measured)
    return Finding("pass", f"{words}.", measured)


def _copy(fields: Mapping[str, Any]) -> dict[str, float] | None:
    modes = fields.get("modes")
    names = ("copy_distance", "copy_size", "size", "copy_untouched")
    if not isinstance(modes, dict) or not all(isinstance(modes.get(name), int | float) for name in names):
        return None
    return {name: float(modes[name]) for name in names} | {"passes": float(modes.get("passes") or 0)}


QUESTION = Question(
    code="A2.5",
    name="copies follow the model",
    asks="Does a copy of the model (an average of its weights, a target network) follow the model?",
    why="A copy that is never updated, that misses buffers or that follows too slowly is a different model than the "
    "trained one.",
    needs=("val_loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="validations",
            value=2,
            unit="validations",
            meaning="how many validations are compared",
            seed="",
            decision="the copy must differ between them; its norm is compared to the last bit",
        ),
        Threshold(
            name="distance",
            value=0.2,
            unit="of the weight norm",
            meaning="how far behind a copy may be",
            seed="",
            decision="an average over the last hundreds of steps is a few percent away",
        ),
        Threshold(
            name="before",
            value=3,
            unit="validations",
            meaning="how many validations before a resume show how a copy usually moves",
            seed="",
            decision="they give at least two changes",
        ),
        Threshold(
            name="jump",
            value=3,
            unit="times",
            meaning="how much more a copy may move at a resume, and away from the model, than between two validations",
            seed="",
            decision="measured: below 1 for averages that are restored, 4 for one that starts again",
        ),
        Threshold(
            name="samples",
            value=8,
            unit="sampled steps",
            meaning="in how many sampled steps a copy used in training must have run",
            seed="",
            decision="a target network is updated several times in this many; the first samples are close together",
        ),
        Threshold(
            name="began",
            value=0.2,
            unit="of the weight norm",
            meaning="a copy nearer than this at the start was made from these weights",
            seed="",
            decision="independently initialised networks are 1.4 apart",
        ),
        Threshold(
            name="gap",
            value=1.3,
            unit="times the training loss",
            meaning="the validation loss of a copy that lags must exceed this",
            seed="",
            decision="a copy far behind that validates well is good enough",
        ),
        Threshold(
            name="recent",
            value=50,
            unit="losses",
            meaning="how many training losses before a validation are averaged",
            seed="",
            decision="one training loss is noisy",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the copy follows the model"),
        Outcome(
            name="never-moves",
            answer=FAULT,
            meaning="the validated copy of the model is never updated",
            fix="Call ema.update_parameters(model) after every optimizer.step().",
            explains=("C4.2", "S1.3", "V1.3"),
            proved=True,
        ),
        Outcome(
            name="statistics-left-behind",
            answer=FAULT,
            meaning="the copy has the model's weights but not its running statistics",
            fix="Also copy buffers (AveragedModel(…, use_buffers=True)), or call torch.optim.swa_utils.update_bn.",
            explains=("C4.2", "S1.3", "V1.3"),
            proved=True,
        ),
        Outcome(
            name="lost-at-resume",
            answer=FAULT,
            meaning="the averaged copy was not restored at the resume",
            fix="Save the average with the checkpoint (ema.state_dict()), and load it with the model.",
            explains=("C4.2", "S1.3", "V1.3"),
        ),
        Outcome(
            name="target-stands-still",
            answer=SUSPECT,
            meaning="the target network is never updated from its random weights",
            fix="Update the copy with target.load_state_dict(model.state_dict()) every few hundred steps, or average "
            "it into the model slowly.",
            experiment="Update the copy every 100 steps. If the return or score rises, the missing update was the "
            "cause.",
        ),
        Outcome(
            name="follows-too-slowly",
            answer=SUSPECT,
            meaning="the copy hardly follows the model: its average is too slow for this run",
            fix="Use a smaller decay (0.99 for a thousand steps), or one that grows: (1 + step) / (10 + step).",
            experiment="Validate both the copy and the model. If the model is much better, the average is too slow.",
            may_pass=True,
        ),
        Outcome(
            name="lags",
            answer=SUSPECT,
            meaning="the averaged copy is too far behind the model",
            fix="Use a smaller decay (0.99 for a thousand steps), or one that grows: (1 + step) / (10 + step).",
            experiment="Also validate the model itself. If it is much better than the copy, the average is too slow.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
