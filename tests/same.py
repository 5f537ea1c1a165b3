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
import contextlib
import difflib
import fnmatch
import importlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SHARED_LOGS = ("reallogs", "reallogs2")  # beside the repository, where there are any
STEPS = 80
FEWER_STEPS = {"fp16-overflow-constant-scale": 30, "fp16-collapse": 30, "missing-division": 30}  # slow ones

# Runs whose incidents are replayed, and the fewest steps in which the incident comes.
REPLAYED = {"log-of-zero": 120, "infinite-embedding-gradient": 300, "corrupt-batch": 200, "rare-token-spike": 300}
IN_EVERY_FORM = {"healthy", "no-warmup", "corrupt-batch", "log-of-zero", "overfit"}

# What may differ. frozen: also where the same run directory is read again; fresh: only where it is recorded anew.
MASKS = [
    # (where, pattern, put in its place, why)
    ("frozen", r"[\w/.<>-]+\.py:\d+", "FILE:LINE", "the code of the tutor moves too"),
    ("frozen", r'("file": )"[^"\n]*\.py"', r"\1FILE", "the code of the tutor moves too"),
    ("frozen", r'("line": )\d+', r"\1LINE", "the code of the tutor moves too"),
    (
        "fresh",
        r'("sha256": )"[0-9a-f]{64}"(?=\s*\}\s*,\s*"lost")',
        r"\1HASH",
        "of the tutor's code",
    ),
    ("fresh", r'("(?:time|started|ended)": )[\d.]+', r"\1TIME", "when it happened"),
    ("fresh", r'("crc": )"[0-9a-f]{8}"', r"\1CRC", "a checksum over the time as well"),
    ("fresh", r'("pid": )\d+', r"\1PID", "another process"),
    ("fresh", r'("git": )(\{[^}]*\}|null)', r"\1GIT", "another commit"),
    ("fresh", r'("steadyrun": )"[^"]*"', r"\1VERSION", "the version may be a new one"),
    ("fresh", r'("command_line": )\[[^\]]*\]', r"\1COMMAND", "how the process was started"),
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
    "typer.testing", "steadyrun.cli", "same",
]  # fmt: skip

MOST_LINES = 14  # of one difference
WIDEST = 160


