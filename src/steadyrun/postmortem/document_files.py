"""Where a post-mortem is written: Markdown, JSON and a picture with one name, and the lesson beside the runs."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from steadyrun.errors import UsageError
from steadyrun.postmortem.document import Document, to_dict
from steadyrun.postmortem.document_markdown import inline, markdown
from steadyrun.report.json_text import dumps
from steadyrun.report.markdown import escape
from steadyrun.store.discover import plain
from steadyrun.store.jsonio import replace_file

# Section 7: one line, and the file beside the runs that collects such lines, each once.


NAME = "lessons.md"
_HEAD = "# Lessons\n\nOne line per post-mortem, written by `steadyrun postmortem`.\n\n"
_OPEN = b"- (open) "


def add(runs: Path, run: str, step: int, date: str, lesson: str) -> bool:
    """Write the lesson of one incident into `lessons.md` of a folder; whether the file changed.

    A lesson that is there stays as it is, so that a person may word it better; only a line that an earlier version
    wrote without a cause, marked `(open)`, is replaced.
    """
    path = runs / NAME
    mark = f"<!-- steadyrun {quote(run.encode('utf-8', 'backslashreplace'), safe='')} {step} -->".encode()
    line = _line(run, step, date, lesson) + b" " + mark
    lines = path.read_bytes().split(b"\n") if path.is_file() else _HEAD.encode().split(b"\n")
    at = next((index for index, written in enumerate(lines) if mark in written), None)
    if at is None:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [b""] * (not lines or not lines[-1].startswith(b"- ")) + [line, b""]
    elif lines[at].startswith(_OPEN):
        lines[at] = line
    else:
        return False
    _replace(path, b"\n".join(lines))
    return True


def _line(run: str, step: int, date: str, lesson: str) -> bytes:
    day = f"{date}, " if date else ""
    return f"- {day}{escape(run)}, step {step}: {inline(lesson)}".encode("utf-8", "backslashreplace")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


FOLDER = "postmortems"


@dataclass(frozen=True)
class Written:
    """The files; `problem` says why there is no picture, "" where there is one or none was wanted."""

    markdown: Path
    json: Path
    picture: Path | None
    problem: str = ""


def place(document: Document, to: Path | None) -> Path:
    """The Markdown file: RUN/postmortems/step-….md, or as asked; the others lie beside it."""
    if to is None:
        return document.case.run / FOLDER / f"{document.stem}.md"
    target = to.expanduser()
    if target.is_dir():
        return target / f"{document.stem}.md"
    if target.suffix.lower() != ".md":
        raise UsageError(f"--out {to} is neither a folder nor a name that ends in .md")
    if not target.parent.is_dir():
        raise UsageError(f"the folder of --out {to} does not exist: make it first")
    return target


def save(document: Document, to: Path | None = None, *, picture: bool = True, with_checklist: bool = False) -> Written:
    """Write the files; the JSON first, so that a Markdown file never names one that is not there."""
    target = place(document, to)
    if to is None and not plain(target.parent):
        raise UsageError(f"{target.parent} is a link, or holds one: nothing is written there. Give --out FOLDER.")
    target.parent.mkdir(exist_ok=True)
    image, problem = _picture(document, target.with_suffix(".png")) if picture else (None, "it was not asked for.")
    name = None if image is None else image.name
    replace_file(target.with_suffix(".json"), dumps(to_dict(document, name)) + "\n")
    path = shlex.quote(str(target.with_suffix(".json")))
    replace_file(target, markdown(document, path, name, problem, with_checklist=with_checklist))
    return Written(target, target.with_suffix(".json"), image, problem if picture else "")


def _picture(document: Document, target: Path) -> tuple[Path | None, str]:
    from steadyrun.postmortem.incident_picture import png

    try:
        target.write_bytes(png(document))
    except UsageError as problem:  # matplotlib is an extra
        return None, f"{problem}, then write this document again."
    return target, ""


def add_lesson(document: Document) -> Path | None:
    """Add the lesson to `lessons.md` beside the run.

    The file, or None where the lesson was there already, or where no cause is proved: then nothing was learned.
    """
    case = document.case
    if not document.root.known:
        return None
    runs = case.run.resolve().parent
    changed = add(runs, case.name, case.moment.step, case.date, document.lesson)
    return runs / NAME if changed else None
