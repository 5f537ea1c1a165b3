"""The vital signs of a run: green, amber or red, each with its number. They come first in every report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT
from steadyrun.trees.walker import Asked

GREEN, AMBER, RED, UNKNOWN = "green", "amber", "red", "unknown"
_COLOURS = {PASS: GREEN, NOTE: AMBER, SUSPECT: RED, FAULT: RED}


@dataclass(frozen=True)
class VitalSign:
    """One sign of life, as its question answered."""

    asked: Asked

    @property
    def code(self) -> str:
        return self.asked.question.code

    @property
    def name(self) -> str:
        return self.asked.question.name

    @property
    def colour(self) -> str:
        """`unknown` if it was not recorded or does not apply."""
        return _COLOURS.get(self.asked.answer.kind, UNKNOWN)

    @property
    def message(self) -> str:
        return self.asked.answer.message

    def to_dict(self) -> dict[str, Any]:
        answer = self.asked.answer
        return {
            "code": self.code,
            "name": self.name,
            "sign": self.colour,
            "message": answer.message,
            "measured": dict(answer.measured),
            "step": answer.step,
        }


def vital_signs(path: Sequence[Asked]) -> tuple[VitalSign, ...]:
    return tuple(VitalSign(asked) for asked in path if asked.question.code.startswith("V"))
