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
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    copies = [(event.step, modes) for event in run.events("validation") if (modes := _copy(event.fields)) is not None]
    if not copies:
        return _in_training(run, limit)
    if len(copies) < limit["validations"]:
        raise MissingSignal("val_loss", f"{len(copies)} validations of a copy, {limit['validations']:g} are needed")
    first, last = copies[0][1], copies[-1][1]
    measured = {"distance": last["copy_distance"], "validations": float(len(copies))}
    words = f"the copy that is validated is {percent(last['copy_distance'])} of the weights' size away from them"
    sizes = {modes["copy_size"] for _, modes in copies}
    if len(sizes) == 1 and last["size"] != first["size"]:
        message = f"{words}, and has not moved in {len(copies)} validations while the weights did."
        return Finding("never-moves", message, measured, copies[0][0])
    if (lost := _lost_at_resume(run, limit, copies)) is not None:
        return lost
    if last["copy_untouched"]:
        message = (
            f"{last['copy_untouched']:g} normalisations of the copy have their initial statistics, the model's not."
        )
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
    """A copy that jumps at a resume, away from the model, which does not jump."""
    for seam in (event.step for event in run.events("resume") if event.step is not None):
        before = [modes for step, modes in copies if step is not None and step < seam]
        after = next((modes for step, modes in copies if step is not None and step >= seam), None)
        if len(before) < limit["before"] or after is None:
            continue
        jumped = [_jump(before, after, name) > limit["jump"] for name in ("copy_size", "size")]
        near, far = before[-1]["copy_distance"], after["copy_distance"]
        if jumped == [True, False] and far > limit["jump"] * near:
            message = (
                f"the copy that is validated was {percent(near)} of the weights' size away from them before the resume "
                f"at step {seam}, and is {percent(far)} away after it."
            )
            return Finding("lost-at-resume", message, {"distance": far, "before": near}, seam)
    return None


def _jump(before: list[dict[str, float]], after: dict[str, float], name: str) -> float:
    """The change of a size at the seam, as a multiple of the largest one between two validations before it."""
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
        raise MissingSignal("copy/size", f"a copy ran in {len(size)} sampled steps, {limit['samples']:g} are needed")
    apart = [float(distance[index] / of_model[index]) for index in (0, -1)]
    measured = {"distance": apart[1], "samples": float(len(size))}
    words = f"the copy that training uses is {percent(apart[1])} of the weights' size away from them"
    still = float(size.min()) == float(size.max()) and of_model[0] != of_model[-1]
    if still and apart[0] < limit["began"] and apart[1] > limit["distance"] and known_facts(run, limit).start == RANDOM:
        message = f"{words}, was {percent(apart[0])} in the beginning, and has not moved in {len(size)} sampled steps."
        return Finding("target-stands-still", message, measured)
    return Finding("pass", f"{words}.", measured)


def _copy(fields: Mapping[str, Any]) -> dict[str, float] | None:
    modes = fields.get("modes")
    names = ("copy_distance", "copy_size", "size", "copy_untouched")
    if not isinstance(modes, dict) or not all(isinstance(modes.get(name), int | float) for name in names):
        return None
    return {name: float(modes[name]) for name in names}


QUESTION = Question(
    code="A2.5",
    name="the copy follows",
    asks="Does a copy of the model (an average of its weights, a target network) follow the model?",
    why="An average that is never updated, that leaves buffers behind or that is too slow is another model than the "
    "one that is trained.",
    needs=("val_loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="validations",
            value=2,
            unit="validations",
            meaning="how many are compared",
            seed="",
            decision="the copy must differ between them; its size is compared to the last bit",
        ),
        Threshold(
            name="distance",
            value=0.2,
            unit="of the weights' size",
            meaning="how far behind a copy may be",
            seed="",
            decision="an average over the last hundreds of steps is a few percent away",
        ),
        Threshold(
            name="before",
            value=3,
            unit="validations",
            meaning="how many before a resume show how a copy usually moves",
            seed="",
            decision="two changes at least",
        ),
        Threshold(
            name="jump",
            value=3,
            unit="times",
            meaning="how much more than between two validations a copy may move at a resume, and away from the model",
            seed="",
            decision="measured: below 1 for averages that are restored, 4 for one that begins again",
        ),
        Threshold(
            name="samples",
            value=8,
            unit="sampled steps",
            meaning="in how many a copy that training uses must have run",
            seed="",
            decision="a target network is updated several times in so many; the first samples lie close together",
        ),
        Threshold(
            name="began",
            value=0.2,
            unit="of the weights' size",
            meaning="a copy that was nearer in the beginning was made from these weights",
            seed="",
            decision="networks that were drawn independently are 1.4 apart",
        ),
        Threshold(
            name="gap",
            value=1.3,
            unit="times the training loss",
            meaning="what validation of a copy that lags must exceed",
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
            meaning="the copy that is validated is never updated",
            fix="Call ema.update_parameters(model) after every optimizer.step().",
            explains=("C4.2", "S1.3", "V1.3"),
            proved=True,
        ),
        Outcome(
            name="statistics-left-behind",
            answer=FAULT,
            meaning="the copy has the model's weights and not its running statistics",
            fix="Copy buffers as well (AveragedModel(…, use_buffers=True)), or call torch.optim.swa_utils.update_bn.",
            explains=("C4.2", "S1.3", "V1.3"),
            proved=True,
        ),
        Outcome(
            name="lost-at-resume",
            answer=FAULT,
            meaning="the averaged copy was not restored when the run was resumed",
            fix="Save the average with the checkpoint (ema.state_dict()), and load it with the model.",
            explains=("C4.2", "S1.3", "V1.3"),
        ),
        Outcome(
            name="target-stands-still",
            answer=SUSPECT,
            meaning="a copy of the untrained model is used in training and never updated: targets come from random "
            "weights",
            fix="Update the copy: target.load_state_dict(model.state_dict()) every few hundred steps, or an average.",
            experiment="Update the copy every 100 steps: if the return (or the score) rises now, it stood still.",
        ),
        Outcome(
            name="lags",
            answer=SUSPECT,
            meaning="the averaged copy is far behind the model: it averages over too many steps for this run",
            fix="Use a smaller decay (0.99 for a thousand steps), or one that grows: (1 + step) / (10 + step).",
            experiment="Validate the model itself beside the copy: if it is much better, the average is too slow.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
