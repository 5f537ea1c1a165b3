"""What a tool says when it cannot answer: a stable word, what is wrong, and what to do next. Never a traceback."""

from __future__ import annotations

from typing import Any

from steadyrun.agents.bounding import short

NO_RUN = "no-such-run"
NO_SERIES = "no-such-series"
NO_QUESTION = "no-such-question"
NO_TOOL = "no-such-tool"
BAD_ARGUMENT = "bad-argument"
UNREADABLE = "unreadable-run"
NOTHING = "nothing-to-tell"
NOT_WRITTEN = "not-written"
INTERNAL = "internal-error"
_LONGEST_REMEDY = 1_500  # characters: it may list what there is


class Problem(Exception):  # noqa: N818  an answer, not a failure of the server
    """A question that cannot be answered. Whatever it repeats of the question is bounded."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(short(message))
        self.code, self.message, self.remedy = code, short(message), short(remedy, _LONGEST_REMEDY)

    def to_dict(self) -> dict[str, Any]:
        return {"error": self.code, "message": self.message, "next": self.remedy}
