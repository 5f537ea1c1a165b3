"""The fix of a trial: a patch of the config file, or lines of code."""

from __future__ import annotations

import copy
import difflib
import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.text import counted, percent, shown
from steadyrun.trial import json_values
from steadyrun.trial.fix_values import Facts, Values, code_lines, config_values
from steadyrun.trial.result import Trial
from steadyrun.trial.statistics import effect, spread
from steadyrun.trial.verdict import FAULT, IMPROVEMENT

_CLOSED = 0.5  # fraction of the winning gain below which the fixed program differs from the twin
_NOTHING = 0.1  # fraction of that gain below which the fixed program trains as before

OnTwin = Callable[[int, int, str, str], None]


@dataclass(frozen=True)
class Fix:
    """The winning change as config values, lines of code, or advice."""

    factor: str
    words: str
    config: Mapping[str, Any] | None = None  # the whole config with the new values
    changes: tuple[tuple[str, Any, Any], ...] = ()  # path, value before, value after
    file: Path | None = None
    patched: str = ""  # the text of the file with the new values
    patch: str = ""  # unified diff, for `patch -p0` or `git apply -p0` in `folder`
    folder: Path | None = None
    code: tuple[str, ...] = ()
    text: str = ""

    def apply(self) -> Path:
        """Write the new values into the config file."""
        if self.file is None or not self.patch:
            raise ValueError("this fix has no file to change; give fix_of a config_file with these values")
        self.file.write_bytes(self.patched.encode("utf-8"))  # in place, to keep the permissions
        return self.file

    def lines(self) -> list[str]:
        """The fix as lines for a terminal."""
        lines = [f"fix: {self.text or self.words}"]
        lines += [f"  {path}: {_plain(new)}  (was {_plain(old)})" for path, old, new in self.changes]
        lines += [f"  {line}" for line in self.code]
        if self.patch:
            lines += [f"  patch of {self.file}, for patch -p0 or git apply -p0 in {self.folder}:", ""]
            lines += self.patch.removesuffix("\n").split("\n")
        elif self.file is not None and self.changes:
            lines.append(f"  {self.file} does not have these values: change them in the code that builds the config.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {
            "factor": self.factor,
            "words": self.words,
            "changes": [{"path": path, "before": old, "after": new} for path, old, new in self.changes],
            "config": None if self.config is None else dict(self.config),
            "file": None if self.file is None else str(self.file),
            "patch": self.patch,
            "code": list(self.code),
            "text": self.text,
        }


def fix_of(trial: Trial, config_file: Path | None = None) -> Fix | None:
    """The fix of a trial; None if it found none."""
    verdict = trial.verdict
    if verdict.kind not in (FAULT, IMPROVEMENT) or not (verdict.factor or verdict.fix):
        return None
    factor, facts = trial.table.factor(verdict.factor), Facts(trial.settings, trial.steps)
    words = factor.words if verdict.factor else verdict.message
    values = config_values(factor, trial.config, facts)
    if not values:
        code = tuple(code_lines(factor, facts))
        says = bool(code or verdict.fix) or trial.table.is_setting(
            verdict.factor
        )  # changed data is an experiment, not a fix
        return Fix(verdict.factor, words, code=code, text=verdict.fix) if says else None
    changes = tuple((_dotted(path), _at(trial.config, path), value) for path, value in values.items())
    file = _file(config_file, lambda content: config_values(factor, content, facts))
    config = _with(trial.config, values)
    if file is None:
        return Fix(verdict.factor, words, config, changes, config_file, text=verdict.fix)
    patched, patch, folder = file
    return Fix(verdict.factor, words, config, changes, config_file, patched, patch, folder, text=verdict.fix)


