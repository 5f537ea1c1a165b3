"""The tool `postmortem`: the document of an incident. It is written to the run directory only where that is asked."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from steadyrun.agents.bounded_json import MOST, Answer, dumps, harmless, largest, short
from steadyrun.agents.run_names import NOT_WRITTEN, NOTHING, Problem, find, name_of, without
from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.postmortem.document import Document
from steadyrun.postmortem.document import write as composed
from steadyrun.postmortem.document_files import FOLDER, save
from steadyrun.postmortem.document_markdown import markdown
from steadyrun.store.discover import Root, plain
from steadyrun.store.run_summary import printable

_NO_PICTURE = "it was not asked for."


def postmortem(root: Root, run: str, step: int | None = None, write: bool = False) -> Answer:
    """The post-mortem of the gravest incident, or of the moment at `step`, as Markdown within JSON."""
    location = find(root, run)
    try:
        document = composed(location.path, step)
    except RunDirectoryError:
        raise
    except UsageError as problem:
        remedy = "check says how the run stands; give a step to write about any moment of it"
        raise Problem(NOTHING, short(without(root.path, str(problem))), remedy) from None
    files = _written(document, root) if write else None
    return _answer(name_of(location), document, _text(document, root), files)


def _text(document: Document, root: Root) -> str:
    name = _typed(document.case.run / FOLDER / f"{document.stem}.json", root)
    lines = markdown(document, shlex.quote(name), None, _NO_PICTURE).split("\n")
    return without(root.path, "\n".join(printable(line) for line in lines))


def _typed(path: Path, root: Root) -> str:
    """A path as one types it where the server was started; below the root where that is elsewhere."""
    here = os.path.relpath(path)
    return str(path.relative_to(root.path)) if here.startswith("..") else here


def _written(document: Document, root: Root) -> list[str]:
    """Write the files into the run directory, and nowhere else: not where a link leads."""
    folder = document.case.run / FOLDER
    remedy = "leave `write` out: the answer has the whole document"
    try:
        if not plain(folder):
            raise Problem(NOT_WRITTEN, f"{FOLDER} of the run holds links, or is one", remedy)
        files = save(document, None, picture=False)
    except OSError as problem:
        raise Problem(NOT_WRITTEN, f"{FOLDER} cannot be written: {problem.strerror}", remedy) from None
    return [_relative(path, root) for path in (files.markdown, files.json)]


def _relative(path: Path, root: Root) -> str:
    return short(str(path.relative_to(root.path)))


def _answer(run: str, document: Document, text: str, files: list[str] | None) -> Answer:
    moment, root = document.case.moment, document.root
    answer: Answer = {
        "run": run,
        "step": moment.step,
        "kind": moment.kind,
        "root_cause": harmless(root.to_dict()),
        "lesson": short(document.lesson),
        "written": files,
        "markdown": "",
        "cut": {},
    }

    def cut(keep: int) -> Answer:
        gone = {"markdown": len(text) - keep} if keep < len(text) else {}
        return answer | {"markdown": text[:keep], "cut": gone}

    return cut(largest(len(text), lambda keep: len(dumps(cut(keep))) <= MOST))
