"""The task: the user's training program as preflight, replay, trial and an exported script execute it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[..., "Task"]

_PASSING = (
    'pass its arguments after --, as in FILE.py:FUNCTION -- --data PATH, or parse them under if __name__ == "__main__":'
)


only_imported: ContextVar[bool] = ContextVar("only_imported", default=False)


class TrainsAtImport(BaseException):
    """Raised if importing a program starts to train. Not an `Exception`: its loop may catch those."""


@dataclass
class Task:
    """Training program for preflight, replay and trial: its objects, its loss and optionally its step.

    `loss_fn(model, batch)` returns the loss of one batch. `optimizer` may be a list. `train_step(task, batch)` is one
    whole optimizer step as the program writes it (autocast, accumulation, unscale, clip, schedule) and returns the
    undivided loss; an accumulated step gets the list of its micro-batches. Without it the step follows the recorded
    order. `loader` yields batches in the order of training. `val_loader`, `tokenizer` and `config` (as in
    `steadyrun.record`) let preflight test more. `step` is set to the number of the step being executed.
    """

    model: nn.Module
    optimizer: Any
    loss_fn: Callable[..., Any]
    scheduler: Any | None = None
    scaler: Any | None = None
    train_step: Callable[[Task, Any], Any] | None = None
    loader: Iterable[Any] | None = None
    step: int = 0
    val_loader: Iterable[Any] | None = None
    tokenizer: Any | None = None
    config: Mapping[str, Any] | None = None

    @property
    def optimizers(self) -> list[Any]:
        return list(self.optimizer) if isinstance(self.optimizer, list | tuple) else [self.optimizer]


def load_factory(name: str, given_as: str = "--factory") -> Factory:
    """The function that `module:function` (or `path/to/file.py:function`) names; this is what imports user code."""
    source, _, function = name.rpartition(":")
    if not source or not function:
        raise UsageError(f"{given_as} must look like module:function or file.py:function, not {name!r}")
    module = _imported(source, name, given_as)
    factory: Factory | None = getattr(module, function, None)
    if factory is None or not callable(factory):
        near = ", ".join(
            sorted(attribute for attribute, value in vars(module).items() if inspect.isfunction(value))[:8]
        )
        raise UsageError(f"{source} has no function {function!r}; it has: {near or 'none'}")
    return factory


def build_task(factory: Factory, config: Mapping[str, Any], name: str = "the factory") -> Task:
    """Call a factory that must return a `Task`, with the run's config if it takes an argument."""
    task = built(factory, config, name)
    if not isinstance(task, Task):
        raise UsageError(f"{name} must return a steadyrun.Task, not {type(task).__name__}")
    return task


def built(factory: Factory, config: Mapping[str, Any], name: str = "the factory") -> Any:
    """What a factory returns; its errors become a `UsageError`."""
    try:
        return factory(dict(config)) if takes_config(factory) and not _has_own_config(factory, config) else factory()
    except SystemExit as left:
        raise UsageError(f"{name} {_exited(left)}") from left
    except Exception as problem:
        raise UsageError(f"{name} raised {_described(problem)}") from problem


def takes_config(factory: Factory) -> bool:
    """Whether a factory takes the config: its first argument has no default, or None or a dict."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = next((parameter for parameter in parameters if parameter.kind in kinds), None)
    return first is not None and (first.default is first.empty or isinstance(first.default, Mapping | None))


def _has_own_config(factory: Factory, config: Mapping[str, Any]) -> bool:
    """Whether no configuration is given and the function has one of its own as its default."""
    first = next(iter(inspect.signature(factory).parameters.values()))
    return not config and isinstance(first.default, Mapping)


def _imported(source: str, name: str, given_as: str) -> Any:
    """The user's module; a clear error if importing it trains or exits."""

    try:
        with _only_imported():
            return _from_file(Path(source), name, given_as) if source.endswith(".py") else _from_path(source)
    except TrainsAtImport as problem:
        raise UsageError(
            f"importing {source} starts to train ({_where(problem)}), so it was stopped: only its function is wanted; "
            'put what trains under if __name__ == "__main__":'
        ) from problem
    except SystemExit as left:
        raise UsageError(f"importing {source} {_exited(left)}") from left


@contextmanager
def _only_imported() -> Iterator[None]:
    """An import neither trains nor records: a run that is being looked at would be written into."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def refuse(*_: Any) -> None:
        raise TrainsAtImport

    before, hook = only_imported.set(True), register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()
        only_imported.reset(before)


def _from_path(name: str) -> Any:
    """Import a module as `python -m` would see it: the working directory comes first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as problem:
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if missing is not None and name.split(".")[0] == missing.split(".")[0]:
            raise UsageError(
                f"no module named {name!r} here or among the installed packages; "
                "go to the folder of the training script, or name the file: path/to/file.py:function"
            ) from problem
        raise UsageError(f"importing {name} raised {_described(problem)}") from problem


def _from_file(path: Path, name: str, given_as: str) -> Any:
    """Import a file under its own name, whatever else has that name; modules beside it can be imported."""
    file = path.expanduser().resolve()
    if not file.is_file():
        raise UsageError(f"{given_as} names {path}, and there is no such file")
    if (folder := str(file.parent)) not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        hint = _as_module(file, name.rpartition(":")[2]) if "relative import" in str(problem) else ""
        raise UsageError(f"importing {path} raised {_described(problem)}{hint}") from problem
    return module


def _as_module(file: Path, function: str) -> str:
    """How to name a file that imports its neighbours relatively: by its package, from the folder above that."""
    names, folder = [file.parent.name, file.stem], file.parent.parent
    while (folder / "__init__.py").is_file():
        names, folder = [folder.name, *names], folder.parent
    return f"; it is a part of a package: name it {'.'.join(names)}:{function}, in the folder {folder}"


def _described(problem: Exception) -> str:
    """An exception of the user's code, with its file and line."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    hint = f"; {_PASSING}" if "argv" in (last.line or "") else ""
    return f"{type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno}){hint}"


def _where(problem: BaseException) -> str:
    """The line of the user's file that did it: the first one behind the machinery of importing."""
    frames = traceback.extract_tb(problem.__traceback__)
    line = next(frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename)
    return f"{Path(line.filename).name}:{line.lineno}"


def _exited(left: SystemExit) -> str:
    """How user code ended the process, for example by rejecting its command line, and what to do."""
    how = f"with the message {left.code!r}" if isinstance(left.code, str) else f"with status {left.code or 0}"
    given = shlex.join(sys.argv[1:]) or "none"
    return f"exited {how} (its arguments: {given}; what it printed is above): {_PASSING}"
