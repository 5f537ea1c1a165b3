"""python -m diagnosis, from benchmarks/; or python benchmarks/diagnosis

Trains every program with every bug and the healthy ones, asks steadyrun (and the other tools that are installed) what
is wrong, and writes benchmarks/diagnosis.md. Results are kept in build/diagnosis, one file per case. `--fleet second`
(or `third`, `fourth`, `fifth`) does the same with the programs of that fleet, with results and page in
build/diagnosis-second. `--half frozen` takes the frozen half of a fleet that has one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # models this small lose more to a second thread than they gain
BENCHMARKS = str(Path(__file__).resolve().parents[1])
if BENCHMARKS not in sys.path:
    sys.path.insert(0, BENCHMARKS)

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402

from diagnosis.cases import left_out  # noqa: E402
from diagnosis.fleets import FLEETS  # noqa: E402
from diagnosis.margins import write_margins  # noqa: E402
from diagnosis.page import write_page  # noqa: E402
from diagnosis.running import missing, results, stored  # noqa: E402
from diagnosis.tools import TOOLS, why_not  # noqa: E402
from diagnosis.words import line  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fleet", choices=FLEETS, default="first", help="which set of programs")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="cases by name: 'mlp-A*', 'healthy-*', '*-A27-*'"
    )
    parser.add_argument("--half", choices=("tuning", "frozen"), help="one half of a fleet that has halves")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of every bug (healthy runs have one)")
    parser.add_argument("--tools", default="steadyrun", help=f"'all', or some of steadyrun,{','.join(TOOLS)}")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--redo", action="store_true", help="train again what is there already")
    parser.add_argument("--again", action="store_true", help="ask again about runs that are there, without training")
    parser.add_argument("--page", action="store_true", help="only write the page from the results that are there")
    options = parser.parse_args()
    fleet = FLEETS[options.fleet]
    chosen = fleet.cases(options.seeds, options.only)
    if options.half is not None:
        if fleet.half_of is None:
            parser.error(f"the {fleet.name} fleet has no halves")
        chosen = [case for case in chosen if fleet.half_of(case) == options.half]
    if not chosen:
        parser.error(f"no case is called {options.only!r}")
    for program, package in left_out(chosen).items():
        print(f"{program}: left out, it needs {package} (benchmarks/diagnosis/requirements-tools.txt)")
        chosen = [case for case in chosen if case.program != program]
    tools = ["steadyrun", *TOOLS] if options.tools == "all" else options.tools.split(",")
    if fleet.name != "first" and tools != ["steadyrun"]:
        parser.error("the findings of other tools are mapped to the bugs of the first fleet only")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for tool in [] if options.page else tools:
            if reason := why_not(tool):
                progress.console.print(f"{tool}: left out, {reason}")
                continue
            todo = missing(chosen, tool, redo=options.redo or options.again)
            bar = progress.add_task(tool, total=len(todo))
            for result in results(todo, tool, options.jobs, again=options.again):
                progress.console.print(line(result), highlight=False, markup=False, soft_wrap=True)
                progress.advance(bar)
    print(f"written: {write_page(fleet)}")
    if fleet.name == "first" and not any(missing(fleet.cases(), "steadyrun", redo=False)):  # the whole of it
        print(f"written: {write_margins(stored('steadyrun'))}")


if __name__ == "__main__":
    main()
