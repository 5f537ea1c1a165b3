"""One look at a run: the walk of `check` over what is on disk, reduced to what the monitor needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked


@dataclass(frozen=True)
class Sighting:
    """A fault or a suspect on the path of a walk. If it `may_pass`, more training may undo it."""

    code: str
    outcome: str
    kind: str
    step: int | None
    message: str
    advice: str
    may_pass: bool


@dataclass(frozen=True)
class Look:
    """What one walk found."""

    sightings: tuple[Sighting, ...]
    verdict: str
    leaf: str | None
    headline: str | None
    words: str = ""  # what the headline means

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Look:
        sightings = tuple(Sighting(**sighting) for sighting in content["sightings"])
        return cls(sightings, content["verdict"], content["leaf"], content["headline"], content["words"])


class Looker:
    """Looks at the run in `root`, with the thresholds that the files in and above `folder` had at the first look."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._changes: Any = None

    def look(self) -> Look:
        # Imported when the first look is due: a training process that has a child for this never loads them.
        from steadyrun.report.limits import changes
        from steadyrun.report.report import check_with

        if self._changes is None:
            self._changes = changes({}, self._folder)
        return _seen(check_with(self._root, self._changes, go_on=True))


def _seen(report: Report) -> Look:
    from steadyrun.report.phrases import meaning

    leaf, headline = report.leaf, report.headline
    return Look(
        tuple(_sighting(asked) for asked in _grave(report)),
        report.verdict,
        leaf.question.code if leaf is not None else None,
        headline.question.code if headline is not None else None,
        meaning(headline) if headline is not None else "",
    )


def _grave(report: Report) -> list[Asked]:
    """The faults and suspects. A sign that a fault or another suspect explains is not announced beside it."""
    from steadyrun.questions.form import FAULT, SUSPECT

    grave = [asked for asked in report.walk.path if asked.answer.kind in {FAULT, SUSPECT}]
    causes = [asked for asked in grave if not asked.question.outcome(asked.answer.outcome).symptom]
    return [asked for asked in grave if asked.answer.kind == FAULT or not causes or asked in causes]


def _sighting(asked: Asked) -> Sighting:
    from steadyrun.questions.form import SUSPECT

    answer = asked.answer
    return Sighting(
        asked.question.code,
        answer.outcome,
        answer.kind,
        answer.step,
        answer.message,
        answer.experiment if answer.kind == SUSPECT else answer.fix,
        bool(answer.edge) or answer.may_pass,  # an edge: it may turn out to be the symptom of another
    )
