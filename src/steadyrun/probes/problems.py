"""Internal errors of a run: each is reported once, its probe stops, and training goes on."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable


class Problems:
    """Collects what went wrong inside steadyrun during a run."""

    def __init__(self, write_event: Callable[..., None]) -> None:
        self._write_event = write_event
        self._reported: set[str] = set()
        self._writing = False
        self._guards: dict[tuple[str, str], _Contained] = {}  # asked for several times in every step

    def failed(self, what: str) -> bool:
        """Whether this probe has failed before."""
        return what in self._reported

    def contained(self, what: str, went_wrong: str = "could not be recorded") -> _Contained:
        """`with problems.contained("…"):` an exception in the body ends here."""
        known = self._guards.get((what, went_wrong))
        if known is None:
            known = self._guards[what, went_wrong] = _Contained(self, what, went_wrong)
        return known

    def report(self, what: str, problem: Exception, went_wrong: str = "could not be recorded") -> None:
        """Report once, on stderr and in the events, that `what` failed."""
        if what in self._reported:
            return
        self._reported.add(what)
        where = traceback.extract_tb(problem.__traceback__)[-1:]
        text = f"{type(problem).__name__}: {problem}"
        say(f"{what} {went_wrong}: {text} (reported once; training is not affected)")
        self._event("probe-failed", probe=what, why=text, where=[f"{f.name}:{f.lineno}" for f in where])

    def unavailable(self, what: str, why: str, **fields: object) -> None:
        """Record once, in the events, what cannot be measured on this model and why."""
        if what not in self._reported:
            self._reported.add(what)
            self._event("not-recorded", probe=what, why=why, **fields)

    def notice(self, kind: str, why: str, **fields: object) -> None:
        """Record once an event about how the training loop works, such as clipping after the step."""
        if kind not in self._reported:
            self._reported.add(kind)
            self._event(kind, why=why, **fields)

    def _event(self, kind: str, **fields: object) -> None:
        if self._writing:  # the event log itself is what failed
            return
        self._writing = True
        try:
            self._write_event(kind, **fields)
        except Exception as problem:
            say(f"the event {kind!r} could not be written ({problem})")
        finally:
            self._writing = False


class _Contained:
    """A context manager without state: entered several times a step, where a generator costs three times as much."""

    __slots__ = ("_problems", "_what", "_wrong")

    def __init__(self, problems: Problems, what: str, went_wrong: str) -> None:
        self._problems, self._what, self._wrong = problems, what, went_wrong

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> bool:
        if not isinstance(problem, Exception):
            return False
        self._problems.report(self._what, problem, self._wrong)
        return True


def say(message: str) -> None:
    """One line on stderr. Not `warnings.warn`: under `-W error` that would raise into the training loop."""
    try:
        sys.stderr.write(f"steadyrun: {message}\n")
    except (OSError, ValueError):
        return
