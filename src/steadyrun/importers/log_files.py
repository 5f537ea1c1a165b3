"""Which logs lie at a path: one file, a folder that is one run, or a folder with many of them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import COMPRESSED, binary, decoded, head, plain
from steadyrun.importers.formats import FORMATS, trainer_state
from steadyrun.importers.log_rows import FileSample, Format
from steadyrun.store.layout import MANIFEST

_LOGS = {
    ".log", ".txt", ".md", ".out", ".err", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".wandb", ".db",
    ".sqlite", ".sqlite3",
}  # fmt: skip
_NO_LOGS = re.compile(
    r"^(?:wandb-summary|wandb-metadata|config|args|params|hparams|tokenizer\w*+|vocab|merges|special_tokens_map|generation_config|"
    r"preprocessor_config|adapter_config|training_args|all_results|train_results|eval_results|package(?:-lock)?|"
    r"requirements\w*+|readme|changelog|model\.safetensors\.index|pytorch_model\.bin\.index|debug|debug-internal|manifest|report)"
    r"(?:[\w.-]*\.json|\.txt|\.log|\.md)",
    re.I,
)
_PLAIN = {"log", "stdout", "stderr", "output"}  # names of logs without an ending
_NUMBER, _NUMBERS = re.compile(r"\d"), re.compile(r"\d[\d.]*+")
_PAGES = {".md"}  # endings of texts that people write; some programs give them to their logs
_AGAIN, _MOSTLY = 3, 0.5  # a log has lines that differ in their numbers alone this often, and has little else
_ABOUT = re.compile(r"\b(?:loss|step|epoch|iter)", re.I)
_MOST_LINES, _SHOWN = 2_000, 120  # lines looked at for a message, and characters of one
_DEEPEST, _MOST = 12, 100_000


@dataclass(frozen=True)
class LogPlace:
    """One run that can be imported."""

    path: Path
    format: Format
    name: str
    key: str = ""
    named: bool = False  # the format was given, not detected
    found: bool = False  # in a folder: it may not be a log


def format_named(name: str) -> Format:
    """A format by its name; raises a clear error if there is none."""
    known = next((form for form in FORMATS if form.name == name), None)
    if known is None:
        names = [form.name for form in FORMATS]
        near = get_close_matches(name, names, n=1)
        nearest = f"; the nearest is {near[0]!r}" if near else ""
        raise LogError(f"there is no format {name!r}{nearest}. Formats are {', '.join(names)}.")
    return known


def places(source: Path, form: str | None = None) -> list[LogPlace]:
    """The runs at a path, in order; raises an error if there is none."""
    if not source.exists():
        raise LogError(f"{source} does not exist. Check the path.")
    wanted = format_named(form) if form else None
    if not source.is_dir() and not source.is_file():
        raise LogError(f"{source} is neither a file nor a folder. Give a log or a folder of logs.")
    locations = list(_below(source, wanted, source)) if source.is_dir() else _in_file(source, wanted)
    locations = [location for location in locations if not location.format.alone] or locations
    found = source.is_dir() and len(locations) > 1
    locations = [replace(location, named=wanted is not None, found=found) for location in locations]
    if not locations:
        what = f"of the format {form}" if form else "of any known format"
        raise LogError(f"{source}: no file in it is a log {what}. Give a file, or name its format with --format.")
    return _distinct(locations)


def _in_file(path: Path, wanted: Format | None) -> list[LogPlace]:
    form = wanted or _detected(path)
    try:
        if locations := _parts(path, form):
            return locations
        raise LogError(f"{path} has no run that reads as {form.title}.")
    except LogError as problem:
        raise (misnamed(str(problem), form) if wanted else problem) from None


def misnamed(problem: str, form: Format) -> LogError:
    """What was wrong with a log whose format was given: it may be another one."""
    ended = problem if problem.endswith((".", "?")) else f"{problem}."
    return LogError(
        f"{ended} It was read as {form.name}, the format given: leave that out to have it detected, "
        "or see `steadyrun import --formats`."
    )


def _detected(path: Path) -> Format:
    sample = FileSample(path, head(path))
    if not sample.head:
        raise LogError(f"{path} is empty: give a file to which something was logged")
    packed = next((name for magic, name in COMPRESSED.items() if sample.head.startswith(magic)), None)
    if packed:
        raise LogError(f"{path} is compressed ({packed}): unpack it first")
    known = next((form for form in FORMATS if form.detect(sample)), None)
    if known is None:
        raise LogError(
            f"{path} does not look like a known log{_not_understood(sample)}. Lines such as `step 10 loss 2.5` and "
            "tables with a line of names are read; or name its format with --format: `steadyrun import --formats` "
            "lists them."
        )
    return known


def _not_understood(sample: FileSample) -> str:
    """The first line with numbers in it, the most likely one first: what a reader would have to know."""
    if binary(sample.head):
        return ": it is binary"
    numbered = [
        (number, plain(line).strip()[:_SHOWN])
        for number, line in enumerate(decoded(sample.head).splitlines()[:_MOST_LINES], start=1)
        if _NUMBER.search(line[:_SHOWN])
    ]
    if not numbered:
        return ": its first lines have no numbers"
    number, line = next((each for each in numbered if _ABOUT.search(each[1])), numbered[0])
    return f". Line {number:,} was not understood: {line!r}"


def _parts(path: Path, form: Format) -> list[LogPlace]:
    if form.parts is None:
        return [LogPlace(path, form, _name(path))]
    return [LogPlace(path, form, part.name or _name(path), part.key) for part in form.parts(path)]


def _below(folder: Path, wanted: Format | None, root: Path) -> Iterator[LogPlace]:
    """Runs in a folder and below it; links are not followed."""
    for visited, (at, folders, files) in enumerate(os.walk(folder)):
        here = Path(at)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not (here / name).is_symlink())
        if len(here.relative_to(root).parts) >= _DEEPEST or visited > _MOST:
            folders.clear()
        if _is_run(here):
            folders.clear()
            continue
        taken = next((form for form in FORMATS if form.folder and (wanted in (None, form)) and form.folder(here)), None)
        if taken is not None:
            folders.clear()
            yield from _parts(here, taken)
            continue
        state = trainer_state.newest(here)
        if state is not None and wanted in (None, trainer_state.FORMAT):
            folders[:] = [name for name in folders if not name.startswith("checkpoint-")]
            yield LogPlace(state, trainer_state.FORMAT, here.resolve().name)
            if trainer_state.whole(here):
                continue
            files = [name for name in files if name != trainer_state.NAME]
        for form in FORMATS:
            if form.take and wanted in (None, form):
                yield from (LogPlace(here, form, part.name, part.key) for part in form.take(here, folders, files))
        for name in sorted(files):
            yield from _file(here / name, wanted)


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run directory of our own: its files are not logs."""
    return (folder / MANIFEST).is_file() and (folder / "metrics").is_dir()


