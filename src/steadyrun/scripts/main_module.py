"""Executes a script or module as `__main__`, as `python script.py` and `python -m module` do."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
import traceback
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType


@dataclass(frozen=True)
class Target:
    """What to execute: the path of a script, or the name of a module."""

    name: str
    is_module: bool = False

    @property
    def title(self) -> str:
        """The name of a run of it."""
        return self.name.replace(".", "-") if self.is_module else Path(self.name).absolute().stem

    @property
    def typed(self) -> str:
        return f"-m {self.name}" if self.is_module else self.name


@dataclass(frozen=True)
class Ending:
    """How a script ended: the exit code that Python would give, and what it raised."""

    code: int
    failure: BaseException | None = None

    @property
    def interrupted(self) -> bool:
        return isinstance(self.failure, KeyboardInterrupt)


def execute(target: Target, arguments: list[str]) -> Ending:
    """Execute it to its end; a traceback is printed as Python prints it."""
    main = ModuleType("__main__")
    if "__annotations__" in vars(sys.modules["__main__"]):  # Python gives it to a script's module, and to no other
        main.__annotations__ = {}
    sys.modules["__main__"] = main  # it stays: what the script leaves to `atexit` may refer to it
    sys.argv = [target.name, *arguments]
    try:
        if target.is_module:
            _set_first_path(str(Path.cwd()))
            sys.argv[0] = "-m"
            runpy._run_module_as_main(target.name)  # type: ignore[attr-defined]
        else:
            _execute_file(Path(target.name), main)
    except SystemExit as ending:
        return Ending(_exit_code(ending), ending)
    except BaseException as failure:
        _print_failure(failure)
        return Ending(1, failure)
    return Ending(0)


def _execute_file(path: Path, main: ModuleType) -> None:
    if path.is_dir():
        _set_first_path(str(path))
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    _set_first_path(str(path.resolve().parent))
    whole = str(path.absolute())
    names = vars(main)
    names.update(__file__=whole, __cached__=None, __builtins__=builtins, __spec__=None)
    names["__loader__"] = SourceFileLoader("__main__", whole)
    exec(_compiled(whole), names)


def _compiled(path: str) -> CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _set_first_path(folder: str) -> None:
    """The folder of the script instead of that of `steadyrun`, unless we were imported from there."""
    if sys.flags.safe_path:
        return
    ours = Path(__file__).parents[2]
    if sys.path and Path(sys.path[0] or os.curdir).resolve() != ours:
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)


def _exit_code(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    sys.stderr.write(f"{ending.code}\n")
    return 1


def _print_failure(failure: BaseException) -> None:
    """Through `sys.excepthook`, which the script may have replaced, and without the frames before the script's."""
    failure.__traceback__ = _of_the_script(failure.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, failure.__traceback__
    try:
        sys.excepthook(type(failure), failure, failure.__traceback__)
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()


def _of_the_script(trace: TracebackType | None) -> TracebackType | None:
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return inner  # a syntax error has no frame of the script
