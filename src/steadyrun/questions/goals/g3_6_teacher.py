"""G3.6: does a student learn what its teacher says?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadyrun.questions.facts import QUESTION as FACTS
from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import SAMPLES
from steadyrun.signals.facts import is_as_made, is_matrix
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    taught = {name: _last(run, f"taught/{name}", limit) for name in _NAMES}
    if any(value is None for value in taught.values()):
        raise NotApplicable("no divergence of a model from a teacher was seen")
    known = {name: value for name, value in taught.items() if value is not None}
    beside = run.inferred.get("objective", {}).get("companions", {})
    weight = _last(run, "taught/weight", limit)
    if weight == 0:
        return Finding(
            "not-counted", "The divergence from the teacher has weight 0 in the loss.", known | {"weight": 0.0}
        )
    for name, facts in beside.items() if isinstance(beside, dict) else ():
        if isinstance(facts, dict) and (found := _of_teacher(run, str(name), facts, known, limit)) is not None:
            return found
    return _of_targets(known, limit)


_NAMES = ("rows", "student_fit", "student_temperature", "teacher_fit", "teacher_temperature", "squashed_fit")


def _last(run: Signals, name: str, limit: Limits) -> float | None:
    points = run.maybe(name)
    last = limit.count("samples")
    return None if points is None or len(points) < last else float(sorted(points.values[-last:])[last // 2])


def _of_teacher(
    run: Signals, name: str, facts: Mapping[str, Any], known: dict[str, float], limit: Limits
) -> Finding | None:
    """What is wrong with the module itself."""
    held = facts.get("optimized")
    if isinstance(held, int) and held and facts.get("differentiated"):
        message = f"The optimizer holds {counted(held, 'tensor')} of {name}, and the loss reaches them."
        return Finding("learns", message, {"optimized": float(held)})
    if facts.get("random"):
        samples = len(run.points("taught/rows"))
        message = f"{name} runs in training mode in {counted(samples, 'sampled step')}: its answers are random."
        return Finding("random", message, known)
    weights = [weight for weight in run.listed("companion_weights") if str(weight.get("name")).startswith(f"{name}.")]
    matrices = [weight for weight in weights if is_matrix(weight, limit.of(FACTS))]
    fresh = sum(is_as_made(weight, limit.of(FACTS)) for weight in matrices)
    if matrices and fresh == len(matrices):
        message = f"All {len(matrices):,} matrices of {name} have torch's default initialisation."
        return Finding("untrained", message, {"fresh": float(fresh)})
    return None


def _of_targets(known: dict[str, float], limit: Limits) -> Finding:
    """What is wrong with the numbers that are compared."""
    own, told = known["student_temperature"], known["teacher_temperature"]
    if known["rows"] > limit["rows"]:
        message = f"The teacher's probabilities of an example add up to 1 with an error of {shown(known['rows'])}."
        return Finding("wrong-axis", message, known)
    if known["squashed_fit"] > limit["fit"] > known["teacher_fit"]:
        message = f"The softmax of the teacher's scores explains {percent(known['squashed_fit'])} of the targets, the "
        message += f"scores themselves {percent(known['teacher_fit'])}."
        return Finding("squashed-twice", message, known)
    if known["teacher_fit"] < limit["unlike"]:
        message = f"The teacher's scores explain {percent(known['teacher_fit'])} of the targets (limit "
        return Finding("not-its-answers", f"{message}{percent(limit['unlike'])}).", known)
    if min(known["teacher_fit"], known["student_fit"]) > limit["fit"] and own > 0 and told > 0:
        words = f"The student's scores are divided by {shown(own)} and the teacher's by {shown(told)}"
        if max(own / told, told / own) > limit["apart"]:
            return Finding("one-sided", f"{words} (limit {limit['apart']:g} times).", known)
        return Finding("follows", f"{words}.", known)
    return Finding("follows", "The targets follow from the teacher's scores.", known)


_FOLLOWS = ("V1", "C4", "S1.4", "C1")
QUESTION = Question(
    code="G3.6",
    name="student learns from its teacher",
    asks="Is the teacher trained and fixed, and does the student learn what the teacher says?",
    why="Distillation runs without an error whatever the teacher is: untrained, in training mode, learning as well, or "
    "asked about other examples.",
    needs=("taught/*",),
    panel=1,
    thresholds=(
        SAMPLES,
        Threshold(
            name="rows",
            value=0.05,
            unit="of 1",
            meaning="probabilities whose sum is further from 1 are not those of one example",
            seed="",
            decision="bf16 rounds by less",
        ),
        Threshold(
            name="fit",
            value=0.98,
            unit="squared correlation",
            meaning="above this, log-probabilities are scores divided by a temperature",
            seed="",
            decision="exact but for rounding and clamped zeros",
        ),
        Threshold(
            name="unlike",
            value=0.5,
            unit="squared correlation",
            meaning="below this, the targets are not the teacher's answers to these examples",
            seed="",
            decision="chosen: targets that are sharpened, mixed or truncated still follow the scores",
        ),
        Threshold(
            name="apart",
            value=1.5,
            unit="times",
            meaning="how far the temperatures of student and teacher may differ",
            seed="",
            decision="both are divided by the same number; a teacher is sharpened on purpose only in self-distillation",
        ),
    ),
    outcomes=(
        Outcome(name="follows", answer=PASS, meaning="the student learns what the teacher says"),
        Outcome(
            name="learns",
            answer=FAULT,
            meaning="the teacher is trained together with its student",
            fix="Give the optimizer the student's parameters alone, and run the teacher under torch.no_grad().",
            explains=(*_FOLLOWS, "A4.1"),
        ),
        Outcome(
            name="not-counted",
            answer=SUSPECT,
            meaning="the teacher is asked, but its answers do not count",
            fix="Give the divergence a weight above zero: loss = alpha * divergence + (1 - alpha) * labels.",
            experiment="Train 200 steps with alpha=0.5. If held-out accuracy is higher, the teacher was missing.",
        ),
        Outcome(
            name="random",
            answer=SUSPECT,
            meaning="the teacher runs in training mode, so its answers are noisy",
            fix="Call teacher.eval() before training.",
            experiment="Ask the teacher twice about one batch. If the answers differ, dropout or batch statistics are "
            "active.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="untrained",
            answer=SUSPECT,
            meaning="the teacher has random weights",
            fix="Load the teacher's weights: teacher.load_state_dict(torch.load(path)).",
            experiment="Measure the teacher's accuracy on one labelled batch. If it is that of a guess, its weights "
            "were not loaded.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="wrong-axis",
            answer=SUSPECT,
            meaning="the teacher's softmax runs over the wrong axis",
            fix="Use softmax(teacher_scores / T, dim=-1).",
            experiment="Add up the targets of one example. They must make 1.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="squashed-twice",
            answer=SUSPECT,
            meaning="the teacher's scores go through a softmax twice",
            fix="Pass the teacher's raw scores to the softmax with the temperature.",
            experiment="Print the largest target of one example. If all targets are nearly equal, one softmax is too "
            "many.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="not-its-answers",
            answer=SUSPECT,
            meaning="the targets are not what the teacher says of these examples",
            fix="Ask the teacher about the same batch, in the same order, and check that both number classes alike.",
            experiment="Compare the most likely class of the teacher and of the targets for ten examples.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="one-sided",
            answer=SUSPECT,
            meaning="student and teacher are compared at different temperatures",
            fix="Divide both by T: kl_div(log_softmax(student / T), softmax(teacher / T)) * T**2.",
            experiment="Give student and teacher the same scores. If the divergence is not zero, the temperatures "
            "differ.",
            explains=_FOLLOWS,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
