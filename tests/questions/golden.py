"""The golden matrix of `golden.toml`: read it, compare a run with it, show it, update it.

python tests/questions/golden.py --show                  print the matrix, one sign per answer
python tests/questions/golden.py --update [FAULT ...]    train the tutor with these faults, or all, and rewrite rows
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import steadyrun
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS, SUSPECT
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked, walk
from steadyrun.tutor.faults import OF_ONE_PROCESS, load_recipe
from steadyrun.tutor.faults.tuning import TUNING_FAULTS
from steadyrun.tutor.train import train_recorded

TABLE = Path(__file__).with_name("golden.toml")
NEVER_A_FAULT = ("S1.4", "S1.5", "C7")
CODES = sorted(code for code in QUESTIONS if code[0] in "CDS" and not code.startswith(NEVER_A_FAULT))
SEEDS = (1, 2)

CERTAIN, NONE, OPEN, MAY_FOLLOW = "fault", "no fault", "no fault or cannot tell", "may follow"
ADMITS = {
    CERTAIN: {FAULT},
    NONE: {PASS, NOTE, NOT_APPLICABLE},
    OPEN: {PASS, NOTE, NOT_APPLICABLE, CANNOT_TELL},
    MAY_FOLLOW: {PASS, NOTE, NOT_APPLICABLE, CANNOT_TELL, SUSPECT, FAULT},
}
SIGNS = {CERTAIN: "F", NONE: ".", OPEN: "+", MAY_FOLLOW: "~"}


@dataclass(frozen=True)
class Row:
    """What is expected of a run: the answer of every code, the leaf with its outcome, the audits that find a fault.

    `headline` is what the report begins with; empty if that is not listed.
    """

    answers: dict[str, str]
    leaf: str
    audits: frozenset[str]
    headline: str = ""


@dataclass(frozen=True)
class Seen:
    """What one run showed."""

    kinds: dict[str, str]
    leaf: str
    audits: frozenset[str]
    headline: str = "none"


def rows(text: str | None = None) -> dict[str, Row]:
    """The whole matrix, by fault."""
    table = tomllib.loads(TABLE.read_text() if text is None else text)
    default = _answers({}, table.pop("default", {}))
    return {fault: _row(fault, dict(given), default) for fault, given in table.items()}


def _row(fault: str, given: dict[str, object], default: dict[str, str]) -> Row:
    if "leaf" not in given:
        raise ValueError(f"[{fault}] has no leaf")
    leaf, audits = str(given.pop("leaf")), given.pop("audits", [])
    assert isinstance(audits, list)
    headline = str(given.pop("headline", ""))
    return Row(_answers(default, given), leaf, frozenset(audits), headline)


def _answers(default: dict[str, str], given: dict[str, object]) -> dict[str, str]:
    """The answer of every code; the longest name that fits it decides."""
    names = {code: (code[0], code.partition(".")[0], code) for code in CODES}
    if unknown := set(given) - {name for code_names in names.values() for name in code_names}:
        raise ValueError(f"no question of the matrix has the code {min(unknown)!r}")
    if wrong := [answer for answer in given.values() if answer not in ADMITS]:
        raise ValueError(f"{wrong[0]!r} is not an answer; answers are: {', '.join(ADMITS)}")
    answers = {}
    for code in CODES:
        listed = [str(given[name]) for name in names[code] if name in given]
        answers[code] = listed[-1] if listed else default.get(code, NONE)
    return answers


def seen(view: steadyrun.RunView) -> Seen:
    """What every question answers on a recorded run, and what a check ends at."""
    path = walk(QUESTIONS, Signals(view), {}, go_on=True).path
    bad = [a for a in path if a.question.code not in CODES and (a.answer.kind == FAULT or a.answer.outcome == "failed")]
    report = steadyrun.check(view.root)
    return Seen(
        {a.question.code: a.answer.kind for a in path if a.question.code in CODES},
        _named(report.leaf),
        frozenset(f"{a.question.code} {a.answer.outcome}" for a in bad),
        _named(report.headline),
    )


def _named(asked: Asked | None) -> str:
    return "none" if asked is None else f"{asked.question.code} {asked.answer.outcome}"


def differences(row: Row, run: Seen) -> list[str]:
    """What a run shows that its row does not admit."""
    wrong = [
        f"{code}: {row.answers[code]} expected, {kind} found"
        for code, kind in run.kinds.items()
        if kind not in ADMITS[row.answers[code]]
    ]
    if not leaf_fits(row, run.leaf):
        wrong.append(f"leaf: {row.leaf} expected, {run.leaf} found")
    if row.headline and run.headline != row.headline:
        wrong.append(f"headline: {row.headline} expected, {run.headline} found")
    if run.audits != row.audits:
        wrong.append(f"audits: {sorted(row.audits)} expected, {sorted(run.audits)} found")
    return wrong


def leaf_fits(row: Row, leaf: str) -> bool:
    """Whether a check may end there: at the leaf of the row, or where either of the two may follow."""
    if "none" in (row.leaf, leaf):
        return row.leaf == leaf
    return row.leaf == leaf or any(row.answers.get(name.split()[0]) == MAY_FOLLOW for name in (row.leaf, leaf))


def compact(matrix: dict[str, Row]) -> str:
    """The matrix as a block of signs, a column per section: F fault, . none, + none or cannot tell, ~ may follow."""
    sections = {name: list(codes) for name, codes in groupby(CODES, lambda code: code.partition(".")[0])}
    width = max(len(name) for name in matrix)
    titles = " ".join(name.ljust(len(codes)) for name, codes in sections.items())
    lines = [f"{'':{width}}  {titles}  leaf  outcome"]
    for fault, row in matrix.items():
        signs = " ".join("".join(SIGNS[row.answers[code]] for code in codes) for codes in sections.values())
        code, _, outcome = row.leaf.partition(" ")
        lines.append(f"{fault:{width}}  {signs}  {code:4}  {outcome}".rstrip())
    return "\n".join(lines)


@dataclass
class Update:
    """The text of the table with one row brought up to date: what changed, and what only a person can decide."""

    text: str
    changed: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def put(self, fault: str, name: str, now: object, observed: list[Any]) -> None:
        """Write what all runs agree on."""
        if any(value != observed[0] for value in observed):
            self.undecided.append(f"{name}: {now} expected, {' and '.join(map(str, observed))} found")
            return
        self.text = put(self.text, fault, name, observed[0])
        self.changed.append(f"{name}: {now} -> {observed[0]}")


def updated(text: str, fault: str, runs: list[Seen]) -> Update:
    """Rewrite what the row does not admit. It never writes "may follow": where runs disagree, a person decides."""
    update = Update(text if f"[{fault}]" in text.splitlines() else f'{text.rstrip()}\n\n[{fault}]\nleaf = "none"\n')
    row = rows(update.text)[fault]
    for code, answer in row.answers.items():
        kinds = {run.kinds[code] for run in runs}
        if not kinds <= ADMITS[answer]:
            fitting = [admitted for admitted in (CERTAIN, NONE, OPEN) if kinds <= ADMITS[admitted]]
            update.put(fault, code, answer, fitting[:1] or sorted(kinds))
    if not all(leaf_fits(row, run.leaf) for run in runs):
        update.put(fault, "leaf", row.leaf, [run.leaf for run in runs])
    listed = row.headline or fault in TUNING_FAULTS
    if listed and not all(run.headline == row.headline for run in runs):
        update.put(fault, "headline", row.headline, [run.headline for run in runs])
    if not all(run.audits == row.audits for run in runs):
        update.put(fault, "audits", sorted(row.audits), [sorted(run.audits) for run in runs])
    return update


_ENTRY = re.compile(r'"?([\w.]+)"?\s*=\s*("[^"]*"|\[[^\]]*\])')
_ORDER = ("leaf", "headline", "audits")  # then the codes


def put(text: str, fault: str, name: str, value: str | list[str]) -> str:
    """The table with one value of a row changed, added or, if it says nothing new, left out; comments stay."""
    lines = text.splitlines(keepends=True)
    line_index, entry = _find(lines, fault, name)
    written = json.dumps(value)
    if entry is None:
        key = f'"{name}"' if "." in name else name
        return "".join([*lines[:line_index], f"{key} = {written}\n", *lines[line_index:]])
    lines[line_index] = entry.string[: entry.start(2)] + written + entry.string[entry.end(2) :]
    changed = "".join(lines)
    without = "".join(lines[:line_index] + lines[line_index + 1 :])
    commented = "#" in lines[line_index] or lines[line_index - 1].startswith("#")
    needless = name not in ("leaf", "headline") and not commented and rows(without)[fault] == rows(changed)[fault]
    return without if needless else changed


def _find(lines: list[str], fault: str, name: str) -> tuple[int, re.Match[str] | None]:
    """The line of an entry, or the line before which it belongs."""
    start = lines.index(f"[{fault}]\n")
    line_index = start + 1
    for number, line in enumerate(lines[start + 1 :], start + 1):
        if line.startswith("["):
            break
        entry = _ENTRY.match(line)
        if entry and entry[1] == name:
            return number, entry
        if entry and _rank(entry[1]) < _rank(name):
            line_index = number + 1
    return line_index, None


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name), "") if name in _ORDER else (len(_ORDER), name)


def trained(fault: str, folder: Path) -> Iterator[Seen]:
    for seed in SEEDS:
        root = folder / f"{fault}-{seed}" / fault
        train_recorded(load_recipe(fault, seed=seed, steps=OF_ONE_PROCESS[fault].steps), root)
        yield seen(steadyrun.open_run(root))


def update_table(faults: Iterable[str]) -> bool:
    """Bring the rows of these faults up to date and tell what changed; whether all could be decided."""
    decided = True
    for fault in faults:
        with tempfile.TemporaryDirectory() as folder:
            update = updated(TABLE.read_text(), fault, list(trained(fault, Path(folder))))
        if update.changed:
            TABLE.write_text(update.text)
        decided = decided and not update.undecided
        print(f"{fault}: {'; '.join(update.changed) or 'unchanged'}", flush=True)
        for line in update.undecided:
            print(f'  NOT WRITTEN, the seeds disagree: {line}. Is it a bug, or "may follow"? Decide, and write it.')
    return decided


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--show", action="store_true", help="print the matrix")
    what.add_argument("--update", nargs="*", metavar="FAULT", help="train, and rewrite rows")
    given = parser.parse_args()
    if given.show:
        print(compact(rows()))
        return 0
    if unknown := set(given.update) - set(OF_ONE_PROCESS):
        parser.error(f"there is no fault {min(unknown)!r}; there are: {', '.join(OF_ONE_PROCESS)}")
    return 0 if update_table(given.update or OF_ONE_PROCESS) else 1


if __name__ == "__main__":
    sys.exit(main())
