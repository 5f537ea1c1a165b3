"""Make a new question with its case in the tests and its page in the docs.

python tools/new_question.py C4.3 loss-is-flat "Is the loss flat?"

It answers "not applicable" until its `find` is written, and its case in the tests says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from steadyrun.errors import UsageError
from steadyrun.report.limits import everything
from steadyrun.report.question_page import SECTIONS
from steadyrun.trees import QUESTIONS

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Places:
    """Where the questions of one letter live, from the root of the repository."""

    folder: str  # the files of the questions
    table: str  # the tree: which questions it imports, and the order in which it asks them
    cases: str  # the table of cases in the tests


_QUESTIONS, _TREES = "src/steadyrun/questions", "src/steadyrun/trees"
PLACES = {
    "C": Places(f"{_QUESTIONS}/configuration", f"{_TREES}/configuration.py", "tests/questions/cases.py"),
    "D": Places(f"{_QUESTIONS}/dynamics", f"{_TREES}/dynamics.py", "tests/questions/dynamics_cases.py"),
    "S": Places(f"{_QUESTIONS}/signatures", f"{_TREES}/signatures.py", "tests/questions/signature_cases.py"),
    "A": Places(f"{_QUESTIONS}/audits", f"{_TREES}/audits.py", "tests/questions/audit_cases.py"),
    "R": Places(f"{_QUESTIONS}/ranks", f"{_TREES}/ranks.py", "tests/questions/rank_cases.py"),
}
SECTIONS_TABLE = "src/steadyrun/report/question_page.py"
READING_ORDER = "tests/trees/test_walker.py"
PAGES = "docs/generate.py"

TEMPLATE = '''"""{code}: {asks_small}"""

from __future__ import annotations

from steadyrun.questions.form import Finding, Limits, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:  # noqa: ARG001  until it is written
    raise NotApplicable("this question is not written yet")


QUESTION = Question(
    code="{code}",
    name="{name}",
    asks={asks},
    why="This question is not written yet.",
    needs=("loss",),
    panel={panel},
    thresholds=(),
    outcomes=(),
    find=find,
)
'''

NEXT = """
Next:
- {file}: write `find`, and fill in why, needs, panel, thresholds and outcomes.
- {cases}: replace the case by small series where it fires, stays silent and cannot tell.
- {table}: it is asked after {neighbour}; move its line if it belongs elsewhere.{reading}
- `python tests/questions/golden.py --update FAULT` for the faults of the tutor that it finds; `make docs`; `make test`.
"""


def check(code: str, name: str, asks: str) -> None:
    """Refuse what is malformed or exists."""
    if not re.fullmatch(r"[A-Z][1-9]\d*\.[1-9]\d*", code):
        raise UsageError(f"{code!r} is not a code such as C4.3")
    if code[0] not in PLACES:
        more = "; for a probe of preflight see CONTRIBUTING.md" if code[0] == "P" else ""
        raise UsageError(f"a code begins with one of {', '.join(PLACES)}, not {code[0]!r}{more}")
    if code in everything():
        raise UsageError(f"{code} exists: {everything()[code].asks}")
    if (section := code.partition(".")[0]) not in SECTIONS:
        raise UsageError(f"section {section} has no title; add it to SECTIONS in {SECTIONS_TABLE} first")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"{name!r} is not a name such as loss-is-flat")
    if name.replace("-", " ") in {question.name for question in everything().values()}:
        raise UsageError(f"another question has the name {name.replace('-', ' ')!r}")
    if not re.fullmatch(r'[A-Z][^"\\\n]{2,97}\?', asks):
        raise UsageError(f'{asks!r} is not one question such as "Is the loss flat?", of 100 characters at most')


def neighbour(code: str) -> str:
    """The question of the same letter whose code comes before."""
    before = [each for each in QUESTIONS if each[0] == code[0] and _numbers(each) < _numbers(code)]
    if not before:
        raise UsageError(f"no question of {code[0]} comes before {code}; add it by hand")
    return max(before, key=_numbers)


def _numbers(code: str) -> list[int]:
    return [int(number) for number in code[1:].split(".")]


def listed(table: str, module: str, after: str) -> str:
    """The tree with the module behind its neighbour: where it is imported, and where it is asked."""
    lines = {
        rf"^    {re.escape(after)},\n": f"    {module},\n",
        rf"^    node\({re.escape(after)}\.QUESTION.*?\),\n(?=    node|\)\n)": f"    node({module}.QUESTION),\n",
    }
    for pattern, line in lines.items():
        table, count = re.subn(pattern, lambda found, line=line: found[0] + line, table, flags=re.MULTILINE | re.DOTALL)
        if count != 1:
            raise UsageError(f"the tree does not ask {after!r} once; see PLACES in {Path(__file__).name}")
    return table


def with_case(cases: str, code: str) -> str:
    """The table of cases with one more: not applicable."""
    head, mark, rest = cases.partition("\nCASES")
    body, end, tail = rest.partition("\n]")
    if not mark or not end:
        raise UsageError(f"there is no list CASES; see PLACES in {Path(__file__).name}")
    return f'{head}{mark}{body}\n    ("{code}", "not-applicable", run()),  # not written yet{end}{tail}'


def make(code: str, name: str, asks: str) -> str:
    """Write all files, or none; what is left to do."""
    check(code, name, asks)
    places, before = PLACES[code[0]], neighbour(code)
    module = f"{code.lower().replace('.', '_')}_{name.replace('-', '_')}"
    file, after = f"{places.folder}/{module}.py", QUESTIONS[before].find.__module__.rpartition(".")[2]
    texts = {
        file: TEMPLATE.format(
            code=code,
            name=name.replace("-", " "),
            asks=json.dumps(asks, ensure_ascii=False),
            asks_small=asks[0].lower() + asks[1:],
            panel=_numbers(code)[0] if code[0] == "S" else None,
        ),
        places.table: listed((ROOT / places.table).read_text(encoding="utf-8"), module, after),
        places.cases: with_case((ROOT / places.cases).read_text(encoding="utf-8"), code),
    }
    for path, text in texts.items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    reading = f"\n- {READING_ORDER}: add it to READING_ORDER." if code[0] == "S" else ""
    return NEXT.format(file=file, cases=places.cases, table=places.table, neighbour=before, reading=reading)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("code", help="such as C4.3")
    parser.add_argument("name", help="such as loss-is-flat")
    parser.add_argument("asks", help='such as "Is the loss flat?"')
    given = parser.parse_args()
    try:
        following = make(given.code, given.name, given.asks)
    except UsageError as why:
        parser.exit(2, f"{parser.prog}: {why}\n")
    pages = subprocess.run(
        [sys.executable, str(ROOT / PAGES)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    print(*(line for line in pages.stdout.splitlines() if given.code in line), sep="\n")
    print(following)


if __name__ == "__main__":
    main()
