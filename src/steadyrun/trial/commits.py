"""Find the commit that made a program train worse: `git bisect` with short twins of each commit."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from steadyrun.errors import UsageError
from steadyrun.text import counted, shown
from steadyrun.trial.commit_checkout import Commit, Repository, Worktree
from steadyrun.trial.commit_search import BAD, FOUND, GOOD, SKIPPED, CommitSearch, TriedCommit, commit_line
from steadyrun.trial.commit_twins import Answer, CommitProgram, TimeUp, train_commit
from steadyrun.trial.rounds import SEEDS
from steadyrun.trial.statistics import Effect, effect, seeds_needed, spread
from steadyrun.trial.trial import BUDGET
from steadyrun.trial.twin_table import SAME
from steadyrun.trial.verdict import UNDECIDED

_USED = 0.7  # fraction of the budget for training; the rest is for starting processes and building programs
_STARTING = 6.0  # seconds before a commit's process trains, mostly the import of torch

OnCommit = Callable[[int, int, str, str], None]
"""Called with the numbers of tried and expected commits, the current commit, and the progress in words."""


def parse_range(text: str) -> tuple[str, str]:
    """The two ends of "GOOD..BAD"."""
    good, dots, bad = text.partition("..")
    if not dots or not good.strip() or not bad.strip() or bad.startswith(".") or ".." in bad:
        raise UsageError(f"--commits must look like GOOD..BAD, such as v1.2..HEAD, not {text!r}")
    return good.strip(), bad.strip()


def bisect_commits(
    factory: str,
    good: str,
    bad: str,
    *,
    config: Mapping[str, Any] | None = None,
    steps: int | None = None,
    seeds: int = SEEDS,
    budget: float = BUDGET,
    on: str | None = None,
    arguments: Sequence[str] = (),
    on_commit: OnCommit | None = None,
) -> CommitSearch:
    """Find the commit from which on the twins of a program end like those of BAD instead of GOOD.

    `factory` is "module:function" or "path/to/file.py:function" of a program in a git repository. The search checks
    each commit out in a temporary worktree and trains it in a new process; the user's files, index and HEAD stay
    unchanged. Ignored files, such as data, are linked into the worktree. `budget` is in seconds. `on` is None or
    "local:N", which trains N seeds at a time. `arguments` are those of the script. Ctrl-C ends the search; the result
    then contains the remaining commits.
    """
    if seeds < 2:
        raise UsageError("a search through commits needs at least 2 seeds to measure the noise; give --seeds 3")
    if budget <= 0:
        raise UsageError("the budget must be above 0 seconds")
    repository, program = _located(factory, dict(config or {}), tuple(arguments), _processes(on, seeds))
    first, last = repository.commit(good), repository.commit(bad)
    _check_order(repository, first, last, good, bad)
    began = time.monotonic()
    search = _Search(repository, program, first, last, seeds, steps, began + budget, on_commit or (lambda *_: None))
    with repository.worktree(first) as tree:
        try:
            search.run(tree)
        except KeyboardInterrupt:
            search.interrupted = True
        except TimeUp:
            search.time_is_up = True
        search.left = tree.candidates() or search.between
        search.links = tree.links
    return search.result(factory, time.monotonic() - began)


# -- the program in its repository ------------------------------------------------------------------


def _located(
    factory: str, config: dict[str, Any], arguments: tuple[str, ...], processes: int
) -> tuple[Repository, CommitProgram]:
    """The repository, and the program relative to it."""
    source, _, function = factory.rpartition(":")
    if not source or not function:
        raise UsageError(f"trial's argument must look like module:function or file.py:function, not {factory!r}")
    here = Path.cwd().resolve()
    if not source.endswith(".py"):
        repository = Repository(here)
        return repository, CommitProgram(
            repository.top, here.relative_to(repository.top), factory, config, arguments, processes
        )
    given = Path(source).expanduser()
    file = Path(os.path.normpath(here / given))
    repository = Repository(file.parent if file.parent.is_dir() else here)
    if not file.exists() and (repository.top / given).exists():
        file = repository.top / given
    file = file.parent.resolve() / file.name
    if not file.is_relative_to(repository.top):
        raise UsageError(f"{source} is outside the repository {repository.top}; give a file that git tracks")
    folder = here.relative_to(repository.top) if here.is_relative_to(repository.top) else Path()
    named = f"{file.relative_to(repository.top)}:{function}"
    return repository, CommitProgram(repository.top, folder, named, config, arguments, processes)


def _processes(on: str | None, seeds: int) -> int:
    if on is None or on == "here":
        return 1
    kind, _, detail = on.partition(":") if isinstance(on, str) else ("", "", "")
    if kind != "local" or (detail and (not detail.isdecimal() or int(detail) < 1)):
        raise UsageError(f"a search through commits runs on here, local or local:N, not {on!r}")
    return min(seeds, int(detail) if detail else os.cpu_count() or 1)


def _check_order(repository: Repository, first: Commit, last: Commit, good: str, bad: str) -> None:
    if first == last:
        raise UsageError(f"{good} and {bad} are the same commit {first.short}; give two different commits")
    if repository.is_ancestor(first, last):
        return
    if repository.is_ancestor(last, first):
        raise UsageError(f"{good} is newer than {bad}; give the older commit first, as in {bad}..{good}")
    raise UsageError(f"{good} is not an ancestor of {bad}; give an ancestor of {bad} as GOOD")


# -- the search -------------------------------------------------------------------------------------


@dataclass
class _Search:
    repository: Repository
    program: CommitProgram
    first: Commit
    last: Commit
    seeds: int
    steps: int | None
    deadline: float
    on_commit: OnCommit
    tried: list[TriedCommit] = field(default_factory=list)
    split: str = ""
    left: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    time_is_up: bool = False
    interrupted: bool = False
    undecided: tuple[str, str] | None = None  # why, and what would decide
    ends: Ends | None = None

    def __post_init__(self) -> None:
        self.between = self.repository.between(self.first, self.last)
        self.uncommitted = self.repository.uncommitted()

    @property
    def expected(self) -> int:
        """The number of commits to try, including both ends, if none is skipped."""
        return 2 + math.ceil(math.log2(max(1, len(self.between))))

    def run(self, tree: Worktree) -> None:
        """Try both ends, then the commits that `git bisect` selects."""
        good = self._end(tree, self.first, GOOD)
        tree.checkout(self.last)
        bad = self._end(tree, self.last, BAD)
        self.ends = ends = Ends(good, bad)
        self.undecided = ends.undecided
        if self.undecided:
            return
        hashes, head = {self.first.hash, self.last.hash}, tree.start(self.first, self.last)
        while head not in hashes:
            hashes.add(head)
            if time.monotonic() > self.deadline:
                raise TimeUp
            commit = self.repository.described([head])[0]
            tried = ends.judged(self._trained(tree, commit))
            self.tried.append(tried)
            head = tree.judge(tried.verdict)
            self.left = tree.candidates()

    def _end(self, tree: Worktree, commit: Commit, verdict: str) -> TriedCommit:
        tried = self._trained(tree, commit)
        if not tried.ends:
            raise UsageError(
                f"the program of {commit_line(commit)}, the {verdict} end, cannot be measured: {tried.why}"
            )
        self.tried.append(replace(tried, verdict=verdict))
        return self.tried[-1]

    def _trained(self, tree: Worktree, commit: Commit) -> TriedCommit:
        known = f"{counted(len(self.left or self.between), 'commit')} left"
        self.on_commit(len(self.tried), max(self.expected, len(self.tried) + 1), str(commit), known)
        answer = train_commit(
            self.program, tree.folder, tree.scratch, self.seeds, self.steps, self._seconds_each(), self.deadline
        )
        if answer.elsewhere:
            raise UsageError(
                f"{self.program.factory} is imported from {answer.elsewhere}, outside the repository "
                f"{self.repository.top}; go to the folder of the program, or give its file"
            )
        self.steps = self.steps or answer.steps or None
        return self._read(commit, answer)

    def _seconds_each(self) -> float:
        """Seconds per twin that let the expected number of commits fit the budget."""
        budget = self.deadline - time.monotonic()
        whole = _USED * budget - self.expected * _STARTING
        return max(whole, 0.1 * budget) / self.expected / math.ceil(self.seeds / self.program.processes)

    def _read(self, commit: Commit, answer: Answer) -> TriedCommit:
        """The losses of an answer, on the same split for all commits."""
        if answer.failure:
            return TriedCommit(commit, (), why=answer.failure)
        measured = [twin for twin in answer.twins if twin["ends"]]
        if not self.split and measured:
            self.split = str(measured[0]["measured_on"])
        raised = next((str(twin["raised"]) for twin in answer.twins if twin["raised"]), "")
        if measured and not any(self.split in twin["ends"] for twin in measured):
            return TriedCommit(commit, (), why=f"this commit has no {self.split} data to measure on")
        ends = [math.inf if twin["raised"] else float(twin["ends"].get(self.split, math.inf)) for twin in answer.twins]
        starts = [float(twin["starts"][self.split]) for twin in measured if self.split in twin["starts"]]
        why = f"raised {raised}" if raised else "" if all(map(math.isfinite, ends)) else "the loss is not finite"
        finite = tuple(end if math.isfinite(end) else math.inf for end in ends)
        return TriedCommit(commit, finite, float(np.mean(starts)) if starts else math.nan, why=why)

    # -- the answer --------------------------------------------------------------------------------

    def result(self, factory: str, seconds: float) -> CommitSearch:
        candidates = () if self.undecided else tuple(self.repository.described(self.left))
        kind, message, more = self._answer(candidates)
        found = candidates[0] if len(candidates) == 1 and self._ended else None
        return CommitSearch(
            program=factory,
            good=self.first,
            bad=self.last,
            kind=kind,
            message=message,
            more=more,
            candidates=candidates,
            tried=tuple(self.tried),
            commits=len(self.between),
            diff="" if found is None else self.repository.diff(found),
            notes=tuple(self._notes()),
            steps=self.steps or 0,
            seeds=self.seeds,
            split=self.split,
            seconds=seconds,
            interrupted=self.interrupted,
        )

    @property
    def _ended(self) -> bool:
        return self.undecided is None and not self.time_is_up and not self.interrupted

    def _answer(self, candidates: tuple[Commit, ...]) -> tuple[str, str, str]:
        if self.undecided is not None:
            return (UNDECIDED, *self.undecided)
        if not self._ended:
            why = "Ctrl-C stopped the search" if self.interrupted else "The budget ended"
            rest = f"{why} with {counted(len(candidates), 'commit')} left."
            return UNDECIDED, rest, "give a larger --budget" if self.time_is_up else "run the same command again"
        if len(candidates) > 1:
            skipped = sum(each.verdict == SKIPPED for each in self.tried)
            message = f"{counted(skipped, 'commit')} could not be judged, so {len(candidates)} commits are left."
            return (
                UNDECIDED,
                message,
                "give GOOD and BAD commits between which the program always runs",
            )
        assert self.ends is not None
        tried = {each.commit.hash: each for each in self.tried}
        guilty, parents = tried[candidates[0].hash], self.repository.parents(candidates[0])
        unsure = [each for each in (guilty, *map(tried.get, parents)) if each is not None and each.unsure]
        which = f"{commit_line(candidates[0])}: {self.ends.compared(guilty)}"
        if unsure:
            needed = max(self.ends.seeds_needed(each) for each in unsure)
            return UNDECIDED, f"Most likely {which}", f"give --seeds {needed}"
        return FOUND, which, ""

    def _notes(self) -> list[str]:
        notes = []
        if self.uncommitted:
            files = counted(len(self.uncommitted), "file")
            notes.append(f"{files} with uncommitted changes: the search does not try them.")
        if self.links:
            names = ", ".join(self.links[:3]) + (" …" if len(self.links) > 3 else "")
            notes.append(f"git ignores {names}: all commits used the current files.")
        return notes


# -- good or bad ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """The two ends of a search, which decide about the commits between them."""

    good: TriedCommit
    bad: TriedCommit

    @property
    def undecided(self) -> tuple[str, str] | None:
        """Why the ends do not differ enough, and what would decide; None if they do."""
        if self.good.fails:
            return f"The twins of GOOD fail: {self.good.why}.", "give a GOOD commit whose program trains"
        if self.bad.fails:
            return None
        found = self._beyond(self.bad.ends, self.good.ends)
        if found is None:
            return "Too few seeds end with a finite loss at both ends.", "give more --seeds"
        if found.is_sure:
            return None
        message = (
            f"GOOD ends at {self.good.words} and BAD at {self.bad.words}. The difference ({shown(found.mean)}, "
            f"{shown(found.low)} to {shown(found.high)}) is not larger than the spread between seeds."
        )
        needed = seeds_needed(found)
        return message, f"give --seeds {needed} to resolve this difference" if needed else "give more --steps"

    def judged(self, tried: TriedCommit) -> TriedCommit:
        """A commit with its verdict: bad if its mean is closer to that of BAD."""
        if not tried.ends:
            return replace(tried, verdict=SKIPPED)
        if tried.fails:
            return replace(tried, verdict=BAD if self.bad.fails else SKIPPED)
        if self.bad.fails:
            return replace(tried, verdict=GOOD)
        found = self._from_middle(tried)
        if found is None:
            return replace(tried, verdict=SKIPPED, why="too few of its twins end with a finite loss")
        apart = self._beyond(self.bad.ends, self.good.ends)
        verdict = BAD if apart is not None and found.mean * apart.mean > 0 else GOOD
        return replace(tried, verdict=verdict, unsure=not found.is_sure)

    def seeds_needed(self, tried: TriedCommit) -> int:
        found = self._from_middle(tried)
        return (found and seeds_needed(found)) or 2 * len(tried.ends)

    def compared(self, guilty: TriedCommit) -> str:
        """The losses of a commit and of GOOD, in a sentence."""
        if guilty.fails:
            return f"its twins fail ({guilty.why}), those of GOOD end at {self.good.words}."
        better = " (the commit lowered it)" if guilty.mean < self.good.mean else ""
        return f"the loss ends at {guilty.words}, at GOOD it ends at {self.good.words}{better}."

    def _from_middle(self, tried: TriedCommit) -> Effect | None:
        """The distance of a commit from halfway between the ends, seed by seed."""
        pairs = zip(self.good.ends, self.bad.ends, strict=True)
        return self._beyond(tried.ends, [(self._capped(a) + self._capped(b)) / 2 for a, b in pairs])

    def _beyond(self, ends: Sequence[float], others: Sequence[float]) -> Effect | None:
        """How far twins end above others of the same seeds; None if fewer than two are comparable."""
        pairs = [
            (self._capped(one), self._capped(other))
            for one, other in zip(ends, others, strict=True)
            if math.isfinite(one) and math.isfinite(other)
        ]
        if len(pairs) < 2:
            return None
        mine, theirs = [one for one, _ in pairs], [other for _, other in pairs]
        least = SAME * max(map(abs, (*mine, *theirs, self._fall)))
        return effect(mine, theirs, max(spread(mine), spread(theirs), least), 1.0)

    @property
    def _fall(self) -> float:
        """How far the loss of GOOD falls; 0 if it does not."""
        fall = self.good.start - self.good.mean
        return fall if fall > 0 else 0.0

    def _capped(self, loss: float) -> float:
        """The loss, capped at a rise as large as GOOD's fall, because the extent of a divergence is chance."""
        return min(loss, self.good.start + self._fall) if self._fall and math.isfinite(loss) else loss