def _with(config: Mapping[str, Any], values: Values) -> dict[str, Any]:
    whole = copy.deepcopy(dict(config))
    for path, value in values.items():
        inner: Any = whole
        for key in path[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
        inner[path[-1]] = value
    return whole


def _at(config: Any, path: json_values.Path) -> Any:
    for key in path:
        known = key in config if isinstance(config, Mapping) else isinstance(config, list | tuple)
        config = config[key] if known else None
    return config


def _dotted(path: json_values.Path) -> str:
    return ".".join(map(str, path))


def _plain(value: Any) -> str:
    return json.dumps(value, default=str)


# -- the file ---------------------------------------------------------------------------------------


def _file(path: Path | None, values: Callable[[Mapping[str, Any]], Values]) -> tuple[str, str, Path] | None:
    """The text of a JSON file with the new values, its diff, and the folder to apply it in."""
    if path is None:
        return None
    try:
        text = path.read_bytes().decode("utf-8")
        content = json.loads(text)
    except (OSError, ValueError):
        return None
    found = values(content) if isinstance(content, dict) else {}
    patched = json_values.with_values(text, found)
    if not found or json.loads(patched) != _as_json(_with(content, found)):
        return None
    here, file = Path.cwd().resolve(), path.resolve()
    folder = here if file.is_relative_to(here) else file.parent
    return patched, unified(text, patched, file.relative_to(folder).as_posix()), folder


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def unified(before: str, after: str, name: str) -> str:
    """A unified diff for `patch` and `git apply`, also of a file without a final newline."""
    label = f"{name}\t" if " " in name else name  # GNU diff marks the end of such a name this way
    lines = difflib.unified_diff(_split(before), _split(after), label, label, lineterm="\n")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _split(text: str) -> list[str]:
    """Lines with their newlines, the only line end that `patch` knows."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


# -- verification -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verified:
    """Whether the fixed program ends at the loss of the winning twin; None if it did not train."""

    is_fixed: bool | None
    line: str

    def to_dict(self) -> dict[str, Any]:
        return {"verified": self.is_fixed, "message": self.line}


def verified(
    fix: Fix,
    factory: str | Callable[..., Any],
    trial: Trial,
    *,
    budget: float | None = None,
    on: str | Executor | None = None,
    on_twin: OnTwin | None = None,
) -> Verified:
    """Train twins of the program with the fixed config, and compare them with the winning twins."""
    from steadyrun.trial.trial import BUDGET
    from steadyrun.trial.trial import trial as tried

    winning = trial.table.curves.get(fix.factor, {})
    if fix.config is None or not winning:
        return Verified(
            None, "not verified: the config does not have this setting. Make the change, then run the trial again."
        )
    if trial.start != "the first weights":
        return Verified(None, f"not verified: the twins start from {trial.start}. Run the fixed program.")
    again = tried(
        factory,
        config=fix.config,
        seeds=max(winning),
        steps=trial.steps,
        budget=BUDGET if budget is None else budget,
        on=on,
        on_twin=on_twin,
    )
    own, now = trial.table.own, again.table.own
    shared = sorted(set(winning) & set(now) & set(own))
    before, won, fixed = ([twins[seed].end(trial.table.split) for seed in shared] for twins in (own, winning, now))
    return _compared(before, won, fixed, trial.table.attainable)


def _compared(own: list[float], winning: list[float], fixed: list[float], size: float) -> Verified:
    if not fixed:
        return Verified(None, "not verified: the budget ended before a twin did. Give a larger --budget.")
    if not all(map(math.isfinite, fixed)):
        return Verified(False, "not fixed: with the new config a twin fails or its loss is not finite.")
    before, won, now = (sum(each) / len(each) for each in (own, winning, fixed))
    scale = size if math.isfinite(size) and size > 0 else max(abs(won), 1e-12)
    found = effect(winning, fixed, max(spread(winning), spread(fixed)), scale)
    interval = (
        f"difference {percent(found.mean)} of the attainable fall, {percent(found.low)} to "
        f"{percent(found.high)}, {counted(len(fixed), 'seed')}"
    )
    losses = (
        f"the loss ends at {shown(now)}, the winning twin at {shown(won)}, unchanged at {shown(before)} ({interval})"
    )
    closed = (before - now) / (before - won) if math.isfinite(before) and before != won else 1.0
    if closed < _NOTHING:
        return Verified(False, f"not fixed: {losses}. The program may not read this config value.")
    if found.high < 0 or closed < _CLOSED:
        return Verified(False, f"not fixed: {losses}.")
    return Verified(True, f"verified: with the new config {losses}.")
