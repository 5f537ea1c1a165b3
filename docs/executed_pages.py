"""Execute the pages that show commands, and refresh the output they show. `make docs` runs it; tests compare.

python docs/executed_pages.py [PAGE ...]    execute pages (default: all) and rewrite output that no longer agrees

Each page is executed from top to bottom in an empty folder:

- a block with a title, such as ```python title="train.py", is written to that file;
- a ```diff block with a title changes that file: its removed and unchanged lines must be there once;
- a ```console block has commands (`$ …`), each followed by its output, stdout and stderr as a terminal shows them;
  a command whose output has `error: ` must fail with exit code 2;
- a ```python block without a title is a program and must end well;
- `<!-- setup: COMMAND -->` is a command that the reader does not see.

Output agrees if its words are equal and each number differs by at most 5%, or by one in its last digit. Dates, times,
hashes, line breaks and counts of questions are not compared. So no page depends on the last bits of a CPU, or changes
when a question is added.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).parent
PAGES = [
    *(HERE / f"{name}.md" for name in ("index", "tutorial", "privacy", "troubleshooting")),
    *sorted((HERE / "how-to").glob("*.md")),
]
WIDTH = 100
ENDS_WELL = (0, 1, 3, 4)  # healthy, fault, cannot tell, suspect; 2 is a mistake in the command
PART = re.compile(
    r'^<!-- setup: (?P<setup>[^\n]+) -->$|^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ (?P<command>.*(?:\\\n.*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
NOT_COMPARED = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d\S*)?|(?<![\w.])\d+(?:\.\d+)? m?s\b|\b[0-9a-f]{12,}\b"
    r"|\d+ (?:passed|not answered|not applicable|more)\b"
)


@dataclass(frozen=True)
class Shown:
    """A command of a page, with the output that the page shows and the output that it gave."""

    command: str
    expected: str
    actual: str
    start: int  # of the expected output in the page
    end: int


def executed(page: str, folder: Path) -> Iterator[Shown]:
    """Execute a page in a folder, block by block."""
    for part in PART.finditer(page):
        if part["setup"]:
            run(part["setup"], folder)
        elif part["title"]:
            write(folder / part["title"], part["body"], change=part["kind"] == "diff")
        elif part["kind"] == "console":
            for typed in COMMAND.finditer(part["body"]):
                begin = part.start("body")
                start, end = begin + typed.start("output"), begin + typed.end("output")
                good = (2,) if "error: " in typed["output"] else ENDS_WELL
                yield Shown(typed["command"], typed["output"], run(typed["command"], folder, good), start, end)
        elif part["kind"] == "python":
            (folder / "snippet.py").write_text(part["body"])
            run("python snippet.py", folder, good=(0,))


def write(file: Path, text: str, *, change: bool) -> None:
    """Write a file of the page, or change it as a diff shows."""
    if change:
        lines = text.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[:1] in " -")
        new = "".join(line[1:] for line in lines if line[:1] in " +")
        before = file.read_text()
        if before.count(old) != 1:
            raise ValueError(f"{file.name}: the diff fits {before.count(old)} places, not one:\n{old}")
        text = before.replace(old, new)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def run(command: str, folder: Path, good: tuple[int, ...] = ENDS_WELL) -> str:
    """What a terminal shows of a command, wrapped; the folder is shown as /home/me."""
    bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {
        "PATH": bin_first,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode not in good or ("Traceback" in done.stdout and "Traceback" not in command):
        raise RuntimeError(f"$ {command}\n{done.stdout}\nexit status {done.returncode}")
    shown = done.stdout.replace(str(folder), "/home/me").strip("\n")
    return "".join(f"{line}\n" for long in shown.splitlines() for line in _wrapped(long))


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return wrap.wrap(line.rstrip()) if len(line) > WIDTH else [line.rstrip()]


def difference(expected: str, actual: str) -> str | None:
    """The first words that do not agree; None if all do."""
    pairs = zip_longest(_words(expected), _words(actual), fillvalue="(nothing)")
    return next((f"the page has {a!r}, the command printed {b!r}" for a, b in pairs if not _agree(a, b)), None)


def _words(text: str) -> list[str]:
    return NOT_COMPARED.sub("…", text).split()


def _agree(one: str, other: str) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    return all(_close(a, b) for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True))


def _close(one: str, other: str) -> bool:
    a, b = (float(number.replace(",", "")) for number in (one, other))
    return abs(a - b) <= max(0.05 * max(abs(a), abs(b)), 1.001 * max(_last_digit(one), _last_digit(other)))


def _last_digit(number: str) -> float:
    digits, _, exponent = number.partition("e")
    return float(10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])))


def refreshed(page: str) -> str:
    """The page with the output that its commands give now, if the shown output does not agree."""
    with tempfile.TemporaryDirectory() as folder:
        shown = list(executed(page, Path(folder)))
    for each in reversed(shown):
        if difference(each.expected, each.actual):
            page = page[: each.start] + each.actual + page[each.end :]
    return page


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or PAGES:
        before = path.read_text(encoding="utf-8")
        after = refreshed(before)
        path.write_text(after, encoding="utf-8")
        print(f"executed {path.name}: {'output refreshed' if after != before else 'output agrees'}", flush=True)
