"""Where a post-mortem is written: Markdown, JSON and a picture with one name, and the lesson beside the runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from steadyrun.errors import UsageError
from steadyrun.postmortem import lessons
from steadyrun.postmortem.document import Document, to_dict
from steadyrun.postmortem.markdown import markdown
from steadyrun.report.jsonform import dumps
from steadyrun.store.finding import plain
from steadyrun.store.jsonio import replace_file

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
    from steadyrun.postmortem.picture import png

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
    changed = lessons.add(runs, case.name, case.moment.step, case.date, document.lesson)
    return runs / lessons.NAME if changed else None
