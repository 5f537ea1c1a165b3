"""What changed from an earlier run to this one: whether a fix worked, and what it brought along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steadyrun.questions.form import CANNOT_TELL, NOT_APPLICABLE, PASS
from steadyrun.report.phrases import SYMBOLS, one_line, title, word

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

NOT_ASKED = "not-asked"


@dataclass(frozen=True)
class AnswerChange:
    """A question that the two runs answer differently; `message` is the later run's."""

    code: str
    name: str
    was: str
    was_outcome: str
    now: str
    now_outcome: str
    message: str


@dataclass(frozen=True)
class Comparison:
    """A later run after an earlier one. The earlier one's first fault or suspect is gone, stays, or is open."""

    run: str
    old_leaf: Asked | None
    leaf_gone: Asked | None
    leaf_came: Asked | None
    came_before: bool  # the earlier run also had this fault, behind its leaf
    changed: tuple[AnswerChange, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "leaf_gone": _entry(self.leaf_gone),
            "leaf_came": _entry(self.leaf_came),
            "changed": [vars(change) for change in self.changed],
        }


def compare(new: Report, old: Report) -> Comparison:
    """What went away and what came. Both should have been walked past their first fault."""
    before = {asked.question.code: asked for asked in old.walk.path}
    after = {asked.question.code: asked for asked in new.walk.path}
    was, now = _first(old), _first(new)
    gone = was if was is not None and _is_gone(was, before, after) else None
    came = now if now is not None and not _same(now, was) else None
    came_before = came is not None and _same(came, before.get(came.question.code))
    changed = [_change(before.get(code), after.get(code)) for code in [*after, *(c for c in before if c not in after)]]
    return Comparison(old.run, was, gone, came, came_before, tuple(change for change in changed if change))


def _first(report: Report) -> Asked | None:
    """The first fault of a walk, or else its first suspect."""
    return report.leaf or next(iter(report.suspects), None)


def sentences(comparison: Comparison) -> list[tuple[str, str]]:
    """The comparison in words, each sentence with its symbol."""
    symbols_and_texts = [sentence for sentence in (_of_old_leaf(comparison), _of_new_leaf(comparison)) if sentence]
    for change in comparison.changed:
        text = f"{change.code} {change.name}: {_answer(change.was, change.was_outcome)} before"
        symbols_and_texts.append(("·", f"{text}, {_answer(change.now, change.now_outcome)} now"))
    return [(symbol, one_line(text)) for symbol, text in symbols_and_texts] or [("✓", "no answer changed")]


def _of_old_leaf(comparison: Comparison) -> tuple[str, str] | None:
    leaf = comparison.old_leaf
    if leaf is None:
        return None
    fault = f"{title(leaf)}, {leaf.answer.outcome}"
    now = next((change.now for change in comparison.changed if change.code == leaf.question.code), leaf.answer.kind)
    if comparison.leaf_gone is not None:
        return SYMBOLS["healthy"], f"gone: {fault} (now {word(now)})"
    if now in {CANNOT_TELL, NOT_ASKED}:
        return SYMBOLS[CANNOT_TELL], f"not shown to be gone: {fault} (now {word(now)})"
    return SYMBOLS[leaf.answer.kind], f"still there: {fault}"


def _of_new_leaf(comparison: Comparison) -> tuple[str, str] | None:
    leaf = comparison.leaf_came
    if leaf is None:
        return None
    kind = leaf.answer.kind
    first = f"first {kind} now, there before behind another" if comparison.came_before else f"new {kind}"
    return SYMBOLS[kind], f"{first}: {title(leaf)}, {leaf.answer.outcome}"


def _is_gone(leaf: Asked, before: Mapping[str, Asked], after: Mapping[str, Asked]) -> bool:
    """A fault is gone where its question was answered, and differently; the same outcome as a note is still there.

    Where the question no longer applies, the fault is gone if the questions that led to it pass now.
    """
    now = after.get(leaf.question.code)
    if now is None or now.answer.kind == CANNOT_TELL:
        return False
    if now.answer.kind != NOT_APPLICABLE:
        return now.answer.outcome != leaf.answer.outcome
    led = [code for code, asked in before.items() if _leads(asked, leaf.question.code)]
    return bool(led) and all(code in after and after[code].answer.kind == PASS for code in led)


def _leads(asked: Asked, code: str) -> bool:
    edges = asked.question.edges.get(asked.answer.outcome, ())
    return any(code == edge or code.startswith(f"{edge}.") for edge in edges)


def _same(first: Asked, second: Asked | None) -> bool:
    return second is not None and _identity(first) == _identity(second)


def _identity(asked: Asked) -> tuple[str, str, str]:
    return asked.question.code, asked.answer.kind, asked.answer.outcome


def _change(before: Asked | None, after: Asked | None) -> AnswerChange | None:
    known = after or before
    assert known is not None
    if before is not None and after is not None and _identity(before) == _identity(after):
        return None
    was, now = _kind_and_outcome(before), _kind_and_outcome(after)
    message = after.answer.message if after else ""
    return AnswerChange(known.question.code, known.question.name, *was, *now, message)


def _kind_and_outcome(asked: Asked | None) -> tuple[str, str]:
    return (asked.answer.kind, asked.answer.outcome) if asked else (NOT_ASKED, NOT_ASKED)


def _answer(kind: str, outcome: str) -> str:
    return word(kind) if outcome in {kind, "missing"} else f"{word(kind)} ({outcome})"


def _entry(leaf: Asked | None) -> dict[str, Any] | None:
    if leaf is None:
        return None
    answer = leaf.answer
    return {"code": leaf.question.code, "outcome": answer.outcome, "step": answer.step, "message": answer.message}
