"""Every number that decides an answer is a declared threshold: no question holds one of its own."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

import steadyrun

SOURCE = Path(steadyrun.__file__).parent
FREE = (0, 1, 2)  # and their negatives: nothing, one, two
DECLARE = {"Threshold", "Outcome", "Question"}
# Constants that may hold a number, and why it decides no answer.
EXCEPTIONS = {
    "_CLOSE": "config names: how much a misspelt name resembles a known one; decides a note about the config alone",
    "_LONG": "config names: letters of a name that can be misspelt; decides a note about the config alone",
    "_SHOWN": "presentation: how many names, steps or values a message lists",
    "_PER": "presentation: the unit of a measured number, per 100 or per 1,000 steps",
    "_ADVISED": "presentation: the values that a fix recommends",
    "_NEAR": "presentation: which of two factors a fix recommends",
    "_HARDLY": "presentation: a smaller change of the loss is not called a fall",
    "_GROWN": "presentation: a smaller growth is worded as none",
    "_TINY": "guard against a division by zero",
    "_POINTS": "method: points of a curve, where more change nothing",
    "_ENOUGH_POINTS": "method: points of a curve, where more change nothing",
    "_TRIES": "method: places around the start of a stair that are tried",
    "_OFTEN": "method: counts of scheduler steps per step that are tried",
    "_SELDOM": "method: counts of steps per scheduler step that are tried",
    "_HORIZONS": "method: lengths of a schedule that are tried",
    "_MOST_BATCHES": "method: batches among which a period is looked for, so that it takes no minutes",
    "_MOSTLY_NEW": "method: the part of a batch that must be new for a loss at first sight; the rest are duplicates",
    "_FEWEST_LOSSES": "method: losses in the mean of a level",
    "_MOST_LOSSES": "method: losses in the mean of a level",
    "_TWO_LEVELS": "method: with fewer points, two ranks near the median are those of single points",
    "_HALF": "method: swings are counted in the second half; gradients that agree at most steps are averaged",
    "_DRAWN_WHOLE": "presentation: ranks up to which a band covers all of them",
    "_WHOLE": "presentation: quantiles of a band over ranks",
    "_BAND": "presentation: quantiles of a band over ranks",
    "_FEWEST_RANKS": "presentation: ranks of which one is the farthest",
    "_PIECE": "method: numbers that are sorted at a time, so that memory is bounded",
    "_LAST_STEPS": "presentation: steps whose median is the usual duration",
    "_MOST_CELLS": "method: numbers of all ranks that are kept, so that memory is bounded",
    "_MOST_ROWS": "method: rows of all ranks that are read, so that time is bounded",
    "_MOST_HASHES": "method: hashes of all ranks that are kept, so that memory is bounded",
    "_COLUMNS": "method: columns of a rank, to divide the memory among them",
    "_FEWEST_STEPS": "method: steps of a column that are kept, however many ranks there are",
    "_FEWEST_ROWS": "method: rows of a rank that are read, however many ranks there are",
    "_MOST_RANKS": "method: ranks of an unknown structure whose blocks are compared, so that time is bounded",
    "_NAMED": "presentation: ranks that a message lists",
    "_STRETCH": "method: points that are looked through at once",
    "_GROWTH": "method: how far weights of one block of a moving average may lie apart",
    "_A_CURVE": "method: validations that make a curve, as the LOSSES of every question about one",
    "_A_FEW": "method: losses of which a fall throughout counts, without a curve",
    "_WITH_VALIDATION": "method: losses of which a fall throughout counts, if validation falls throughout as well",
    "_MANY": "method: values from which on levels are compared instead of single ones",
    "_FIFTH": "method: the part of the values that is a level",
    "_REACH": "method: neighbours with which a validation is smoothed",
    "_TENTH": "method: the first tenth of a loss is compared with its second half",
    "_EARLIEST": "method: points in the mean of the very start of a loss",
    "_SEED_LOSS": "unit: limits for the gap are in nats of a model with this first loss",
    "_TEN": "unit: decimal digits",
    "_EXACT": "format: the whole numbers that a double holds exactly",
    "_ENDLESS": "format: the length of a schedule that has none",
    "_ROUNDING": "guard against rounding",
    "_SQUARABLE": "guard against an overflow",
    "_RESOLUTION": "the record: how exactly the recorder keeps a dry run",
    "_MOST_KEPT": "the record: how many hashes the recorder keeps before it thins them",
    "_DIGITS": "suggest_clip: presentation",
    "_QUANTILE": "suggest_clip: the default of its argument",
    "_WINDOW": "suggest_clip: the default of its argument",
    "_GAPS_FROM": "presentation: points from which on panels show gaps",
    "_SAMPLED": "presentation: of these the usual spacing is taken",
    "_GAP": "the record: how wide a gap is, which panels show and which makes an excerpt",
    "_BLOCKS": "method: equal parts whose medians are compared",
    "_QUARTER": "method: a smoothed curve begins after its first quarter",
    "_FIRST": "method: points in the mean of the start of a loss",
    "SPAN": "method: the span of the smoothed loss",
    "OF_NORMAL": "method: from a median absolute deviation to a standard deviation",
    "_OF_MEDIAN": "method: from the standard error of a mean to that of a median",
    "SAME": "method: learning rates that differ by less are equal up to rounding",
    "_RANKED": "method: points that a rank test compares, where more change nothing",
    "_COUNTED": "method: points up to which every order is counted",
    "_KENDALL": "method: the variance of the score of a rank test",
    "_OF_NEIGHBOURS": "method: the variance of a value less the mean of its neighbours",
    "_STUDENT": "method: from few values to many, as Student's distribution",
    "_FEWEST_NEIGHBOURS": "method: values that have a noise",
    "_SPREAD": "method: values that have a spread of their own",
    "_FEWEST_POINTS": "method: points of a stretch whose median is taken",
    "_CLASSES": "arithmetic: numbers of classes whose logarithm is recognised in a loss",
    "_PERCENT": "unit: an accuracy in percent",
    "_CHANCE": "arithmetic: what a coin gives",
    "_IN_A_ROW": "the record: where it stops being finite, which is known before any question is asked",
    "STANDING": "the live monitor: when it reports what a question has answered",
    "_LARGEST": "input: the largest threshold that a user may set",
}


def _modules() -> list[Path]:
    return sorted((SOURCE / "questions").rglob("*.py")) + sorted((SOURCE / "signals").glob("*.py"))


MODULES = {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in _modules()}


def test_every_number_is_declared() -> None:
    declared = {name for tree in MODULES.values() for name in _values_of_thresholds(tree)}
    found = [
        f"{file}:{line}: {number!r}"
        for file, tree in MODULES.items()
        for line, number in _undeclared(tree, declared | set(EXCEPTIONS))
    ]
    assert not found, "\n".join(["make these thresholds of their question:", *found])


def test_no_number_is_imported_from_a_signal() -> None:
    """A constant of a signal counts as if it were written in the question."""
    found = [
        f"{file}:{line}: {name}"
        for file, tree in MODULES.items()
        if file.startswith("questions")
        for line, module, name in _imported(tree)
        if name not in EXCEPTIONS and _is_number(getattr(importlib.import_module(module), name))
    ]
    assert not found, "\n".join(["make these thresholds of their question:", *found])


def test_every_exception_is_needed() -> None:
    constants = {name for tree in MODULES.values() for statement in tree.body for name, _ in _assigned(statement)}
    imported = {name for tree in MODULES.values() for _, _, name in _imported(tree)}
    assert set(EXCEPTIONS) <= constants | imported


PLANTED = [
    "def find(run, limit):\n    return len(run) > 7",
    "def find(run, limit):\n    return run < -0.5 * limit['times']",
    "def find(run, limit):\n    return run.points('loss').mean_until(3)",
    "_LIMIT = 4.5\n",
    "def find(run, limit, fewest=20):\n    return fewest",
    "def find(run, limit):\n    return run[run > 25]",
    "def find(run, limit):\n    return run[: max(1, len(run) // 20)]",
    "def find(run, limit):\n    return f'{run:.3f} of {100 * run}'",
    "def find(run, limit):\n    _SHOWN = 9\n    return run > _SHOWN",
]


@pytest.mark.parametrize("source", PLANTED)
def test_a_planted_number_is_found(source: str) -> None:
    assert len(list(_undeclared(ast.parse(source), {"_SHOWN"}))) == 1


FINE = [
    "def find(run, limit):\n    return len(run) > 2 or run < -1.0",
    "def find(run, limit):\n    return run[-5:] > limit['times']",
    "def find(run, limit):\n    return f'{run:.3f} {run:>10}'",
    "_SHOWN = 5\n",
    "_SHOWN, _OTHER = 5, 1\n",
    "QUESTION = Question(thresholds=(Threshold(name='times', value=30),), panel=7)",
    "flag = True\n",
]


@pytest.mark.parametrize("source", FINE)
def test_nothing_else_is_found(source: str) -> None:
    assert not list(_undeclared(ast.parse(source), {"_SHOWN"}))


def _undeclared(tree: ast.Module, named: set[str]) -> Iterator[tuple[int, float]]:
    """Numbers outside of declarations, format specs, places in a sequence and constants with one of these names."""
    for statement in tree.body:
        constants = dict(_assigned(statement))
        if constants:
            for name, value in constants.items():
                yield from () if name in named else _numbers(value)
        else:
            yield from _numbers(statement)


def _numbers(node: ast.AST, *, place: bool = False) -> Iterator[tuple[int, float]]:
    if isinstance(node, ast.Call) and _name(node.func) in DECLARE:
        return
    if isinstance(node, ast.Constant) and _is_number(node.value) and not place and abs(node.value) not in FREE:
        yield node.lineno, node.value
    for field, child in _children(node):
        if not (isinstance(node, ast.FormattedValue) and field == "format_spec"):
            within = place or (isinstance(node, ast.Subscript) and field == "slice")
            # A mask such as values[steps < 25] compares, values[: length // 20] takes a fraction: neither is a place.
            yield from _numbers(child, place=within and not isinstance(child, ast.Compare | ast.BinOp | ast.Call))


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement of a module gives a value, each with its own: also in `A, B = 1, 2`."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        yield statement.target.id, statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from ((_name(name), part) for name, part in zip(target.elts, value.elts, strict=True))


def _values_of_thresholds(tree: ast.Module) -> Iterator[str]:
    """Names of constants that are the value of a threshold."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == "Threshold":
            for keyword in node.keywords:
                if keyword.arg == "value" and isinstance(keyword.value, ast.Name):
                    yield keyword.value.id


def _imported(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """What a module imports from signals: the line, the module and the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("steadyrun.signals"):
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
