"""Several runs of a log or folder: each checked, one line per run, and the worst exit code."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass

from steadyrun.cli.log_input import LogRun
from steadyrun.cli.messages import as_typed, out, say
from steadyrun.questions.form import FAULT, SUSPECT
from steadyrun.report import phrases
from steadyrun.report.file_formats import document, dumps
from steadyrun.report.report import CANNOT, EXIT_CODES, HEALTHY, Report

_BEST_FIRST = (HEALTHY, CANNOT, SUSPECT, FAULT)
_GIVEN_UP = 5  # points: with fewer no question about a curve has an answer, so such a start hides no fault


@dataclass(frozen=True)
class Judged:
    """One run of a log, and its report; None if it could not be read."""

    run: LogRun
    report: Report | None

    @property
    def verdict(self) -> str:
        """The verdict; a run that could not be read is not known to be healthy."""
        return CANNOT if self.report is None else self.report.verdict

    @property
    def given_up(self) -> bool:
        """Whether it is an abandoned start with too few points to check."""
        return self.report is not None and self.verdict == CANNOT and 0 < self.run.points < _GIVEN_UP


def worst(judged: list[Judged]) -> Judged:
    """The first run with the worst verdict; abandoned starts count only if there are no other runs."""
    counted = [each for each in judged if not each.given_up] or judged
    return max(counted, key=lambda each: (_BEST_FIRST.index(each.verdict), -each.run.number))


def exit_code(judged: list[Judged]) -> int:
    return EXIT_CODES[worst(judged).verdict]


def show(form: str, judged: list[Judged], given: str) -> None:
    """Print a line per run and how to show one of them; in JSON one object per line."""
    if form == "json":
        out("".join(_json(each) for each in judged))
        return
    names = max(len(each.run.name) for each in judged)
    steps = max(len(_steps(each)) for each in judged)
    digits = len(str(judged[-1].run.number))
    lines = [f"{phrases.one_line(given)}: {len(judged)} runs: {_summary(judged)}"]
    for each in judged:
        name = phrases.one_line(each.run.name)
        lines.append(f"  {each.run.number:{digits}}  {name:{names}}  {_steps(each):{steps}}  {_sentence(each)}")
    out("\n".join(lines) + "\n")
    number = worst(judged).run.number
    say(f"One of them: {as_typed('steadyrun')} check {shlex.quote(given)} --run {number}")


def _summary(judged: list[Judged]) -> str:
    """The number of runs per verdict, the worst first."""
    counts = Counter(each.verdict for each in judged)
    worst_first = [verdict for verdict in reversed(_BEST_FIRST) if counts[verdict]]
    return ", ".join(f"{counts[each]} {_plural(each) if counts[each] > 1 else each}" for each in worst_first)


def _plural(verdict: str) -> str:
    return f"{verdict}s" if verdict in (FAULT, SUSPECT) else verdict


def _steps(judged: Judged) -> str:
    last = None if judged.report is None else judged.report.last_step
    return "no steps" if last is None else f"last step {last}"


def _sentence(judged: Judged) -> str:
    if judged.report is None:
        return phrases.one_line(f"? not read: {judged.run.problem}")
    return f"{phrases.SYMBOLS[judged.verdict]} {phrases.verdict(judged.report)}"


def _json(judged: Judged) -> str:
    about = {"number": judged.run.number, "name": judged.run.name, "source": judged.run.source}
    found = {"problem": judged.run.problem} if judged.report is None else document(judged.report)
    return dumps(about | found, indent=None) + "\n"
