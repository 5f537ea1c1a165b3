"""Prove that a change of the code changes nothing that a user can see.

    python tests/same.py before FOLDER    on the old code: record runs, write down what every command says
    python tests/same.py after FOLDER     on the new code: the same again, then show every difference

`after` looks at two things. *frozen*: the runs that `before` recorded, which the new code must read as the old one did.
*fresh*: the same runs recorded anew, which must hold the same numbers. It leaves with 1 if anything differs.

Only the public surface is used (the command line, `steadyrun.…`), so that modules may move freely. Everything runs on
one machine with one set of versions: numbers are compared to the last bit, except for what MASKS lists.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from same_cases import CASES, REPO, SHARED_LOGS, WITH_RUN, Case, Notes, all_cases

# What may differ. frozen: also where the same run directory is read again; fresh: only where it is recorded anew.
MASKS = [
    # (where, pattern, put in its place, why)
    ("frozen", r"(?:[\w/.<>-]|\\_)+\.py:\d+", "FILE:LINE", "the code of the tutor moves too"),
    ("frozen", r'("file": )"[^"\n]*\.py"', r"\1FILE", "the code of the tutor moves too"),
    ("frozen", r'("line": )\d+', r"\1LINE", "the code of the tutor moves too"),
    ("fresh", r'("sha256": )"[0-9a-f]{64}"(?=\s*},\s*"lost")', r"\1HASH", "of the tutor's code, which moves too"),
    ("frozen", r'("id": ?)"[0-9a-f]{8}\.(\d+)"', r"\1ID.\2", "serve marks its own events"),
    ("frozen", r"(last_point_age_seconds\S* )[\d.]+", r"\1SECONDS", "serve measures it now"),
    ("fresh", r'("(?:time|started|ended)": ?)[\d.]+', r"\1TIME", "when it happened"),
    ("fresh", r'("crc": )"[0-9a-f]{8}"', r"\1CRC", "a checksum over the time as well"),
    ("fresh", r'("pid": )\d+', r"\1PID", "another process"),
    ("fresh", r'("git": )(\{[^}]*\}|null)', r"\1GIT", "another commit"),
    ("fresh", r'("steadyrun": )"[^"]*"', r"\1VERSION", "the version may be a new one"),
    ("fresh", r'("command_line": )\[[^\]]*\]', r"\1COMMAND", "how the process was started"),
    ("fresh", r'("step_time": )\[[^\]]*\]', r"\1MEASURED", "time is never the same twice"),
    ("fresh", r"(?m)^(step_time|memory/\S+) .*$", r"\1 MEASURED", "time and memory are never the same twice"),
    ("fresh", r"(\d+ steps in )[\d.]+ s", r"\1SECONDS", "how long the training took"),
]

ENVIRONMENT = {
    "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC", "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join([str(REPO / "src"), str(REPO / "tests")]),
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
}  # fmt: skip
IMPORTED_ONCE = [
    "torch._dynamo", "numpy.random", "pyarrow.parquet", "pyarrow.compute", "tokenizers", "safetensors.torch",
    "typer.testing", "steadyrun.cli", "same_cases",
]  # fmt: skip

PATIENCE = 3600.0  # seconds without any case ending
MOST_LINES = 14  # of one difference
WIDEST = 160


# -- doing them ---------------------------------------------------------------------------------------


def perform(job: tuple[Case, str, Path]) -> tuple[Case, str, float, str]:
    """Do one case in a process of its own. `how` is before, fresh or frozen."""
    case, how, folder = job
    now = time.monotonic  # the real one
    begun = now()
    notes_at = folder / ("before" if how == "before" else f"after-{how}") / str(case)
    shutil.rmtree(notes_at, ignore_errors=True)
    recorded = folder / "runs" / (case.name if case.kind == "run" else str(case))
    scratch = Path(tempfile.mkdtemp(prefix="same-")).resolve()
    os.chdir(scratch)
    sys.argv[:] = ["steadyrun"]  # a manifest keeps it
    problem = ""
    _same_chances()
    try:
        kept, frozen = (recorded if how == "before" else None), (recorded if how == "frozen" else None)
        CASES[case.kind](Notes(notes_at, scratch), case, kept, frozen)
    except Exception:
        problem = traceback.format_exc()
        Notes(notes_at, scratch).write("failed.txt", problem)
    finally:
        os.chdir(folder)
        shutil.rmtree(scratch, ignore_errors=True)
    return case, how, now() - begun, problem


def _same_chances() -> None:
    """No chance and no clock: recording looks at the time to decide how often it checks, copies and writes.

    The clock goes on by a millisecond at each look of the main thread.
    """
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    looks, main = 0, threading.get_ident()

    def look() -> float:
        nonlocal looks
        looks += threading.get_ident() == main
        return looks / 1000

    time.perf_counter = time.monotonic = time.thread_time = look
    time.time = lambda: 1.8e9 + look()


def in_workers(jobs: int) -> Any:
    """Processes that have the heavy imports and are used once: no case sees what another one left behind."""
    os.environ.update(ENVIRONMENT)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    return context.Pool(jobs, maxtasksperchild=1)


def perform_all(work: list[tuple[Case, str, Path]], jobs: int) -> bool:
    """Do them all; True if none failed."""
    fine, done = True, 0
    with in_workers(jobs) as pool:
        results = pool.imap_unordered(perform, work)
        for _ in work:
            case, how, seconds, problem = results.next(timeout=PATIENCE)  # a worker that was killed gives nothing
            done += 1
            print(f"[{done}/{len(work)}] {how} {case} {seconds:.1f} s{' FAILED' if problem else ''}", flush=True)
            if problem:
                print(problem)
                fine = False
    return fine


def chosen(cases: Iterable[Case], only: str | None) -> list[Case]:
    pattern = only if only is None or "*" in only else f"*{only}*"
    return [case for case in cases if pattern is None or fnmatch.fnmatchcase(str(case), pattern)]


def known_cases(full: bool) -> list[Case]:
    with in_workers(1) as pool:
        cases: list[Case] = pool.apply(all_cases, (full,))
    if not any(case.kind == "log" for case in cases):
        print(f"skipped: logs of other tools, since there is no {' or '.join(SHARED_LOGS)} in ../shared")
    return cases


# -- comparing ----------------------------------------------------------------------------------------


def masked(text: str, how: str) -> str:
    for where, pattern, instead, _ in MASKS:
        if where == "frozen" or how == "fresh":
            text = re.sub(pattern, instead, text)
    return text


def files_of(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def differences(folder: Path, case: Case, how: str) -> Iterator[tuple[str, list[str]]]:
    """The name of each output that differs, and the lines of its diff."""
    old, new = files_of(folder / "before" / str(case)), files_of(folder / f"after-{how}" / str(case))
    for name in sorted({*old, *new}):
        if how == "frozen" and name == "demo.txt":
            continue  # nothing is recorded
        title = f"{how} {case} {name}"
        if name not in new or name not in old:
            yield title, [f"{'-' if name in old else '+'}(the whole output)"]
            continue
        texts = [masked(path.read_text(encoding="utf-8"), how) for path in (old[name], new[name])]
        if texts[0] != texts[1]:
            yield title, _diff(*texts)


def _diff(old: str, new: str) -> list[str]:
    """A unified diff without its head; of long lines, where they differ."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""))[2:]
    changed = [line for line in lines if not line.startswith("@@")]
    removed = [line[1:] for line in changed if line[0] == "-"]
    added = [line[1:] for line in changed if line[0] == "+"]
    at = {}
    if len(removed) == len(added):
        for one, other in zip(removed, added, strict=True):
            at["-" + one] = at["+" + other] = _alike(one, other)
    return [_cut(line, at.get(line, 0)) for line in changed] or ["(only the ends of lines)"]


