"""The fleets: each has cases, causes, a folder of results and a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnosis import cases as first
from diagnosis import seen
from diagnosis.causes import CAUSES
from diagnosis.fifth import cases as fifth
from diagnosis.fifth import causes as fifth_causes
from diagnosis.fourth import cases as fourth
from diagnosis.fourth import causes as fourth_causes
from diagnosis.running import ROOT, build
from diagnosis.second import cases as second
from diagnosis.second import causes as second_causes
from diagnosis.third import cases as third
from diagnosis.third import causes as third_causes


@dataclass(frozen=True)
class Fleet:
    """A set of programs that are trained and asked about together."""

    name: str
    cases: Callable[..., list[first.Case]]
    causes: dict[str, Any]
    twin: Callable[[str, str], str]
    page: Path
    introduction: str
    remarks: dict[str, str]
    missed: dict[str, str] = field(default_factory=dict)
    half_of: Callable[[first.Case], str] | None = None


FIRST = """\
Written by `python benchmarks/diagnosis`. Real programs, none of them the tutor, with one real bug each, three seeds;
and healthy ones, some of which look alarming. *Detected*: something was called a fault. *Right*: the headline names the
cause ([causes.py](diagnosis/causes.py) says which answers do; that something happened is not a cause). Check is asked
after the run, preflight before it, replay about the incident; *together* is the one headline of a check that knows
what preflight and the replay have found, and what all other columns are about. The programs were looked at while the
audits and probes were built."""

SECOND = """\
Written by `python benchmarks/diagnosis --fleet second`. Programs of other kinds than those of the first fleet, frozen
before any limit was changed for them. Columns and words are those of benchmarks/diagnosis.md; the causes and the
answers that name them are in benchmarks/diagnosis/second."""

THIRD = """\
Written by `python benchmarks/diagnosis --fleet third`. Programs of further kinds, written without knowledge of the
rules and frozen before anybody asked about them. Columns and words are those of benchmarks/diagnosis.md; the causes and
the answers that name them are in benchmarks/diagnosis/third."""

FOURTH = """\
Written by `python benchmarks/diagnosis --fleet fourth`. Programs of more kinds, written without knowledge of the rules
and frozen before anybody asked about them. Columns and words are those of benchmarks/diagnosis.md; the causes and the
answers that name them are in benchmarks/diagnosis/fourth."""

FIFTH = """\
Written by `python benchmarks/diagnosis --fleet fifth`. Post-training, and objectives whose loss need not fall, written
without knowledge of the rules. Half of the cases are frozen: `--half frozen` asks about them, `--half tuning` about the
others. Columns and words are those of benchmarks/diagnosis.md; the causes and the answers that name them are in
benchmarks/diagnosis/fifth."""

FLEETS: dict[str, Fleet] = {
    "first": Fleet(
        *("first", first.cases, CAUSES, seen.twin, ROOT / "benchmarks" / "diagnosis.md", FIRST, seen.REMARKS),
        missed=seen.MISSED,
    ),
    "second": Fleet(
        *("second", second.cases, second_causes.CAUSES, second.twin, build("second") / "diagnosis.md", SECOND),
        remarks={bug: second_causes.damage(bug) for bug in second_causes.DAMAGE},
    ),
    "third": Fleet(
        *("third", third.cases, third_causes.CAUSES, third.twin, build("third") / "diagnosis.md", THIRD),
        remarks={bug: third_causes.damage(bug) for bug in third_causes.DAMAGE},
    ),
    "fourth": Fleet(
        *("fourth", fourth.cases, fourth_causes.CAUSES, fourth.twin, build("fourth") / "diagnosis.md", FOURTH),
        remarks={bug: fourth_causes.damage(bug) for bug in fourth_causes.DAMAGE},
    ),
    "fifth": Fleet(
        *("fifth", fifth.cases, fifth_causes.CAUSES, fifth.twin, build("fifth") / "diagnosis.md", FIFTH),
        remarks={bug: fifth_causes.damage(bug) for bug in fifth_causes.DAMAGE},
        half_of=fifth.half_of,
    ),
}


def cause_of(bug: str) -> Any:
    """The cause of a bug of any fleet; where two fleets share a bug, its family is the same."""
    return next(fleet.causes[bug] for fleet in FLEETS.values() if bug in fleet.causes)
