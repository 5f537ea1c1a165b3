"""The same run as a log of every step, of every tenth step, and of means of ten steps: does the verdict stay?

Each recorded run below the given folders is written as a CSV with what a log usually has (loss, learning rate, gradient
norm, loss scale, validation), imported and checked, in four forms: every step, every tenth, means of ten, and by epochs
of fifty steps. A verdict may go to cannot-tell where the evidence is gone; it must not turn from healthy to fault.

python benchmarks/log_forms.py build/leaves/fleet build/leaves/faults [--declare]
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import steadyrun

SERIES = ("loss", "lr/0", "grad_norm", "loss_scale")
FORMS = ("every step", "every tenth", "means of ten", "epochs of fifty")


@dataclass(frozen=True)
class Recorded:
    """What a log would have of a run: by series, values at steps."""

    series: dict[str, dict[int, float]]
    val: dict[int, float]
    config: dict[str, Any]


def recorded(path: Path) -> Recorded:
    run = steadyrun.open_run(path)
    found = {name: run.series(name) for name in (*SERIES, "val_loss") if name in run.names()}
    values = {name: dict(zip(each.steps.tolist(), each.values.tolist(), strict=True)) for name, each in found.items()}
    val = values.pop("val_loss", {})
    return Recorded(values, val, dict(run.manifest.get("config") or {}))


def rows(of: Recorded, form: str) -> Iterator[dict[str, float]]:
    """The rows of a log in one of the forms."""
    steps = sorted(of.series["loss"])
    if form == "every step":
        yield from ({"step": step, **_at(of, step)} for step in steps)
    elif form == "every tenth":
        yield from ({"step": step, **_at(of, step)} for step in steps[::10])
    elif form == "means of ten":
        yield from ({"step": part[-1], **_mean(of, part)} for part in _parts(steps, 10))
    else:
        for epoch, part in enumerate(_parts(steps, 50)):
            last = [step for step in of.val if step <= part[-1]]
            held_out = {"val_loss": of.val[max(last)]} if last else {}
            yield {"epoch": epoch, **_mean(of, part), **held_out}
        return
    yield from ({"step": step, "val_loss": value} for step, value in sorted(of.val.items()))


def _parts(steps: list[int], size: int) -> list[list[int]]:
    return [steps[start : start + size] for start in range(0, len(steps) - size + 1, size)]


def _at(of: Recorded, step: int) -> dict[str, float]:
    return {name: values[step] for name, values in of.series.items() if step in values}


def _mean(of: Recorded, part: list[int]) -> dict[str, float]:
    """Means, as a logger that averages prints them; the learning rate is that of the last step."""
    found = {
        name: [values[step] for step in part if step in values]
        for name, values in of.series.items()
    }  # fmt: skip
    return {name: each[-1] if name.startswith("lr") else float(np.mean(each)) for name, each in found.items() if each}


def verdict(of: Recorded, form: str, folder: Path, declare: bool) -> tuple[str, str]:
    """What `check` says of the run in this form: the verdict, and the leaf."""
    log = folder / "log.csv"
    names = ["epoch" if form == FORMS[3] else "step", *of.series, "val_loss"]
    with log.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows(of, form))
    steadyrun.import_log(log, folder / "run", config=of.config if declare else None)
    report = steadyrun.check(folder / "run")
    leaf = report.leaf
    return report.verdict, "" if leaf is None else f"{leaf.question.code} {leaf.answer.outcome}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of run directories")
    parser.add_argument("--declare", action="store_true", help="declare the run's configuration at the import")
    options = parser.parse_args()
    runs = [path.parent for folder in options.folders for path in sorted(folder.glob("*/manifest.json"))]
    counted: dict[str, Counter[str]] = {form: Counter() for form in FORMS}
    turned = 0
    with tempfile.TemporaryDirectory() as folder:
        for run in runs:
            of = recorded(run)
            if not of.series.get("loss"):
                continue
            found = [verdict(of, form, Path(folder), options.declare) for form in FORMS]
            for form, (word, _) in zip(FORMS, found, strict=True):
                counted[form][word] += 1
            if any(word == "fault" for word, _ in found[1:]) and found[0][0] == "healthy":
                turned += 1
                print(f"turned: {run.name}: " + "; ".join(f"{word} {leaf}".strip() for word, leaf in found))
            elif len({word for word, _ in found if word != "cannot-tell"}) > 1:
                print(f"differs: {run.name}: " + "; ".join(f"{word} {leaf}".strip() for word, leaf in found))
    print(f"\n{len(runs)} runs{', configuration declared' if options.declare else ''}; {turned} turned to fault\n")
    print("| form | fault | healthy | cannot tell |\n|---|---|---|---|")
    for form, counts in counted.items():
        print(f"| {form} | {counts['fault']} | {counts['healthy']} | {counts['cannot-tell']} |")


if __name__ == "__main__":
    main()
