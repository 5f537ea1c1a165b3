"""The result of a search through commits: the commit, the losses, and its text and JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.text import counted, shown
from steadyrun.trial.commit_checkout import Commit
from steadyrun.trial.statistics import spread
from steadyrun.trial.verdict import UNDECIDED

FOUND = "found"
GOOD, BAD, SKIPPED = "good", "bad", "skip"
EXIT_CODES = {FOUND: 1, UNDECIDED: 3}
_DIFF_LINES = 60  # of the diff in a terminal
_MOST_DIFF = 200_000  # characters of the diff in JSON
_MOST_CANDIDATES = 12
_SUBJECT = 60  # characters


@dataclass(frozen=True)
class TriedCommit:
    """One commit and the last losses of its twins, one per seed; infinity for a twin that fails."""

    commit: Commit
    ends: tuple[float, ...]
    start: float = math.nan  # the mean of the first losses
    verdict: str = ""  # good, bad or skip
    why: str = ""  # why the commit was skipped or its twins failed
    unsure: bool = False  # the verdict is not certain

    @property
    def finite(self) -> list[float]:
        return [end for end in self.ends if math.isfinite(end)]

    @property
    def fails(self) -> bool:
        """Whether most twins raise or end with a non-finite loss."""
        return 2 * len(self.finite) < len(self.ends)

    @property
    def mean(self) -> float:
        return float(np.mean(self.finite)) if self.finite else math.nan

    @property
    def words(self) -> str:
        """Mean and standard deviation of the last losses, or how it fails."""
        if self.fails or not self.finite:
            return "no twin" if not self.ends else self.why or "not finite"
        return f"{shown(self.mean)} ± {shown(spread(self.finite))}"

    def to_dict(self) -> dict[str, Any]:
        named = _named(self.commit) | {"verdict": self.verdict, "unsure": self.unsure, "why": self.why}
        return named | {"losses": list(self.ends), "mean": self.mean, "deviation": spread(self.finite)}


@dataclass(frozen=True)
class CommitSearch:
    """The result of a search through commits. Printing it shows the answer, the losses and the diff."""

    program: str
    good: Commit
    bad: Commit
    kind: str  # found or undecided
    message: str
    more: str = ""  # what would decide
    candidates: tuple[Commit, ...] = ()  # possible first bad commits, newest first; one if found
    tried: tuple[TriedCommit, ...] = ()  # the two ends first
    commits: int = 0  # between the ends, including BAD
    diff: str = ""
    notes: tuple[str, ...] = ()
    steps: int = 0
    seeds: int = 0
    split: str = ""
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def commit(self) -> Commit | None:
        """The first bad commit, if found."""
        return self.candidates[0] if self.kind == FOUND else None

    @property
    def exit_code(self) -> int:
        """1 if a commit is found, 3 if the search does not decide."""
        return EXIT_CODES[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/trial.md)."""
        found = self.commit
        return {
            "program": self.program,
            "good": _named(self.good),
            "bad": _named(self.bad),
            "verdict": self.kind,
            "message": self.message,
            "would_decide": self.more,
            "commit": None if found is None else _named(found),
            "candidates": [_named(commit) for commit in self.candidates],
            "diff": self.diff[:_MOST_DIFF],
            "tried": [each.to_dict() for each in self.tried],
            "commits": self.commits,
            "notes": list(self.notes),
            "steps": self.steps,
            "seeds": self.seeds,
            "measured_on": self.split,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 1),
        }

    # -- text --------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<steadyrun search of {counted(self.commits, 'commit')} of {self.program!r}, {self.kind}>"

    def lines(self, *, everything: bool = False) -> list[str]:
        """The answer, the commits that were tried with their losses, the diff; `everything` shows all of the diff."""
        head = "✗ found" if self.kind == FOUND else "? undecided"
        lines = [f"{head}: {self.message}"]
        lines += [f"  to decide: {self.more}."] if self.more else []
        lines += self._candidates(everything) if self.kind != FOUND and self.candidates else []
        lines += ["", self._tried()]
        lines += [_line(each) for each in self.tried]
        lines += [f"  {note}" for note in self.notes]
        return lines + self._diff(everything)

    def _tried(self) -> str:
        stopped = ", stopped with Ctrl-C" if self.interrupted else ""
        tried = f"{self.program}: tried {len(self.tried)} of {counted(self.commits + 1, 'commit')}"
        twins = f"{counted(self.seeds, 'seed')} of {counted(self.steps, 'step')} each"
        return f"{tried}, {twins}, in {self.seconds:.0f} s{stopped}"

    def _candidates(self, whole: bool) -> list[str]:
        most = len(self.candidates) if whole else _MOST_CANDIDATES
        lines = [f"  possible {'commits' if len(self.candidates) > 1 else 'commit'}:"]
        lines += [f"    {_titled(commit)}" for commit in self.candidates[:most]]
        hidden = len(self.candidates) - most
        return [*lines, f"    and {hidden} more (--verbose)"] if hidden > 0 else lines

    def _diff(self, whole: bool) -> list[str]:
        every = self.diff.splitlines()
        lines = every if whole else every[:_DIFF_LINES]
        hidden = len(every) - len(lines)
        rest = [f"… {counted(hidden, 'more line')}: git show {self.candidates[0].short}"] if hidden else []
        return ["", *lines, *rest] if every else []


def commit_line(commit: Commit) -> str:
    """A commit in a sentence: hash, subject, date, author."""
    return f'{commit.short} "{_cut(commit.subject)}" ({commit.date[:10]}, {commit.author})'


def _titled(commit: Commit) -> str:
    return f"{commit.short}  {commit.date[:10]}  {_cut(commit.subject)}"


def _cut(text: str) -> str:
    return text if len(text) <= _SUBJECT else f"{text[: _SUBJECT - 1]}…"


def _line(tried: TriedCommit) -> str:
    word = {GOOD: "good", BAD: "bad", SKIPPED: "skipped"}.get(tried.verdict, "")
    loss = tried.why if tried.verdict == SKIPPED and not tried.finite else tried.words
    unsure = " (not certain)" if tried.unsure else ""
    return f"  {tried.commit.short}  {word:<7}  {_cut(tried.commit.subject):<40}  {loss}{unsure}".rstrip()


def _named(commit: Commit) -> dict[str, str]:
    return {"hash": commit.hash, "date": commit.date, "author": commit.author, "subject": commit.subject}
