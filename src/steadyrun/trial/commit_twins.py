"""Unchanged twins of the program at one commit, trained in a new process with that commit's modules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_START = (
    "import json, sys; given = json.loads(sys.stdin.readline()); sys.path[:] = given['path']; "
    "from steadyrun.trial.commit_twins import work; work(given)"
)
_EVERY = 0.05  # seconds between polls of a process
_LONGEST = 300  # characters of a process's last line


class TimeUp(Exception):  # noqa: N818  the budget ends the search
    """The budget ends during a commit."""


@dataclass(frozen=True)
class CommitProgram:
    """The program's location in the repository and its factory, the same at every commit."""

    top: Path  # of the user's checkout
    folder: Path  # the working directory, relative to it
    factory: str  # a file's path is relative to the top
    config: dict[str, Any]
    arguments: tuple[str, ...] = ()
    processes: int = 1


@dataclass(frozen=True)
class Answer:
    """The result of a commit's process."""

    steps: int = 0
    twins: list[dict[str, Any]] = field(default_factory=list)  # seed, starts, ends, measured_on, raised
    failure: str = ""  # why the program cannot be built
    elsewhere: str = ""  # the file of the factory's module, if it is outside the worktree


def train_commit(
    program: CommitProgram, tree: Path, scratch: Path, seeds: int, steps: int | None, each: float, deadline: float
) -> Answer:
    """Train the twins of all seeds, without `steps` for about `each` seconds each."""
    if not (tree / program.folder).is_dir():
        return Answer(failure=f"this commit has no folder {program.folder}")
    shares = [list(range(1 + place, seeds + 1, program.processes)) for place in range(program.processes)]
    answers: list[Answer] = []
    if steps is None:  # the first seed sets the number of steps
        first = _process(program, tree, scratch, shares[0][:1], None, each, deadline)
        if first.failure:
            return first
        steps, shares[0], answers = first.steps, shares[0][1:], [first]
    wanted = [share for share in shares if share]
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, len(wanted))) as threads:
        begun = [threads.submit(_process, program, tree, scratch, s, steps, each, deadline, stop) for s in wanted]
        try:
            answers += [future.result() for future in begun]
        finally:
            stop.set()  # Ctrl-C also ends the other processes
    failed = next((answer for answer in answers if answer.failure), None)
    twins = sorted((twin for answer in answers for twin in answer.twins), key=lambda twin: int(twin["seed"]))
    elsewhere = next((answer.elsewhere for answer in answers if answer.elsewhere), "")
    return failed or Answer(steps, twins, elsewhere=elsewhere)


