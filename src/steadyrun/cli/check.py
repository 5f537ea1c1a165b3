"""`steadyrun check`: find what is wrong with a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steadyrun.cli import follow as following
from steadyrun.cli import output
from steadyrun.cli.log_input import (
    DeclareOption,
    FormatOption,
    LogOptions,
    LogRun,
    MapOption,
    RunOption,
    is_log,
    log_runs,
    run_folders,
    run_of,
)
from steadyrun.cli.messages import as_typed, fail, no_run, say
from steadyrun.errors import LogError, RunDirectoryError, SteadyrunError, UsageError

if TYPE_CHECKING:
    from steadyrun.report import Report
    from steadyrun.report.comparison import Comparison
    from steadyrun.trees.walker import Changes


_SUSPECT = 4  # the exit code


class FailOn(StrEnum):
    """The mildest grade that makes a check fail."""

    fault = "fault"
    suspect = "suspect"


def check(
    run: Annotated[str, typer.Argument(help="The run directory, a log of another tool, or a folder of either.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (docs/report.md).")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="JUnit XML: one test case per question.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown for a comment.")] = False,
    go_on: Annotated[bool, typer.Option("--all", help="Go on after the first fault, and list every question.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show every question with its answer, and every limit of the finding."),
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(metavar="OLD", help="Compare with this earlier run: did the fix work? Implies --all."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=NUMBER", help="Change a threshold, such as C3.1.high=8; repeatable."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Check again whenever the run has new data, until it ends.")
    ] = False,
    until_fault: Annotated[
        bool, typer.Option("--until-fault", help="Follow the run, and exit with 1 at the first fault.")
    ] = False,
    fail_on: Annotated[
        FailOn, typer.Option(help="The mildest finding that fails: fault exits with 0 on a suspect, suspect with 4.")
    ] = FailOn.suspect,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between two checks with --follow.")] = 1.0,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that --follow waits for a run to start.")] = 60.0,
    flight_recorder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Traces of torch's Flight Recorder in JSON, one per rank: who is behind in which collective.",
        ),
    ] = None,
    log_format: FormatOption = None,
    roles: MapOption = None,
    declarations: DeclareOption = None,
    number: RunOption = None,
) -> None:
    """Find the first thing that is wrong with a run, and how to fix it.

    \b
    Examples:
      steadyrun check experiments/healthy
      steadyrun check experiments/no-warmup --all
      steadyrun check experiments/fixed --after experiments/no-warmup
      steadyrun check experiments/mine --set C3.1.high=8
      steadyrun check experiments/mine --json | jq .leaf.fix
      steadyrun check outputs/trainer_state.json
      steadyrun check metrics.csv --map loss=train/ce --declare vocab_size=50257
      steadyrun check train.log --run 2
      steadyrun check experiments/mine --follow --until-fault

    The report starts with the verdict: fault (proved), suspect (likely, with
    the experiment that decides), cannot tell (and what to record) or healthy
    (every recorded vital sign is green). Then come the evidence, the fix and
    the next command. It works on finished, crashed, killed and running runs,
    and writes report.json to the run directory.

    A log of another tool (see steadyrun import) is imported for this check
    only. If a log or folder holds several runs, each gets one line, --run
    shows one of them, the exit code is the worst, and --json prints one
    object per line.

    Thresholds can also be set in steadyrun.toml (table thresholds) or
    pyproject.toml (tool.steadyrun.thresholds); docs/thresholds.md lists
    them all.

    \b
    Exit codes: 0 healthy, 1 fault found, 2 bad input or no readable run,
    3 cannot tell, 4 suspect, 130 stopped with Ctrl-C.
    """
    form = output.chosen(as_json, junit, markdown)
    followed = follow or until_fault
    given = LogOptions.of(log_format, roles, declarations, number)
    try:
        with ExitStack() as stack:
            older = None if after is None else stack.enter_context(run_of(after, given))
            logged = not followed and is_log(run)
            folders = [] if followed else run_folders(run)
            _check_given(replace(given, run=None) if folders else given, not logged and older == after)
            checking = _Checking(run, form, _limits(assignments or []), go_on, older, verbose, flight_recorder)
            if logged:
                code = checking.log(given)
            elif folders:
                code = checking.folder(folders, given.run)
            else:
                code = (checking.follow(interval, wait, until_fault) if followed else checking.once()).exit_code
    except RunDirectoryError as problem:
        no_run(problem, "check", *([] if after is None else [after]), run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} check --help")
    except KeyboardInterrupt:
        say("stopped with Ctrl-C")
        raise typer.Exit(130) from None
    raise typer.Exit(0 if fail_on is FailOn.fault and code == _SUSPECT else code)


def _check_given(given: LogOptions, no_log: bool) -> None:
    if no_log and given != LogOptions():
        raise UsageError(
            "--format, --map, --declare and --run apply only to logs of other tools, and no log is given: leave them "
            "out"
        )


def _no_run(path: str, count: int, number: int | None) -> LogError:
    runs = "1 run" if count == 1 else f"{count} runs"
    return LogError(f"{path} holds {runs}, so --run {number} does not exist. Leave --run out to list them.")


def _offer_replay(report: Report) -> None:
    """Suggest to replay an incident that was captured and not replayed yet."""
    if any(not incident.replay and not incident.missing for incident in report.incidents):
        say(f"find the cause by replay: {as_typed('steadyrun')} replay {shlex.quote(report.run)}")


def _limits(assignments: list[str]) -> Changes:
    from steadyrun.report import limits as thresholds

    return thresholds.changes(thresholds.parsed(assignments), Path.cwd())


@dataclass(frozen=True)
class _Checking:
    """One invocation: the run, the output form, the limits, and the run to compare with."""

    run: str
    form: str
    limits: Changes
    go_on: bool
    after: str | None
    verbose: bool = False
    flight_recorder: Path | None = None

    def log(self, given: LogOptions) -> int:
        """Check every run of a log, or the chosen run; return the exit code."""
        from steadyrun.cli.run_list import Judged, exit_code, show

        compared = self._comparing()
        judged = []
        for each in log_runs(self.run, given):
            alone = self.after is not None and each.number == 1  # --run may be meant for the log to compare with
            if given.run in (None, each.number) or alone:
                report = (
                    None if each.problem else replace(self._walk(each.path), run=self.run, again=self._again(given))
                )
                judged.append(Judged(each, report))
        if each.number > 1 and given.run is not None:
            judged = [one for one in judged if one.run.number == given.run]
        if not judged:
            raise _no_run(self.run, each.number, given.run)
        only = judged[0].report if len(judged) == 1 else None
        if only is not None:
            say(f"{judged[0].run.source} is a log ({judged[0].run.title}); it is imported for this check only")
            for line in judged[0].run.odd:
                say(f"  unusual: {line}")
            output.tell(self.form, only, compared(only))
            return only.exit_code
        self._check_several(len(judged))
        show(self.form, judged, self.run)
        return exit_code(judged)

    def folder(self, runs: list[Path], number: int | None) -> int:
        """Check every run of a folder of run directories, or the chosen run; return the exit code."""
        from steadyrun.cli.run_list import Judged, exit_code, show

        if number is not None and number > len(runs):
            raise _no_run(self.run, len(runs), number)
        if number is not None or len(runs) == 1:
            return replace(self, run=str(runs[(number or 1) - 1])).once().exit_code
        self._check_several(len(runs))
        folder = Path(self.run).expanduser()
        judged = []
        for each, path in enumerate(runs, start=1):
            about = LogRun(each, str(path.relative_to(folder)), str(path), str(path))
            try:
                judged.append(Judged(about, self._walk(str(path))))
            except RunDirectoryError as problem:
                judged.append(Judged(replace(about, problem=str(problem)), None))
        show(self.form, judged, self.run)
        return exit_code(judged)

    def _check_several(self, count: int) -> None:
        if self.form in {"junit", "markdown"} or self.after is not None:
            option = "--after" if self.after is not None else f"--{self.form}"
            raise UsageError(f"{self.run} holds {count} runs, and {option} takes a single run: choose it with --run N")

    def _again(self, given: LogOptions) -> str:
        """The next command once a run chosen from a log is fixed; "" if the log is the run."""
        return "" if given.run is None else f"check NEW_RUN --after {shlex.quote(self.run)} --run {given.run}"

    def once(self) -> Report:
        compared = self._comparing()
        report = self._walk(self.run)
        output.tell(self.form, report, compared(report))
        output.leave(report, compared(report))
        if self.form == "text" and report.leaf is not None and sys.stderr.isatty():
            _offer_replay(report)
        return report

    def follow(self, interval: float, wait: float, until_fault: bool) -> Report:
        """Print every change, and the whole report at the end."""
        compared = self._comparing()
        printed: Report | None = None
        for report in following.follow(self.run, lambda: self._walk(self.run), interval=interval, wait=wait):
            if printed is None or not following.same_standing(report, printed):
                output.tell_change(self.form, report, printed, compared(report))
                output.leave(report, compared(report))
                printed = report
            if until_fault and report.leaf is not None:
                break
        if self.form != "json" or report is not printed:
            output.tell_end(self.form, report, compared(report))
            output.leave(report, compared(report))
        return report

    def _walk(self, run: str) -> Report:
        from steadyrun.report.report import check_with

        go_on = self.go_on or self.after is not None
        report = check_with(run, self.limits, go_on=go_on, flight_recorder=self.flight_recorder)
        return replace(report, whole=self.go_on, verbose=self.verbose)

    def _comparing(self) -> Callable[[Report], Comparison | None]:
        from steadyrun.report.comparison import compare

        old = None if self.after is None else self._walk(self.after)
        return lambda report: None if old is None else compare(report, old)