def _alike(one: str, other: str) -> int:
    """How many characters two lines share from their start."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _cut(line: str, at: int) -> str:
    if len(line) <= WIDEST:
        return line
    first = max(1, min(at - WIDEST // 3, len(line) - WIDEST))
    start = "" if first == 1 else "…"
    return f"{line[0]}{start}{line[first : first + WIDEST]}{'…' if first + WIDEST < len(line) else ''}"


def show(found: list[tuple[str, list[str]]], folder: Path) -> None:
    """Each difference once, however many outputs have it."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for title, lines in found:
        alike.setdefault(tuple(lines), []).append(title)
    for diff, titles in alike.items():
        more = f" and {len(titles) - 1} more with the same diff" if len(titles) > 1 else ""
        print(f"\n{titles[0]}{more}")
        print("\n".join(diff[:MOST_LINES]))
        if len(diff) > MOST_LINES:
            print(f"… {len(diff) - MOST_LINES} more lines")
    if found:
        print(f"\n{len(found)} outputs differ, in {len(alike)} ways. All of them: {folder}/before and {folder}/after-*")


# -- the two commands ---------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    import importlib.metadata as metadata

    found = {name: metadata.version(name) for name in ("torch", "numpy", "pyarrow", "tokenizers", "typer", "rich")}
    return {"python": sys.version.split()[0], **found}


def before(folder: Path, only: str | None, jobs: int, full: bool) -> int:
    about = folder / "before.json"
    if about.exists() and only is None:
        sys.exit(f"error: {folder} has a `before` already: remove it, or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(about.read_text(encoding="utf-8"))["cases"] if about.exists() else []
    cases = chosen(known_cases(full), only)
    fine = perform_all([(case, "before", folder) for case in cases], jobs)
    described = {"full": full, "versions": versions(), "cases": sorted({*earlier, *map(str, cases)})}
    about.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return 0 if fine else 1


def after(folder: Path, only: str | None, jobs: int) -> int:
    try:
        described = json.loads((folder / "before.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        sys.exit(f"error: {folder} has no `before`. On the old code: python tests/same.py before {folder}")
    if described["versions"] != versions():
        sys.exit(f"error: not the versions of `before`, so numbers may differ: {described['versions']} / {versions()}")
    for how in ("fresh", "frozen"):
        shutil.rmtree(folder / f"after-{how}", ignore_errors=True)
    known = {str(case): case for case in known_cases(described["full"])}
    cases = chosen([known[name] for name in known if name in described["cases"]], only)
    work = [(case, "fresh", folder) for case in cases]
    work += [(case, "frozen", folder) for case in cases if case.kind in WITH_RUN]
    perform_all(work, jobs)
    found = [each for case, how, _ in work for each in differences(folder, case, how)]
    logs = any(name.startswith("log/") for name in known)  # else known_cases has said that they are skipped
    gone = [name for name in described["cases"] if name not in known and (logs or not name.startswith("log/"))]
    found += [(name, ["-(the whole case)"]) for name in gone]
    show(found, folder)
    print(f"{len(cases)} cases, {len(found)} outputs that differ")
    return 1 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("when", choices=["before", "after"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", metavar="PATTERN", help="cases such as run/lr-jump, 'preflight/BROKEN/*' or words")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--full", action="store_true", help="before: runs of full length, which takes an hour")
    given = parser.parse_args()
    folder, begun = given.folder.resolve(), time.monotonic()
    if given.when == "before":
        code = before(folder, given.only, given.jobs, given.full)
    else:
        code = after(folder, given.only, given.jobs)
    print(f"{time.monotonic() - begun:.0f} s")
    sys.exit(code)


if __name__ == "__main__":
    main()