def _process(
    program: CommitProgram,
    tree: Path,
    scratch: Path,
    seeds: list[int],
    steps: int | None,
    each: float,
    deadline: float,
    stop: threading.Event | None = None,
) -> Answer:
    """Run one process. Its answer is a file; its output is kept for the error message if it dies."""
    answer, printed = scratch / f"answer-{seeds[0]}.json", scratch / f"printed-{seeds[0]}.txt"
    answer.unlink(missing_ok=True)
    given = {
        "path": [str(Path(entry).resolve()) if entry else str(Path.cwd()) for entry in sys.path],
        "top": str(program.top),
        "tree": str(tree),
        "folder": str(tree / program.folder),
        "factory": program.factory,
        "config": program.config,
        "arguments": list(program.arguments),
        "seeds": seeds,
        "steps": steps,
        "each": each,
        "answer": str(answer),
    }
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START],
            cwd=tree / program.folder,
            env=_environment(program, tree),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it died before it could read; handled below
                process.stdin.write(json.dumps(given).encode() + b"\n")
                process.stdin.flush()
            while process.poll() is None:
                if time.monotonic() > deadline or (stop is not None and stop.is_set()):
                    raise TimeUp
                time.sleep(_EVERY)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with its children
            process.wait()
            with suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
    try:
        return Answer(**json.loads(answer.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Answer(failure=f"its process exited with status {process.returncode}{_last_words(printed)}")


def _environment(program: CommitProgram, tree: Path) -> dict[str, str]:
    """Variables without paths to the user's checkout, and without bytecode, which mixes up quick commits."""
    around = dict(os.environ)
    entries = [entry for entry in around.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    mapped = [str(_in_worktree(Path(entry).resolve(), program.top, tree) or entry) for entry in entries]
    around |= {"PYTHONPATH": os.pathsep.join(mapped)} if mapped else {}
    around |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if program.processes > 1 else {}
    return around | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


def _last_words(printed: Path) -> str:
    lines = [line for line in printed.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f": {lines[-1].strip()[:_LONGEST]}" if lines else ""


# -- in the process of a commit --------------------------------------------------------------------


def work(given: dict[str, Any]) -> None:
    """Train the requested twins and write the answer."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    import steadyrun.trial.trial  # noqa: F401  import the installed steadyrun first, even in its own repository

    _modules_of_commit(Path(given["top"]), Path(given["tree"]), given["folder"])
    answer = _trained(given)
    written = Path(given["answer"]).with_suffix(".part")
    written.write_text(json.dumps(answer), encoding="utf-8")
    written.replace(given["answer"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads of the program's loaders


def _leave_with_parent() -> None:
    """Exit when the parent ends and closes its end of the pipe."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _modules_of_commit(top: Path, tree: Path, folder: str) -> None:
    """Make imports come from the worktree instead of the user's checkout."""
    entries = []
    for entry in sys.path:
        mapped = _in_worktree(Path(entry), top, tree)
        if mapped is None:
            entries.append(entry)
        elif mapped.exists():
            entries.append(str(mapped))
    sys.path[:] = dict.fromkeys([folder, *entries])
    sys.path_importer_cache.clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__") and isinstance(mapping := getattr(module, "MAPPING", None), dict):
            for package, place in mapping.items():  # editable installs of setuptools
                mapping[package] = str(_in_worktree(Path(place), top, tree) or place)
        file = getattr(module, "__file__", None)
        own = name == "__main__" or name.partition(".")[0] == "steadyrun"
        if file and not own and _in_worktree(Path(file), top, tree) is not None:
            del sys.modules[name]


def _in_worktree(path: Path, top: Path, tree: Path) -> Path | None:
    """The worktree's counterpart of a path in the user's checkout; None if it is outside or in an environment."""
    if path.is_relative_to(tree) or not path.is_relative_to(top):
        return None
    environments = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    if any(path.is_relative_to(prefix) and prefix.is_relative_to(top) for prefix in environments):
        return None
    return tree / path.relative_to(top)


def _trained(given: dict[str, Any]) -> dict[str, Any]:
    from steadyrun.errors import SteadyrunError
    from steadyrun.trial.execution import MOST_STEPS, affordable_steps
    from steadyrun.trial.factor import OWN_TWIN
    from steadyrun.trial.program_source import Program
    from steadyrun.trial.twin import Twin
    from steadyrun.workers.job_execution import in_one_line

    source, _, function = given["factory"].rpartition(":")
    if source.endswith(".py"):
        source = str(Path(given["tree"]) / source)
    sys.argv = [source, *given["arguments"]]
    program, steps, twins = Program(f"{source}:{function}", given["config"]), given["steps"], []
    for seed in given["seeds"]:
        try:
            twin = Twin(program.built(seed), steps or MOST_STEPS)
            if steps is None:
                steps = affordable_steps(twin, given["each"])
                twin = twin if steps == twin.steps else Twin(program.built(seed), steps)
        except SteadyrunError as problem:
            return {"failure": " ".join(str(problem).split())}
        except Exception as problem:
            return {"failure": in_one_line(problem)}
        try:
            twins.append(_ends(twin, twin.train(OWN_TWIN, seed).as_json()) | {"seed": seed})
        except Exception as problem:
            twins.append({"seed": seed, "starts": {}, "ends": {}, "measured_on": "", "raised": in_one_line(problem)})
    return {"steps": steps, "twins": twins, "elsewhere": _elsewhere(source, Path(given["tree"]))}


def _ends(twin: Any, curve: dict[str, Any]) -> dict[str, Any]:
    losses = {split: values for split, values in curve["losses"].items() if values}
    starts = {split: values[0] for split, values in losses.items()}
    ends = {split: values[-1] for split, values in losses.items()}
    return {"starts": starts, "ends": ends, "measured_on": twin.data.measured_on, "raised": curve["raised"]}


def _elsewhere(source: str, tree: Path) -> str:
    """The module's file if it is not part of the commit."""
    file = None if source.endswith(".py") else getattr(sys.modules.get(source), "__file__", None)
    return str(file) if file and not Path(file).resolve().is_relative_to(tree) else ""
