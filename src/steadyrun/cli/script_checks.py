"""What was typed instead of a Python script, and the folder of a run: wrong ones fail before anything runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steadyrun.cli.messages import as_typed, fail

if TYPE_CHECKING:
    from steadyrun.scripts.main_module import Target

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_SHELL = {".sh", ".bash", ".zsh", ".slurm", ".sbatch"}


def check_target(target: Target, arguments: list[str]) -> None:
    """Fail with the next step if this is not a Python script or module."""
    path = Path(target.name)
    if target.is_module:
        if path.suffix == ".py" and path.is_file():
            fail(
                f"{path} is a file, and -m takes the name of a module",
                f"leave out -m: {_run()} {shlex.quote(str(path))}",
            )
    elif not path.exists():
        _missing(target.name, arguments)
    elif path.suffix == ".ipynb":
        fail(f"{path} is a notebook", "write %load_ext steadyrun into its first cell, and run it as always")
    elif path.is_file() and _is_shell(path):
        fail(
            f"{path} is a shell script", f"name the Python script that it starts, or write {_run()} into it for python"
        )


def check_folder(folder: Path | None) -> None:
    """Fail if the folder that the user named cannot be written."""
    if folder is None:
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        fail(f"--dir {folder}: {there} is a file", "give a folder to record into")
    if not os.access(there, os.W_OK | os.X_OK):
        fail(f"--dir {folder}: {there} cannot be written", "give a folder that you may write to")


def _missing(name: str, arguments: list[str]) -> None:
    if _PYTHON.fullmatch(Path(name).name) and arguments:
        fail(f"{name} is not a script", f"leave it out: {_run()} {shlex.join(arguments)}")
    if shutil.which(name) is not None or Path(sys.executable).with_name(Path(name).name).exists():
        fail(
            f"{name} is a program, not a Python script",
            "let it start steadyrun, such as torchrun --nproc-per-node 2 -m steadyrun run train.py, or "
            "srun steadyrun run train.py",
        )
    fail(f"{name} does not exist", "give the path of a script, or -m and the name of a module")


def _is_shell(path: Path) -> bool:
    if path.suffix in _SHELL:
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and re.search(rb"\b(ba|z|da|k)?sh\b", first) is not None


def _run() -> str:
    return f"{as_typed('steadyrun')} run"
