"""What is printed on stderr when a script has ended: the report, the next commands, or why there is none."""

from __future__ import annotations

import os
import resource
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steadyrun.probes.problems import say

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.scripts.main_module import Ending, Target
    from steadyrun.scripts.recorder import ScriptRecorder
    from steadyrun.scripts.run_script import RunOptions

_LINES = 25
_MOST_RUNS = 10
_USAGE = 2  # exit code of a program that does not know an argument
_OPTIONS = {"--dir", "--declare", "--model", "--loss", "--resume", "--watch"}
_BUSY = 1.0  # seconds of CPU time in child processes: the work was done there


def print_report(target: Target, options: RunOptions, recorder: ScriptRecorder, ending: Ending) -> None:
    """Print the report of the run, or of each run in one line; on the first rank alone."""
    if _rank() != 0:
        return
    folders = _recorded(recorder)
    if not folders:
        say(why_nothing(target, recorder, ending))
        return
    lines = _one(folders[0], options.program) if len(folders) == 1 else _several(folders, options.program)
    try:
        sys.stderr.write("\n".join(lines[:_LINES]) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def why_nothing(target: Target, recorder: ScriptRecorder, ending: Ending) -> str:
    """One line: why there is no run, and what to do."""
    if not recorder.active and not recorder.taken_over_by:
        return f"{target.name}: not recorded; the reason is above"
    if ending.code == _USAGE and (ours := next((word for word in sys.argv[1:] if word in _OPTIONS), None)):
        return f"{target.name} refused its arguments: {ours} of steadyrun comes before the script. Nothing is recorded"
    if (ending.code != 0 or ending.interrupted) and not recorder.stepped:
        return f"{target.name} ended before its first optimizer step (exit code {ending.code}): nothing is recorded"
    if recorder.stepped:
        return f"{target.name} made optimizer steps, but no module holds their parameters: nothing is recorded"
    if _children_worked():
        return (
            f"{target.name} did its work in child processes, which are not recorded: call steadyrun.record in the "
            "function that they run, or start each of them with steadyrun, as torchrun -m steadyrun run SCRIPT does"
        )
    if "torch" not in sys.modules:
        return f"{target.name} never imported torch: nothing is recorded; steadyrun.record takes numbers of any program"
    return f"{target.name} made no optimizer step of torch: nothing is recorded"


def _recorded(recorder: ScriptRecorder) -> list[Path]:
    """Our runs, and those that the script or a framework's callback recorded itself."""
    module = sys.modules.get("steadyrun.recording.record")
    everything: list[Path] = [] if module is None else module.recorded_folders
    ours = recorder.folders
    return [
        folder
        for folder in everything
        if (folder / "manifest.json").exists() and (folder in ours or recorder.taken_over_by)
    ]


def _one(folder: Path, program: str) -> list[str]:
    from steadyrun.report.report import check
    from steadyrun.report.terminal import plain

    shown = shlex.quote(_short(folder))
    report = check(_short(folder))
    last = [f"dashboard: {program} dashboard {shown}", *_replay(report, shown, program)]
    lines = [line.rstrip() for line in plain(report, program=program).splitlines()]
    room = _LINES - len(last)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"  … the whole report: {program} check {shown}"]
    return [*lines, *last]


def _replay(report: Report, shown: str, program: str) -> list[str]:
    """The command that finds the cause of a captured incident, which needs the script's objects from a function."""
    if any(not incident.replay and not incident.missing for incident in report.incidents):
        factory = "--factory FILE.py:FUNCTION"
        return [f"replay:    {program} replay {shown} {factory}  # the function returns a steadyrun.Task"]
    return []


def _several(folders: list[Path], program: str) -> list[str]:
    from steadyrun.report.report import check
    from steadyrun.report.terminal import verdict_line

    lines = [f"the script trained {len(folders)} times; one run each:"]
    for folder in folders[:_MOST_RUNS]:
        shown = _short(folder)
        lines += [f"  {verdict_line(check(shown))}", f"    {program} check {shlex.quote(shown)}"]
    if len(folders) > _MOST_RUNS:
        lines.append(f"  {len(folders) - _MOST_RUNS} more in {_short(folders[0].parent)}")
    return lines


def _short(folder: Path) -> str:
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith("..") else relative


def _rank() -> int:
    module = sys.modules.get("steadyrun.recording.record")
    if module is not None:
        return int(module.own_rank())
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdigit() else 0


def _children_worked() -> bool:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime > _BUSY
