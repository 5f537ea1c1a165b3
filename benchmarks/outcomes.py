"""How often each answer is given on healthy and on broken runs: what a suspect's likelihood is taken from.

    python benchmarks/outcomes.py --healthy build/fleet build/diagnosis/runs/healthy-* --broken build/diagnosis/runs/*

Each path is a run directory or a folder of them; a run named under --healthy is not counted as broken. Writes
src/steadyrun/questions/outcomes.json, from which the questions' pages and docs/outcomes.md are made (`make docs`).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import steadyrun
from steadyrun.questions.form import GRADES

OUTCOMES = Path(__file__).parents[1] / "src" / "steadyrun" / "questions" / "outcomes.json"


def run_folders(paths: Iterable[Path]) -> list[Path]:
    """The run directories among these paths and right below them."""
    folders = [
        folder for path in paths for folder in ([path] if (path / "manifest.json").is_file() else path.glob("*"))
    ]
    return sorted({folder.resolve() for folder in folders if (folder / "manifest.json").is_file()})


def graded(folder: Path) -> tuple[str, list[str]]:
    """The verdict on a run, and its faults, suspects and notes."""
    report = steadyrun.check(folder, everything=True)
    found = [asked for asked in report.walk.path if asked.answer.kind in GRADES]
    return steadyrun.check(folder).verdict, [f"{asked.question.code}:{asked.answer.outcome}" for asked in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--healthy", nargs="+", type=Path, required=True)
    parser.add_argument("--broken", nargs="+", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    healthy = run_folders(options.healthy)
    broken = [folder for folder in run_folders(options.broken) if folder not in healthy]
    counts: list[Counter[str]] = []
    verdicts: list[Counter[str]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for folders in (healthy, broken):
            answers = list(pool.map(graded, folders, chunksize=4))
            verdicts.append(Counter(verdict for verdict, _ in answers))
            counts.append(Counter(name for _, names in answers for name in set(names)))
            notes = sorted(len(names) for _, names in answers)
            print(f"{len(folders)} runs: {dict(verdicts[-1])}; findings in the median {notes[len(notes) // 2]}")
    outcomes = {name: [counts[0][name], counts[1][name]] for name in sorted(counts[0] | counts[1])}
    content = {"runs": [len(healthy), len(broken)], "verdicts": [dict(v) for v in verdicts], "outcomes": outcomes}
    OUTCOMES.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written: {OUTCOMES}")


if __name__ == "__main__":
    main()
