"""A hypothesis: its claim, the evidence for and against it, and the consequences if it is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steadyrun.postmortem.case import Case
from steadyrun.postmortem.evidence import Observation, Observations
from steadyrun.postmortem.measurements import Numbers
from steadyrun.postmortem.remedies import Remedy
from steadyrun.questions.form import FAULT
from steadyrun.store.incident_files import part, text, to_step

PROVES, FAVOURS, AGAINST, RULES_OUT, UNTESTED = "proves", "favours", "speaks against", "rules out", "does not test"
PROVED, SUPPORTED, OPEN, UNLIKELY, RULED_OUT = "proved", "supported", "open", "unlikely", "ruled out"
NOT_TESTED = "not tested"
_NAMED = 3  # rows of a batch to name
_UPSIDE_DOWN = frozenset({"batch-elsewhere"})  # the batch is the cause if it also does the same elsewhere
_WEIGHTS = {PROVES: 100.0, FAVOURS: 1.0, AGAINST: -1.0, RULES_OUT: -100.0, UNTESTED: 0.0}


@dataclass(frozen=True)
class Sign:
    """The meaning of one observation for one hypothesis."""

    observation: Observation
    bearing: str
    strength: float = 1.0

    @property
    def weight(self) -> float:
        return _WEIGHTS[self.bearing] * self.strength


@dataclass(frozen=True)
class Grounds:
    """The evidence that causes are weighed on."""

    case: Case
    numbers: Numbers
    observations: Observations

    def sign(self, key: str, bearing: str, strength: float = 1.0) -> list[Sign]:
        """One sign if the observation exists, else none."""
        return [Sign(self.observations[key], bearing, strength)] if key in self.observations else []

    def value(self, key: str) -> float | None:
        return self.observations[key].value if key in self.observations else None

    def fault(self, code: str, *outcomes: str) -> list[Sign]:
        """A fault about this incident proves its cause; a note with the same outcome favours it."""
        asked = self.case.answer(code)
        if asked is None or asked.answer.outcome not in outcomes or not self.case.concerns(asked):
            return []
        return self.sign(
            f"walk:{code}",
            PROVES if asked.answer.kind == FAULT else FAVOURS,
            1.0 if asked.answer.kind == FAULT else 2.0,
        )

    def experiments(self, *groups: str, exhaustive: bool = True) -> list[Sign]:
        """The signs of the experiments in these groups of factors.

        They rule a cause out only if a change was tested, the incident stayed, and no other change of the group removed
        it; a group that is not `exhaustive` is never ruled out. If no change of it was tested, a sign says so.
        """
        record = self.case.proofs.experiments
        if record is None:
            return []
        rows = [(f"experiment:{index}", row) for index, row in enumerate(record.rows) if row.group in groups]
        known = [(key, row) for key, row in rows if row.gone is not None]
        helped = {key for key, row in known if row.gone == (row.factor not in _UPSIDE_DOWN)}
        signs = self.sign("verdict", PROVES) if record.decided and record.verdict in groups else []
        if not known:
            signs += [sign for key, _row in rows for sign in self.sign(key, UNTESTED)]
        for key, row in known:
            if key in helped:
                signs += self.sign(key, FAVOURS, 3.0)
            elif row.factor in _UPSIDE_DOWN:  # harmless elsewhere: the batch alone is not enough, but may be needed
                signs += self.sign(key, AGAINST, 3.0)
            elif not helped:  # one change that helps is enough
                signs += self.sign(key, RULES_OUT) if exhaustive else self.sign(key, AGAINST)
        return signs


def examples(look: Grounds) -> str:
    """The rows of the batch that a replay named, with their source; "" if there are none."""
    rows = look.case.proofs.examples
    said = ", ".join(_example(row) for row in rows[:_NAMED])
    return said + (f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else "")


def _example(row: Mapping[str, Any]) -> str:
    index, file = to_step(row.get("dataset_index")), text(row, "file")
    origin = ", ".join([*([] if index is None else [f"dataset index {index}"]), *([file] if file else [])])
    return f"row {row['row']} of the batch{f' ({origin})' if origin else ''}"


def raised_at(look: Grounds) -> str:
    """The line of the program that raised the exception."""
    code = part(look.case.proofs.incident, "code")
    return f"{code.get('file')}:{code.get('line')}" if code.get("file") else "the last line of the traceback"


@dataclass(frozen=True)
class Cause:
    """One entry of the catalogue.

    `weigh` returns the evidence for and against it; `sentence`, `remedies` and `lesson` are used if it is proved.
    `mechanism` marks an intermediate step, which counts as a cause only if there is no other.
    """

    key: str
    title: str
    claim: str
    panel: int | None
    weigh: Callable[[Grounds], list[Sign]]
    sentence: Callable[[Grounds], str]
    remedies: Callable[[Grounds], list[Remedy]]
    lesson: Callable[[Grounds], str]
    applies: Callable[[Grounds], bool] = lambda _look: True
    mechanism: bool = False
    prior: float = 0.0  # order among causes with little evidence
    named: Callable[[Grounds], tuple[str, str, int | None]] | None = (
        None  # title, claim and panel, if they depend on the run
    )

    def words(self, look: Grounds) -> tuple[str, str, int | None]:
        return (self.title, self.claim, self.panel) if self.named is None else self.named(look)


@dataclass(frozen=True)
class Hypothesis:
    """A cause, weighed."""

    cause: Cause
    signs: tuple[Sign, ...]
    title: str
    claim: str
    panel: int | None

    @property
    def weight(self) -> float:
        return sum(sign.weight for sign in self.signs)

    @property
    def standing(self) -> str:
        bearings = {sign.bearing for sign in self.signs}
        if PROVES in bearings:  # if experiments and another proof disagree, section 4 says so
            return PROVED
        if RULES_OUT in bearings:
            return RULED_OUT
        if self.weight <= 0 and UNTESTED in bearings:
            return NOT_TESTED
        return SUPPORTED if self.weight > 0 else UNLIKELY if self.weight < 0 else OPEN

    def of(self, *bearings: str) -> list[Sign]:
        return [sign for sign in self.signs if sign.bearing in bearings]


def weigh(causes: Iterable[Cause], look: Grounds) -> tuple[Hypothesis, ...]:
    """The applicable hypotheses, the most likely first; equals in the order of the catalogue."""
    hypotheses = [
        Hypothesis(cause, tuple(_once(cause.weigh(look))), *cause.words(look))
        for cause in causes
        if cause.applies(look)
    ]
    return tuple(sorted(hypotheses, key=_rank))


def _rank(hypothesis: Hypothesis) -> tuple[int, bool, float]:
    group = {PROVED: 0, SUPPORTED: 1, RULED_OUT: 3}.get(hypothesis.standing, 2)
    return group, hypothesis.cause.mechanism, -hypothesis.weight - hypothesis.cause.prior


def _once(signs: list[Sign]) -> list[Sign]:
    """Each observation once per hypothesis, with its strongest meaning."""
    kept: dict[str, Sign] = {}
    for sign in signs:
        known = kept.get(sign.observation.key)
        if known is None or abs(sign.weight) > abs(known.weight):
            kept[sign.observation.key] = sign
    return list(kept.values())