def _file(path: Path, wanted: Format | None) -> Iterator[LogPlace]:
    endings = {ending.lower() for ending in path.suffixes[-2:]}  # also `train.log.1`
    plausible = bool(endings & _LOGS) or "tfevents" in path.name or path.name.lower() in _PLAIN
    if not plausible or path.is_symlink() or _NO_LOGS.fullmatch(path.name) or not path.is_file():
        return
    try:
        form = _detected(path)
        if wanted in (None, form) and not (endings & _PAGES and _is_page(path)):
            yield from _parts(path, form)
    except LogError:
        return  # a folder has files of all kinds; those that are not logs are passed over


def _is_page(path: Path) -> bool:
    """Whether a text was written for people and shows some lines of a log; a log says the same again and again."""
    lines = [line for line in decoded(head(path)).splitlines()[:_MOST_LINES] if line.strip()]
    shapes = Counter(_NUMBERS.sub("0", line) for line in lines if _NUMBER.search(line))
    return sum(count for count in shapes.values() if count >= _AGAIN) < _MOSTLY * len(lines)


def _name(path: Path) -> str:
    """What a run is called: the file's name, or the folder's where files are always called the same."""
    if path.is_dir():
        return path.resolve().name
    if path.stem in {
        "trainer_state",
        "metrics",
        "results",
        "history",
        "log",
        "train",
        "main",
        "output",
        "training",
        "train_log",
    }:
        parent = path.resolve().parent
        folder = parent.parent.name if parent.name in {"files", "logs", "csv"} else parent.name
        if folder:
            return (
                folder if path.stem in {"trainer_state", "metrics", "results", "history"} else f"{folder}-{path.stem}"
            )
    return path.stem


def _distinct(locations: list[LogPlace]) -> list[LogPlace]:
    """The same places, none with the name of another."""
    names: set[str] = set()
    tails: Counter[str] = Counter()
    distinct = []
    for location in locations:
        name = location.name
        while name in names:
            tails[location.name] += 1
            name = f"{location.name}-{tails[location.name] + 1}"
        names.add(name)
        distinct.append(replace(location, name=name))
    return distinct
