"""What `same.py` does with the public surface of steadyrun, and what it writes down of it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SHARED_LOGS = ("reallogs", "reallogs2")  # beside the repository, where there are any
STEPS = 80
FEWER_STEPS = {"fp16-overflow-constant-scale": 30, "fp16-collapse": 30, "missing-division": 30}  # slow ones

# Runs whose incidents are replayed, and the fewest steps in which the incident comes.
REPLAYED = {"log-of-zero": 60, "infinite-embedding-gradient": 130, "corrupt-batch": 120, "rare-token-spike": 300}
IN_EVERY_FORM = {"healthy", "no-warmup", "corrupt-batch", "log-of-zero", "overfit"}


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
    notes.call("replay-alone.txt", "replay", run, "--no-experiments")
    notes.call("replay.json", "replay", run, "--json")
    notes.call("check-replayed.txt", "check", run)
    notes.call("postmortem.json", "postmortem", run, "--json", "--no-picture")
    notes.call("postmortem.txt", "postmortem", run, "--checklist", "--no-picture")
    written = sorted(Path(run, "postmortems").glob("*.md"))
    for path in [*written, *Path("runs").glob("lessons.md")]:
        notes.write(f"written-{path.name}", path.read_text(encoding="utf-8"))
    for path in written:
        notes.call(f"verify-{path.stem}.txt", "verify", str(path), run)
        notes.call(f"verify-{path.stem}.json", "verify", str(path), run, "--json")


def case_own(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """A program that is not the tutor, recorded with `steadyrun.record` and asked through `steadyrun.…`."""
    import torch

    import steadyrun

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = [(torch.randn(16, 8), torch.randint(4, (16,))) for _ in range(12)]

    def loss_fn(held: Any, batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(held(batch[0]), batch[1])

    with steadyrun.record("runs/own", config={"lr_max": 0.1, "num_classes": 4, "schedule": "constant"}) as run:
        run.watch(model, optimizer, loss_fn=loss_fn)
        for batch in batches * 5:
            loss = loss_fn(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.val(loss_fn(model, batches[0]).item(), batches=batches[:1])
        run.log(mine=1.5)
        run.note("a remark")
        run.incident("to see it again")
    _directory(notes, Path("runs/own"))
    notes.write("check.txt", f"{steadyrun.check('runs/own')}\n")
    notes.call("check-all.json", "check", "runs/own", "--all", "--json")
    task = steadyrun.Task(model, optimizer, loss_fn, loader=batches)
    notes.write("preflight.txt", f"{steadyrun.preflight(task)}\n")


def case_preflight(notes: Notes, case: Case, kept: Path | None, frozen: Path | None) -> None:
    """Try one of the programs of the tests."""
    Path("program.py").write_text("from same_cases import program\n", encoding="utf-8")
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
    "own": case_own,
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
    words = [Case("words", name) for name in ("help", "explain", "names", "errors")]
    return [*runs, Case("own", "classifier"), *served, *tried, *read, *words]
