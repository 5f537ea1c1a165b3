"""How often `steadyrun trial` names the right cause, in programs of the diagnosis fleets.

    python benchmarks/trials.py --half tuning              about fifteen minutes on one core
    python benchmarks/trials.py --half frozen --jobs 2
    python benchmarks/trials.py --half tuning --only 'experts-*'
    python benchmarks/trials.py --page                     writes trials.md from the results that are there

The tuning half is from the second and third fleet: rules and limits of the verdict were set with it in view. The frozen
half is from the fourth fleet, chosen by families and names alone. One seed of each program; a trial trains its own.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from diagnosis.cases import Case
from diagnosis.fleets import FLEETS, cause_of

from steadyrun.store.jsonio import dumps
from steadyrun.workers import Job, open_crew

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "trials"
BUDGET = 300.0

# The causes that a trial can decide, by the families of the fleets.
RIGHT: dict[str, tuple[str, ...]] = {
    "rate too high": ("rate-high", "warmup"),
    "rate too low": ("rate-low",),
    "decay out of range": ("decay",),
    "dropout out of range": ("dropout",),
    "smoothing out of range": ("smoothing",),
    "clip out of range": ("clip",),
    "optimizer setting out of range": ("optimizer-settings",),
    "start too wide": ("start",),
    "start too narrow": ("start",),
    "start without differences": ("start",),
    "labels unrelated": ("targets",),
    "labels partly wrong": ("targets",),
    "numbered differently": ("preparation",),
    "prepared differently": ("preparation",),
    "validation labels unrelated": ("preparation",),
    "part outside the optimizer": ("part",),
    "weights not registered": ("part",),
    "optimizer of another model": ("part",),
    "gradient cut off": ("part",),
    "same data again": ("repeated",),
    "loss term outweighs the others": ("term",),
    "input not used": ("inputs",),
    "number format": ("precision",),
}

TUNING: dict[str, tuple[str, ...]] = {
    "second": (
        *(
            "segment-rate-too-high-1",
            "forecast-epsilon-too-large-1",
            "recommend-decay-too-high-1",
            "keyword-labels-permuted-1",
        ),
        *("graph-labels-permuted-1", "segment-same-batch-1", "keyword-labels-numbered-anew-1"),
        *(
            "healthy-segment",
            "healthy-forecast",
            "healthy-recommend",
            "healthy-keyword",
            "healthy-graph",
            "healthy-vae",
        ),
    ),
    "third": (
        *("experts-decay-of-5-1", "tagger-decay-of-5-1", "cloud-labels-permuted-1", "topics-labels-permuted-1"),
        *("pinn-epsilon-of-1-1", "writer-dropout-of-90-1", "boxes-rate-x25-1", "triplet-rate-a-300th-1"),
        *("cloud-clip-at-1e-4-1", "tagger-smoothing-of-80-1", "distill-start-x12-1", "experts-part-not-in-optimizer-1"),
        *("boxes-val-scaled-twice-1", "tagger-val-vocabulary-anew-1", "pinn-part-not-in-optimizer-1"),
        *("cloud-val-labels-shuffled-1", "experts-epsilon-of-1-1", "flow-rate-x25-1", "topics-decay-of-5-1"),
        *("healthy-experts", "healthy-cloud", "healthy-topics", "healthy-pinn", "healthy-tagger", "healthy-writer"),
        *("healthy-boxes", "healthy-flow", "healthy-boxes-tightly-clipped", "healthy-tagger-dropout-half"),
    ),
}
# By families and names alone, before anybody had tried one of them.
FROZEN: dict[str, tuple[str, ...]] = {
    "fourth": (
        *("survive-rate-x15-1", "recur-rate-x15-1", "joints-rate-a-150th-1", "search-rate-a-150th-1"),
        *("spread-decay-of-2-1", "recur-decay-of-2-1", "both-dropout-of-85-1", "adapter-dropout-of-85-1"),
        *("chunks-smoothing-of-70-1", "survive-clip-at-1e-3-1", "joints-epsilon-of-0.1-1"),
        *("search-beta1-of-0.998-1", "spread-start-x12-1", "search-start-x5-1", "recur-labels-permuted-1"),
        *("both-labels-permuted-1", "adapter-labels-permuted-1", "joints-part-not-in-optimizer-1"),
        *("adapter-part-not-in-optimizer-1", "adapter-val-vocabulary-anew-1", "both-val-classes-sorted-otherwise-1"),
        *("spread-columns-reversed-in-validation-1", "joints-val-negative-1", "recur-same-batch-1"),
        *("recur-marks-not-read-1", "both-value-term-x1000-1"),
        *("healthy-sharpen", "healthy-patches", "healthy-wave", "healthy-survive", "healthy-rank", "healthy-recur"),
        *("healthy-chunks", "healthy-adapter", "healthy-joints", "healthy-spread", "healthy-search", "healthy-both"),
        "healthy-bandit",
    ),
}
HALVES = {"tuning": TUNING, "frozen": FROZEN}


def cases(half: str, only: str = "*") -> list[Case]:
    """The cases of one half whose names fit."""
    found = []
    for fleet, names in HALVES[half].items():
        known = {case.name: case for case in FLEETS[fleet].cases(1)}
        found += [known[name] for name in names if fnmatch.fnmatch(name, only)]
    return found


def measured(half: str, name: str) -> dict[str, Any]:
    """One case: what a worker does."""
    from steadyrun.trial.trial import trial

    (case,) = cases(half, name)
    config = case.module.configure(case.bug, case.seed, **dict(case.changes))
    began = time.perf_counter()
    result = trial(case.module.task, config=config, budget=BUDGET)
    found = result.to_dict() | {"case": case.name, "bug": case.bug, "cause": result.verdict.cause}
    found["wall"] = round(time.perf_counter() - began, 1)
    found["family"] = None if case.bug is None else cause_of(case.bug).family
    accused = result.verdict.kind == "fault"
    found["right"] = not accused if case.bug is None else accused and result.verdict.cause in RIGHT[found["family"]]
    file = BUILD / half / f"{case.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dumps(found, indent=1), "utf-8")
    return {key: found[key] for key in ("case", "right", "verdict", "cause", "factor", "message", "wall")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=HALVES, default="tuning")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--redo", action="store_true", help="also what is there already")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.page:
        run(options.half, options.only, options.jobs, options.redo)
    write_page()


def run(half: str, only: str, jobs: int, redo: bool) -> None:
    """Every case that is missing, as it ends."""
    todo = [case for case in cases(half, only) if redo or not (BUILD / half / f"{case.name}.json").is_file()]
    with open_crew("here" if jobs == 1 else f"local:{jobs}") as crew:
        for case in todo:
            crew.start(Job(case.name, "trials:measured", {"half": half, "name": case.name}))
        for done in crew.finished():
            if done.failure:
                print(f"failed {done.job.key}: {done.failure}", flush=True)
                continue
            found = done.result
            mark = "right" if found["right"] else "WRONG"
            print(
                f"{mark} {found['case']:<38} {found['verdict']:<12} {found['cause'] or found['factor']:<18} "
                f"{found['wall']:>6} s  {found['message'][:110]}",
                flush=True,
            )


def write_page() -> None:
    """benchmarks/trials.md: both halves, case by case."""
    lines = [
        "# Trials: how often the verdict is right",
        "",
        INTRODUCTION,
    ]
    for half in HALVES:
        files = sorted((BUILD / half).glob("*.json"))
        found = [json.loads(file.read_text("utf-8")) for file in files]
        broken = [each for each in found if each["bug"]]
        healthy = [each for each in found if not each["bug"]]
        if not found:
            continue
        right = sum(each["right"] for each in broken)
        accused = sum(not each["right"] for each in healthy)
        lines += ["", f"## {half.capitalize()} half", ""]
        lines += [f"{right} of {len(broken)} faults right; of {len(healthy)} healthy programs {accused} accused."]
        lines += ["", "| case | what is wrong | verdict | change | seconds |", "|---|---|---|---|---|"]
        for each in [*broken, *healthy]:
            mark = "" if each["right"] else "✗ "
            lines.append(
                f"| {each['case']} | {each['family'] or 'nothing'} | {mark}{each['verdict']} {each['cause']} | "
                f"{each['factor']} | {each['wall']:.0f} |"
            )
    (Path(__file__).with_name("trials.md")).write_text("\n".join(lines) + "\n", "utf-8")


INTRODUCTION = """\
Written by `python benchmarks/trials.py`. Programs of the diagnosis fleets with one bug each, and healthy ones; one
trial each with the default budget of five minutes, on one core. *Right*: a fault that names the cause, or no fault for
a healthy program.

Both tables are first looks, one each. After that of the tuning half a higher rate had to help by two decades (a
healthy program was accused), and rules for validation were added; after that of the frozen half a policy's loss is
no longer judged (a healthy bandit was accused), a start is compared with that of the unchanged twin, programs that
keep a state by row get whole batches (two did not run), and a slow rate is a fault only if the program learns next
to nothing. These cases are right since, each tried by itself, unless they are named below; the halves were not run
whole again. Known to have changed: the same batch again and again is undecided if the loader's dataset has no
length (segment-same-batch); survive-rate-x15 and recur-labels-permuted were undecided when a part of the frozen
half was run again, with other processes beside it."""

if __name__ == "__main__":
    main()