@dataclass(frozen=True)
class Case:
    """Something to do, and what it is done with."""

    kind: str
    name: str
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Notes:
    """What one case gave: named texts, in which the places of this machine have names."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        for place, called in ((self.scratch, "<scratch>"), (REPO, "<repo>"), (Path(sys.prefix), "<python>")):
            text = text.replace(str(place), called)
        (self.folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")

    def call(self, name: str, *words: str) -> str:
        """What a command prints and how it leaves; gives its stdout."""
        from typer.testing import CliRunner

        from steadyrun.cli import app

        sys.argv[:] = ["steadyrun", *words]
        done = CliRunner().invoke(app, list(words), prog_name="steadyrun")
        raised = "" if done.exception is None or isinstance(done.exception, SystemExit) else f"{done.exception!r}\n"
        told = f"$ steadyrun {' '.join(words)}\n{done.stdout}"
        self.write(name, f"{told}--- stderr\n{done.stderr}--- exit {done.exit_code}\n{raised}")
        return done.stdout


# -- the cases ----------------------------------------------------------------------------------------


def case_run(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """Record a run of the tutor, or take a frozen one, and ask everything of it."""
    run = _recorded(notes, case, kept, frozen)
    _directory(notes, Path(run))
    notes.call("check.json", "check", run, "--json")
    notes.call("check.txt", "check", run)
    if case.name in IN_EVERY_FORM:
        _every_form(notes, run)
    if case.name in REPLAYED:
        _incident(notes, run)


def _recorded(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> str:
    run = f"runs/{case.name}"
    if frozen is not None:
        shutil.copytree(frozen, run)
        return run
    steps = [] if case.steps == 0 else ["--steps", str(case.steps)]
    notes.call("demo.txt", "demo", case.name, "--out", run, "--train-only", *steps)
    if kept is not None:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(run, kept)
    return run


def _directory(notes: Notes, run: Path) -> None:
    """Everything that a run directory holds."""
    import pyarrow.parquet

    import steadyrun

    files = sorted(path for path in run.rglob("*") if path.is_file())
    notes.write("files.txt", "".join(f"{path.relative_to(run)}\n" for path in files))
    notes.write("manifest.json", (run / "manifest.json").read_text(encoding="utf-8"))
    for path in files:
        if path.parent.name == "events" or path.name == "incident.json" or path.name == "checkpoint.json":
            notes.write(f"{path.parent.name}-{path.name}", path.read_text(encoding="utf-8"))
        if path.suffix == ".parquet":
            notes.write(f"{path.name}-schema.txt", pyarrow.parquet.read_schema(path).to_string())
    view = steadyrun.open_run(run)
    notes.write("series.txt", "".join(f"{_series(view.series(name))}\n" for name in view.names()))
    notes.write("view.txt", f"{view}\n{view.state} {view.last_step()} {view.ranks} {view.verify()}\n")


def _series(series: Any) -> str:
    points = zip(series.steps.tolist(), series.values.tolist(), strict=True)
    return f"{series.name} " + " ".join(f"{step}={value!r}" for step, value in points)


def _every_form(notes: Notes, run: str) -> None:
    import steadyrun

    notes.call("check-all.json", "check", run, "--json", "--all")
    notes.call("check-all.txt", "check", run, "--all")
    notes.call("check.xml", "check", run, "--junit")
    notes.call("check.md", "check", run, "--markdown")
    notes.call("check-after.txt", "check", run, "--after", run)
    notes.call("check-set.txt", "check", run, "--set", "C3.1.high=0.001")
    notes.call("check-set-wrong.txt", "check", run, "--set", "C3.1.hihg=1")
    notes.call("top.txt", "top", run, "--once")
    notes.call("dashboard.txt", "dashboard", run, "--out", "dashboard.html")
    notes.call("dashboard-5.txt", "dashboard", run, "--out", "dashboard-5.html", "--panel", "5")
    for page in ("dashboard.html", "dashboard-5.html"):
        notes.write(page, Path(page).read_text(encoding="utf-8"))
    report = steadyrun.check(run)
    notes.write("report.txt", f"{report}\n{report!r}\n")
    notes.write("report.json", (Path(run) / "report.json").read_text(encoding="utf-8"))


def _incident(notes: Notes, run: str) -> None:
    """Replay, post-mortem and verification, without experiments and with them."""
    notes.call("replay-list.txt", "replay", run, "--list")
    notes.call("replay-list.json", "replay", run, "--list", "--json")
    notes.call("postmortem-unreplayed.json", "postmortem", run, "--json", "--no-picture", "--no-lesson")
    notes.call("replay-alone.json", "replay", run, "--json", "--no-experiments")
    notes.call("replay.json", "replay", run, "--json")
    if run.endswith("log-of-zero"):
        notes.call("replay.txt", "replay", run)
    notes.call("check-replayed.txt", "check", run)
    notes.call("postmortem.json", "postmortem", run, "--json", "--no-picture")
    notes.call("postmortem.txt", "postmortem", run, "--checklist", "--no-picture")
    written = sorted(Path(run, "postmortems").glob("*.md"))
    for path in [*written, *Path("runs").glob("lessons.md")]:
        notes.write(f"written-{path.name}", path.read_text(encoding="utf-8"))
    for path in written:
        notes.call(f"verify-{path.stem}.txt", "verify", str(path), run)
        notes.call(f"verify-{path.stem}.json", "verify", str(path), run, "--json")


def case_preflight(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """Try one of the programs of the tests."""
    Path("program.py").write_text("from same import program\n", encoding="utf-8")
    notes.call("preflight.json", "preflight", "program.py:program", "--json", "--", case.name)
    if case.name.startswith("BROKEN"):
        notes.call("preflight.txt", "preflight", "program.py:program", "--", case.name)
    if case.name == "HEALTHY/gpt":
        notes.call("preflight.md", "preflight", "program.py:program", "--markdown", "--", case.name)
        notes.call("preflight.xml", "preflight", "program.py:program", "--junit", "--", case.name)
        notes.call("preflight-deep.json", "preflight", "program.py:program", "--json", "--deep", "--", case.name)


def case_log(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """Read a log of another tool."""
    log = Path("logs") / case.name
    log.parent.mkdir(parents=True)
    shutil.copy2(REPO.parent / "shared" / case.name, log)
    notes.call("dry-run.txt", "import", str(log), "--dry-run")
    notes.call("dry-run.json", "import", str(log), "--dry-run", "--json")
    notes.call("check.json", "check", str(log), "--json")
    notes.call("import.txt", "import", str(log), "--out", "imported")
    for run in sorted(Path("imported").glob("*/manifest.json")):
        inner = Notes(notes.folder / run.parent.name, notes.scratch)
        _directory(inner, run.parent)


def case_words(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """What needs no run: help, explanations, lists, the real entry point, names for programs."""
    {"help": _help, "explain": _explain, "names": _names, "errors": _errors}[case.name](notes)


def _help(notes: Notes) -> None:
    shown = notes.call("help.txt", "--help")
    for command in re.findall(r"(?m)^│ ([a-z]+) {2,}", shown):
        notes.call(f"help-{command}.txt", command, "--help")
    notes.call("demo-list.txt", "demo", "--list")
    notes.call("formats.txt", "import", "x", "--formats")
    notes.call("skill.txt", "mcp", "--skill")
    for words in (["--help"], ["--version"], ["no-such-command"], ["check", "no-such-run"]):
        done = subprocess.run([sys.executable, "-m", "steadyrun", *words], capture_output=True, text=True)
        told = f"{done.stdout}--- stderr\n{done.stderr}--- exit {done.returncode}\n"
        notes.write(f"module-{'-'.join(words).strip('-')}.txt", told)


def _explain(notes: Notes) -> None:
    notes.call("all.txt", "explain")
    told = notes.call("all.json", "explain", "--json")
    codes = [page["code"] for page in json.loads(told)]
    for code in sorted({*codes, *(code.partition(".")[0] for code in codes)}):
        notes.call(f"{code}.txt", "explain", code)


def _errors(notes: Notes) -> None:
    """Mistakes that users make."""
    Path("empty").mkdir()
    Path("notes.txt").write_text("nothing\n", encoding="utf-8")
    commands = ["check", "dashboard", "top", "replay", "postmortem", "import"]
    for command in commands:
        for given in ("missing", "empty", "notes.txt"):
            notes.call(f"{command}-{given}.txt", command, given)
    notes.call("explain.txt", "explain", "C9.9")
    notes.call("demo.txt", "demo", "no-such-fault")
    notes.call("preflight.txt", "preflight", "notes.txt:task")
    notes.call("verify.txt", "verify", "missing.json", "empty")


def _names(notes: Notes) -> None:
    """The signatures and docstrings of everything public."""
    frameworks = ("accelerate", "jax", "keras", "lightning", "transformers")
    for name in ("steadyrun", "steadyrun.data", *(f"steadyrun.integrations.{each}" for each in frameworks)):
        try:
            module = importlib.import_module(name)
        except ImportError as problem:
            notes.write(f"{name}.txt", f"{problem}\n")
            continue
        names = getattr(module, "__all__", None) or [
            each for each, held in vars(module).items() if getattr(held, "__module__", "") == name and each[0] != "_"
        ]
        notes.write(f"{name}.txt", "".join(_described(each, getattr(module, each)) for each in sorted(names)))


def _described(name: str, thing: Any) -> str:
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        signature = ""
    text = f"{name}{signature}\n{inspect.getdoc(thing)}\n\n"
    if not inspect.isclass(thing):
        return text
    inside = {each: inspect.getattr_static(thing, each) for each in dir(thing) if each[0] != "_"}
    return text + "".join(
        _described(f"{name}.{each}", held.fget if isinstance(held, property) else getattr(thing, each))
        for each, held in inside.items()
    )


def case_served(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """What the servers answer about a run: the one for browsers and the one for agents."""
    _recorded(notes, Case("run", "healthy", case.steps), kept, frozen)
    {"browser": _browser, "agent": _agent}[case.name](notes)


def _browser(notes: Notes) -> None:
    command = [sys.executable, "-m", "steadyrun", "serve", "runs", "--port", "0"]
    paths = ["", "run/healthy", "compare", "metrics", "api/runs", "api/run/healthy/data"]
    paths += ["api/run/healthy/panel/1?from=9&to=50"]
    with _process(command) as process:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, "steadyrun serve left"
            found = re.search(r"http://[\w.:]+/", line)
        for path in paths:
            status, body = _got(found[0] + path)
            notes.write(f"{re.sub(r'[/?&=]', '-', path) or 'index'}.txt", f"{status}\n{body}\n".replace(found[0], "/"))


def _got(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def _agent(notes: Notes) -> None:
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "same", "version": "1"}}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("tools", "tools/list", {}),
        ("list_runs", "tools/call", {"name": "list_runs", "arguments": {}}),
        ("check", "tools/call", {"name": "check", "arguments": {"run": "healthy"}}),
        ("explain", "tools/call", {"name": "explain", "arguments": {"code": "C2.1"}}),
        ("series", "tools/call", {"name": "series", "arguments": {"run": "healthy", "names": ["loss"]}}),
        ("events", "tools/call", {"name": "events", "arguments": {"run": "healthy"}}),
    ]
    if importlib.util.find_spec("mcp") is None:
        notes.call("missing.txt", "mcp", "runs")
        return
    with _process([sys.executable, "-m", "steadyrun", "mcp", "runs"]) as process:
        notes.write("hello.json", _asked(process, 0, "initialize", hello))
        _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        for number, (name, method, params) in enumerate(asked, 1):
            notes.write(f"{name}.json", _asked(process, number, method, params))


def _asked(process: subprocess.Popen[str], number: int, method: str, params: dict[str, Any]) -> str:
    _send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert process.stdout is not None
    answer = json.loads(process.stdout.readline())
    while answer.get("id") != number:
        answer = json.loads(process.stdout.readline())
    return json.dumps(answer, indent=1, ensure_ascii=False)


def _send(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with open("stderr.txt", "w") as stderr:  # noqa: PTH123
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, text=True, encoding="utf-8")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


CASES: dict[str, Callable[[Notes, Case, Path | None, Path | None], None]] = {
    "run": case_run,
    "preflight": case_preflight,
    "log": case_log,
    "words": case_words,
    "served": case_served,
}
WITH_RUN = {"run", "served"}  # also done on frozen runs


def program(config: Any) -> Any:
    """The factory for preflight: the program of the tests that the command line names."""
    import torch

    table, _, name = sys.argv[1].partition("/")
    torch.manual_seed(0)
    made = _programs()[table][name]()
    if not hasattr(made, "task"):
        return made
    made.task.loader, made.task.config = made.batches, made.config
    return made.task


def _programs() -> dict[str, dict[str, Callable[[], Any]]]:
    """The tables of programs: those in tests/**/programs_*.py."""
    found: dict[str, dict[str, Callable[[], Any]]] = {}
    files = sorted((REPO / "tests").rglob("programs_*.py"))
    sys.path[:0] = [str(folder) for folder in {path.parent for path in files}]
    for path in files:
        module = importlib.import_module(path.stem)
        for table in ("HEALTHY", "ODD", "ZOO", "STRANGE", "BROKEN"):
            held = vars(module).get(table)
            if held is not None:
                found[table] = held if isinstance(held, dict) else {make.__name__: make for make, *_ in held}
    return found


# -- doing them ---------------------------------------------------------------------------------------


def all_cases(full: bool) -> list[Case]:
    """Every case there is, the long ones first. Runs in a worker."""
    from typer.testing import CliRunner

    import steadyrun
    from steadyrun.cli import app

    at = Path(steadyrun.__file__).resolve()
    assert at.is_relative_to(REPO / "src"), f"steadyrun was imported from {at}, not from {REPO / 'src'}"
    listed = CliRunner().invoke(app, ["demo", "--list"]).stdout.splitlines()
    faults = sorted((line.split()[0] for line in listed), key=lambda name: name not in REPLAYED)
    runs = [Case("run", name, 0 if full else {**FEWER_STEPS, **REPLAYED}.get(name, STEPS)) for name in faults]
    served = [Case("served", name, STEPS) for name in ("browser", "agent")]
    tried = [Case("preflight", f"{table}/{name}") for table, held in _programs().items() for name in held]
    shared = REPO.parent / "shared"
    logs = [path for name in SHARED_LOGS for path in sorted((shared / name).rglob("*")) if path.is_file()]
    read = [Case("log", str(path.relative_to(shared))) for path in logs if path.name != "README.md"]
    return [*runs, *served, *tried, *read, *(Case("words", name) for name in ("help", "explain", "names", "errors"))]


def perform(job: tuple[Case, str, Path]) -> tuple[Case, str, float, str]:
    """Do one case in a process of its own. `how` is before, fresh or frozen."""
    case, how, folder = job
    begun = time.monotonic()
    notes_at = folder / ("before" if how == "before" else f"after-{how}") / str(case)
    shutil.rmtree(notes_at, ignore_errors=True)
    recorded = folder / "runs" / (case.name if case.kind == "run" else str(case))
    scratch = Path(tempfile.mkdtemp(prefix="same-")).resolve()
    os.chdir(scratch)
    problem = ""
    try:
        kept, frozen = (recorded if how == "before" else None), (recorded if how == "frozen" else None)
        CASES[case.kind](Notes(notes_at, scratch), case, kept, frozen)
    except Exception:
        problem = traceback.format_exc()
        Notes(notes_at, scratch).write("failed.txt", problem)
    finally:
        os.chdir(folder)
        shutil.rmtree(scratch, ignore_errors=True)
    return case, how, time.monotonic() - begun, problem


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
        for case, how, seconds, problem in pool.imap_unordered(perform, work):
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
    if (folder / "before.json").exists() and only is None:
        sys.exit(f"error: {folder} has a `before` already: remove it, or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    cases = chosen(known_cases(full), only)
    fine = perform_all([(case, "before", folder) for case in cases], jobs)
    described = {"full": full, "only": only, "versions": versions()}
    (folder / "before.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
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
    cases = chosen(known_cases(described["full"]), only)
    if described["only"] is not None:
        cases = [case for case in cases if (folder / "before" / str(case)).is_dir()]
    work = [(case, "fresh", folder) for case in cases]
    work += [(case, "frozen", folder) for case in cases if case.kind in WITH_RUN]
    perform_all(work, jobs)
    found = [each for case, how, _ in work for each in differences(folder, case, how)]
    found += [(f"{name}", ["-(the whole case)"]) for name in gone(folder, cases, only)]
    show(found, folder)
    print(f"{len(cases)} cases, {len(found)} differences")
    return 1 if found else 0


def gone(folder: Path, cases: list[Case], only: str | None) -> list[str]:
    """Cases that `before` had and that no longer exist."""
    kept = [Case(path.parent.name, path.name) for path in (folder / "before").glob("*/*")]
    names = {str(case) for case in cases}
    return [str(case) for case in chosen(kept, only) if not any(name.startswith(str(case)) for name in names)]


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
