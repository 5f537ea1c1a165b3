"""The words that every form of a report shares: answers with their symbols, and strings made safe to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from steadyrun.questions.form import CANNOT_TELL, FAULT, GRADES, NOT_APPLICABLE, NOTE, PASS, SUSPECT
from steadyrun.report.ranking import in_trees
from steadyrun.signals.missing import NOT_IN_A_LOG, absent_from_log, unnamed_in_log
from steadyrun.store.run_summary import one_line as one_line
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.report.announced_faults import Announced
    from steadyrun.report.report import Report
    from steadyrun.report.vital_signs import VitalSign
    from steadyrun.trees.walker import Asked


SYMBOLS = {"healthy": "✓", PASS: "✓", FAULT: "✗", SUSPECT: "▲", NOTE: "!", CANNOT_TELL: "?", NOT_APPLICABLE: "-"}
SIGNS = ("V", "F")  # codes of vital signs and facts, which have a place of their own
WITHIN_NOISE = "noise"  # the outcome of a question that found nothing beyond the noise of a healthy run
MOST = 6  # entries of a list that has no natural end; JSON has them all


def word(kind: str) -> str:
    """An answer or a verdict in words."""
    return kind.replace("-", " ")


def with_symbol(kind: str) -> str:
    return f"{SYMBOLS[kind]} {word(kind)}"


def title(asked: Asked) -> str:
    return f"{asked.question.code} {asked.question.name}"


def at_step(step: int | None) -> str:
    return "" if step is None else f" at step {step}"


def state(report: Report) -> str:
    """The state of a run in a word: what ended with Ctrl-C or by its own exit has not crashed."""
    answers = {asked.question.code: asked.answer.outcome for asked in report.walk.path}
    early = report.state == "crashed" and answers.get("A7.1") == "exception"
    return "ended early" if early else one_line(report.state)


def standing(report: Report) -> str:
    """How far the run is, such as "finished, last step 299", and the number of its processes if there are several."""
    if report.command != "check":
        return state(report)
    last = "no steps" if report.last_step is None else f"last step {report.last_step}"
    last += "" if report.ranks is None else f", {report.ranks}"
    return f"{state(report)}, {last}" if report.state else last


def verdict(report: Report) -> str:
    """The verdict as one sentence."""
    if report.headline is not None:
        what = f"{meaning(report.headline) or report.headline.question.name} ({report.headline.question.code})"
        return one_line(f"{report.verdict}: {what}{at_step(report.headline.answer.step)}")
    if report.unanswered and (unnamed := _unnamed(report)):
        return one_line(f"cannot tell: no fault found, but no series is known as the loss; {unnamed}")
    if report.unanswered:
        return f"cannot tell: no fault found, but not answered: {', '.join(report.unanswered)}"
    if report.amber:
        signs = "; ".join(f"{meaning(sign.asked)} ({sign.code})" for sign in report.amber)
        return one_line(f"cannot tell: no fault found, but {signs}")
    if report.unproved:
        return "cannot tell: no fault found, but nothing recorded shows that it learns: log a return, accuracy or score"
    green = sum(sign.colour == "green" for sign in report.vital_signs)
    signs = "1 vital sign is green" if green == 1 else f"{green} vital signs are green"
    return f"healthy: {signs}, no fault found" if green else "healthy: no fault found"


def _unnamed(report: Report) -> str:
    """How to name the loss of a log, if that is what the unanswered questions lack."""
    hints = [asked.answer.how_to_record for asked in report.walk.path if asked.question.code in report.unanswered]
    return next((how for how in hints if unnamed_in_log(how)), "")


def message(asked: Asked) -> str:
    """What was found, and which limits the user had changed."""
    limits = "".join(f" {change}" for change in changed_limits(asked))
    return one_line(f"{asked.answer.message}{limits}")


def changed_limits(asked: Asked) -> list[str]:
    return [
        f"(limit {t.name} changed from {t.value:g} to {asked.changed[t.name]:g})"
        for t in asked.question.thresholds
        if t.name in asked.changed
    ]


def limits(asked: Asked) -> list[str]:
    """Every limit of a question with where it is from."""
    lines = []
    for t in asked.question.thresholds:
        mine = t.name in asked.changed
        source = f"changed by the user, {t.value:g} before" if mine else t.source
        value = f"{asked.changed.get(t.name, t.value):g} {t.unit}".rstrip()
        lines.append(one_line(f"{t.name} {value} ({source})"))
    return lines


def figures(measured: Mapping[str, float]) -> str:
    return one_line(", ".join(f"{name} {shown(value)}" for name, value in measured.items()))


def meaning(asked: Asked) -> str:
    """What the outcome means; an answer that could not be given has none."""
    meanings = [outcome.meaning for outcome in asked.question.outcomes if outcome.name == asked.answer.outcome]
    return one_line(meanings[0]) if meanings else ""


def likelihood(asked: Asked) -> str:
    """How often such a suspect was broken, on the runs where that was measured."""
    from steadyrun.report.question_page import frequency  # it imports words from here

    seen = frequency(asked.question.code, asked.answer.outcome) if asked.answer.kind == SUSPECT else None
    return "" if seen is None else f"seen on {seen.words}"


def advice(note: Asked) -> str:
    """What a note means and what to do about it; what only follows from a fault needs no fix of its own."""
    symptom = any(o.name == note.answer.outcome and o.answer == FAULT for o in note.question.outcomes)
    return one_line(f"{title(note)}: {meaning(note)}. {'A symptom.' if symptom else note.answer.fix}".rstrip())


def consequences(report: Report) -> list[str]:
    """What follows from the headline."""
    follows = report.ranking.consequences
    return [one_line(f"{meaning(asked) or asked.answer.message} ({asked.question.code})") for asked in follows]


def independent(report: Report) -> list[Asked]:
    """The notes that do not follow from the headline. Amber signs are shown among the signs."""
    follows = report.ranking.consequences
    return [asked for asked in report.notes if asked not in follows and asked.question.code[:1] not in SIGNS]


def signs(report: Report, codes: bool = True) -> list[tuple[str, str]]:
    """The vital signs as colours and lines; those that are not known in one line at the end."""
    known = [sign for sign in report.vital_signs if sign.colour != "unknown"]
    lines = [(sign.colour, one_line(f"{_sign(sign, codes)}: {message(sign.asked)}")) for sign in known]
    unknown = [_sign(sign, codes) for sign in report.vital_signs if sign.colour == "unknown"]
    return [*lines, ("unknown", f"not known: {', '.join(unknown)}")] if unknown and known else lines


def _sign(sign: VitalSign, codes: bool) -> str:
    return f"{sign.code} {sign.name}" if codes else sign.name


def counts(report: Report) -> str:
    """How many checks passed, and how many could not be answered or do not apply."""
    kinds = [asked.answer.kind for asked in report.walk.path]
    parts = [(PASS, "passed"), (CANNOT_TELL, "not answered"), (NOT_APPLICABLE, "not applicable")]
    return ", ".join(f"{kinds.count(kind)} {words}" for kind, words in parts if kind in kinds)


def quiet(report: Report) -> str:
    """Audits and probes without a finding, in one line; "" where there are none."""
    quiet_ones = [asked for asked in report.walk.path if is_quiet(report, asked)]
    kinds = [asked.answer.kind for asked in quiet_ones if asked.question.code[:1] not in SIGNS]
    parts = [
        f"{count} {word}"
        for kind, word in ((PASS, "pass"), (NOT_APPLICABLE, "not applicable"), (CANNOT_TELL, "cannot tell"))
        if (count := kinds.count(kind))
    ]
    what = "audits and probes" if any(asked.question.tried for asked in report.walk.path) else "audits"
    return f"{len(kinds)} {what}: {', '.join(parts)} (--json has them all)" if kinds else ""


def not_arising(report: Report) -> str:
    """How many questions of the walk do not apply; "" if there are none, or if each has its row."""
    rows = [asked for asked in report.walk.path if arises(asked) and not is_quiet(report, asked)]
    count = sum(is_folded(report, asked) for asked in rows)
    return f"{count} {'question does' if count == 1 else 'questions do'} not apply (--all lists them)" if count else ""


def is_folded(report: Report, asked: Asked) -> bool:
    """Whether an answer is a part of that count."""
    return asked.answer.kind == NOT_APPLICABLE and not report.whole


def arises(asked: Asked) -> bool:
    """Whether an answer is worth a row.

    A question about one kind of task says nothing of all other runs; what a log lacks is one line of `remedies`, and
    what is within the noise is nothing to tell.
    """
    answer = asked.answer
    if answer.kind == CANNOT_TELL and absent_from_log(answer.how_to_record):
        return False
    return answer.outcome != WITHIN_NOISE and (not asked.question.special or answer.kind != NOT_APPLICABLE)


def is_quiet(report: Report, asked: Asked) -> bool:
    """Whether an answer beside the trees is an audit's, or was recorded with the run, and found nothing."""
    beside = any(in_trees(answered) for answered in report.walk.path)
    if asked.question.code[:1] in SIGNS:
        return True
    return beside and not in_trees(asked) and asked.answer.kind not in GRADES


