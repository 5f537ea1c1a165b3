"""A cause of the fifth fleet, by the families of all its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diagnosis.fifth.families import ANSWERS
from diagnosis.second import causes as second
from steadyrun.questions.aliases import outcome_of


@dataclass(frozen=True)
class Cause(second.Cause):
    """What is wrong in a program that has the bug."""

    answers: ClassVar[dict[str, tuple[str, ...]]] = ANSWERS

    @property
    def named(self) -> second.Named:
        """The headlines that are right: codes stand for all of their outcomes."""
        listed = self.answers[self.family]
        pairs = (":".join(outcome_of(*each.split(":"))) for each in listed if ":" in each)
        return second.Named([*pairs, *(each for each in listed if ":" not in each)])
