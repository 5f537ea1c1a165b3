"""Public logs that nobody here wrote: how many are read rightly, and how many judged rightly.

The logs are kept outside the repository: one folder each, with the file and a LABEL.json in which a person who had not
seen any report wrote where it comes from, what is wrong with it, and some points read off by hand. `reallogs.md` lists
repository, commit and path of each.

Read rightly: the number of runs is right, and every series that was read off by hand is there with its points and its
first and last values, in one run or in all of them one after the other. Judged rightly: a healthy log is called
healthy, a faulty one fault or suspect. If the reason is right is for a reader to say: the page shows both.

python benchmarks/reallogs.py FOLDER [FOLDER …] [--page]     folders of such folders, such as tuning and frozen
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steadyrun
from steadyrun.panels.board import RunView
from steadyrun.report import phrases
from steadyrun.report.report import Report

PAGE = Path(__file__).with_suffix(".md")
MARK = "<!-- written by reallogs.py --page -->"
WORST = ("fault", "suspect", "cannot-tell", "healthy")
GIVEN_UP = 5
_KEYS = {"repository": "repo", "why": "reason"}  # as some who label call them
ROLES = {"loss": "loss", "val_loss": "val_loss", "lr": "lr/0", "grad_norm": "grad_norm"}


@dataclass(frozen=True)
class Found:
    """One public log: its label, and what became of it."""

    name: str
    label: dict[str, Any]
    verdict: str
    answer: str
    wrong: tuple[str, ...]  # of the reading

    @property
    def judged(self) -> bool:
        wanted = {"healthy": {"healthy"}, "faulty": {"fault", "suspect"}}
        return self.verdict in wanted.get(str(self.label["label"]), set(WORST))

    @property
    def false_alarm(self) -> bool:
        return self.label["label"] == "healthy" and self.verdict in {"fault", "suspect"}


def found(folder: Path) -> Found:
    """Import and check the log of one folder."""
    label = json.loads((folder / "LABEL.json").read_text())
    label = {_KEYS.get(key, key): said for key, said in label.items()}
    (log,) = (path for path in folder.iterdir() if path.name != "LABEL.json")
    with tempfile.TemporaryDirectory() as space:
        command = [sys.executable, "-m", "steadyrun", "import", str(log), "--out", space]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        runs = sorted((path for path in Path(space).iterdir() if not path.name.startswith(".")), key=_number)
        if not runs:
            why = done.stderr.strip().splitlines()[0].replace(str(log), log.name)[:200]
            wrong = ("not read",) if label.get("runs", 1) else ()  # a program that ended before its first step
            return Found(folder.name, label, "not read", why, wrong)
        reports = [steadyrun.check(run) for run in runs]
        counted = [each for run, each in zip(runs, reports, strict=True) if not _given_up(run, each)] or reports
        report = min(counted, key=lambda each: WORST.index(each.verdict))
        return Found(folder.name, label, report.verdict, _answer(report), tuple(_misread(runs, label)))


def _given_up(run: Path, report: Report) -> bool:
    """Whether a run is a start of a few points, which the exit code of `check` passes over as well."""
    view = steadyrun.open_run(run)
    longest = max((len(view.series(name).values) for name in view.names()), default=0)
    return report.verdict == "cannot-tell" and longest < GIVEN_UP


def _answer(report: Report) -> str:
    """What a report says first, with the numbers of its headline."""
    return report.headline.answer.message if report.headline is not None else phrases.verdict(report)


def _misread(runs: list[Path], label: dict[str, Any]) -> Iterator[str]:
    wanted = int(label.get("runs", 1))
    views = [steadyrun.open_run(run) for run in runs]
    trained = sum(bool(view.names()) for view in views)  # a program may end before its first step
    if trained != wanted:
        yield f"{trained} runs for {wanted}"
    names = dict.fromkeys(name for view in views for name in view.names())
    for name, facts in label.get("series", {}).items():
        candidates = [ROLES[name]] if name in ROLES else list(names)
        stretches = [views, *([view] for view in views)]
        read = [_values(stretch, each) for stretch in stretches for each in candidates]
        read += [_axis(stretch) for stretch in stretches if name in _counted(views[0])]
        if not any(_fits(values, facts) for values in read):
            yield f"{name}: not with {facts}"


def _number(run: Path) -> int:
    return int(json.loads((run / "manifest.json").read_text())["imported"]["run"])


def _values(views: list[RunView], name: str) -> list[float]:
    """The values of a series in some runs of a log, one after the other, as a person reads them down the file."""
    return [float(value) for view in views if name in view.names() for value in view.series(name).values]


def _counted(view: RunView) -> set[str]:
    """What the steps of a log are called in it, with and without the section."""
    names = [name for role, name in view.manifest["imported"]["roles"].items() if role in ("step", "epoch")]
    return {*names, *(name.rpartition("/")[2] for name in names)}


def _axis(views: list[RunView]) -> list[float]:
    """The steps of some runs, for a fact about what the log counts."""
    return [float(step) for view in views for step in _steps(view)]


def _steps(view: RunView) -> list[int]:
    return sorted({int(step) for name in view.names() for step in view.series(name).steps})


def _fits(values: list[float], facts: dict[str, Any]) -> bool:
    points = facts.get("points", len(values))
    if not values or abs(len(values) - points) > max(1, 0.02 * points):
        return False
    return all(_equal(facts[end][1], values[index]) for end, index in (("first", 0), ("last", -1)) if end in facts)


def _equal(wanted: float | str | None, read: float) -> bool:
    number = float("nan" if wanted is None else wanted)
    return (math.isnan(number) and math.isnan(read)) or math.isclose(number, read, rel_tol=2e-3, abs_tol=1e-9)


def summary(logs: list[Found]) -> list[str]:
    scored = [log for log in logs if log.label["label"] != "unclear"]
    verdicts = Counter((str(log.label["label"]), log.verdict) for log in scored)
    read = sum(not log.wrong for log in logs)
    judged = sum(log.judged for log in scored)
    return [
        f"read rightly {read} of {len(logs)}, judged rightly {judged} of {len(scored)}, "
        f"{sum(log.verdict == 'fault' and log.false_alarm for log in scored)} false faults and "
        f"{sum(log.verdict == 'suspect' and log.false_alarm for log in scored)} false suspects",
        *(f"{label}, called {verdict}: {count}" for (label, verdict), count in sorted(verdicts.items())),
    ]


def table(logs: list[Found]) -> Iterator[str]:
    yield "| log | repository @ commit | path | label | verdict | read | what the label says | what the report says |"
    yield "|---|---|---|---|---|---|---|---|"
    for log in logs:
        source = f"{log.label['repo']} @ `{str(log.label['commit'])[:12]}`"
        cells = (log.name, source, log.label["path"], log.label["label"], log.verdict, "; ".join(log.wrong) or "yes",
                 log.label["reason"], log.answer)  # fmt: skip
        yield "| " + " | ".join(" ".join(str(cell).replace("|", "\\|").split()) for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--page", action="store_true", help="write reallogs.md below its introduction")
    given = parser.parse_args()
    written: list[str] = []
    for folder in given.folders:
        logs = [found(path.parent) for path in sorted(folder.glob("*/LABEL.json"))]
        for log in logs:
            state = "judged rightly" if log.judged else f"{log.label['label']} called {log.verdict}"
            print(f"{log.name}: {state}; {'; '.join(log.wrong) or 'read rightly'}; {log.answer[:160]}")
        print(f"\n{folder.name}:", *summary(logs), sep="\n  ")
        written += [f"## {folder.name}", "", *(f"- {line}" for line in summary(logs)), "", *table(logs), ""]
    if given.page:
        before = PAGE.read_text().split(MARK)[0]
        PAGE.write_text("\n".join([before + MARK, "", *written]))


if __name__ == "__main__":
    main()