def remedies(report: Report) -> list[str]:
    """What to record to answer more questions, each with their codes; long lists are cut."""
    codes: dict[str, list[str]] = {}
    for asked in report.walk.path:
        if asked.answer.kind == CANNOT_TELL and not is_quiet(report, asked):
            codes.setdefault(asked.answer.how_to_record, []).append(asked.question.code)
    never = codes.pop(NOT_IN_A_LOG, [])
    lines = [one_line(f"{how} ({', '.join(answered)})") for how, answered in codes.items()]
    if never:
        what = "weights, activations, gradients by block, optimizer settings and batches"
        lines.append(f"record the next run with steadyrun: a log never has {what} ({len(never)} questions)")
    if lines and report.state == "imported":
        lines.insert(
            0,
            "this is a log: what is declared goes with it by steadyrun import --declare; the rest is for the next run",
        )
    return bounded(lines)


def not_reached(report: Report) -> str:
    """What the walk left out, "" where it left out nothing."""
    count = len(report.walk.not_reached)
    if not count or report.leaf is None:
        return ""
    questions = "1 question" if count == 1 else f"{count} questions"
    return f"{questions} not asked: the walk ends at the first fault (--all goes on)"


def announced(report: Report) -> list[str]:
    """Faults that were announced live and that the walk does not show as faults, with what became of them."""
    return [one_line(_became(fault)) for fault in report.announced if not fault.shown]


def _became(fault: Announced) -> str:
    noticed = "" if fault.noticed is None else f", announced at step {fault.noticed}"
    head = f"{fault.name or 'a fault'} ({fault.code}{noticed})"
    if fault.now is None:
        return f"{head}: {fault.message} This version has no such question."
    if fault.stands:
        return f"{head}: still a fault: {fault.now.message} Fix: {fault.now.fix}"
    return f"{head}: no longer a fault. Now: {fault.now.message} Then: {fault.message}"


def happened(report: Report) -> list[str]:
    """The incidents of the run, one sentence each, with what a replay has proved."""
    return [one_line(incident.sentence(report.run)) for incident in report.incidents]


def bounded(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST
    return lines if rest <= 1 else [*lines[:MOST], f"and {rest} more (--json has them all)"]
