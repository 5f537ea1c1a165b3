"""What all ways outward have in common, and what they are told of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.records import Event
from steadyrun.store.tail import TableRow


@dataclass(frozen=True)
class About:
    """The run as a sink sees it: `kept` is what it kept in an earlier attempt, `keep` keeps something for a later."""

    root: Path
    config: dict[str, Any]
    attempt: int
    kept: str | None
    keep: Callable[[str], None]


class Sink:
    """One way outward.

    Every call comes from one thread that does nothing else. Any of them may raise (it is called again, so what was done
    must not be done twice), wait, or never come back.
    """

    name = ""

    def open(self, about: About) -> None:
        """Called first."""

    def seam(self, step: int) -> None:
        """This attempt goes on at `step`: what an earlier one sent of later steps is out of date."""

    def scalars(self, row: TableRow) -> None:
        """Take the values of a step."""

    def finding(self, event: Event) -> None:
        """Take a finding; see `words.FINDINGS`."""

    def flush(self) -> None:
        """All that is new was handed over: send what was held back. With no news it is called, too."""

    def close(self, state: str) -> None:
        """The run has ended in this state, and everything was handed over."""


class Own(Sink):
    """A user's own object: `scalars(step, values)`, `finding(event)`, and `close()` where it has one."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.name = f"your {type(given).__name__}"

    def scalars(self, row: TableRow) -> None:
        self._given.scalars(row.step, row.values)

    def finding(self, event: Event) -> None:
        self._given.finding(event)

    def close(self, state: str) -> None:  # noqa: ARG002
        if callable(close := getattr(self._given, "close", None)):
            close()
