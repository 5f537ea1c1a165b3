"""The last good checkpoint of the attempts before: a resumed run keeps it, so that the seam can be looked into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.capture.checkpoints import EARLIER, Checkpoint
from steadyrun.errors import RunDirectoryError
from steadyrun.program import tensor_files
from steadyrun.store.jsonio import dumps, replace_file

SOON = 200  # steps after a resume in which an incident may come from it


def keep_earlier(folder: Path, attempt: int) -> Checkpoint | None:
    """Give the last good checkpoint found in `folder` the name `before-attempt-NNN`; None where there is none.

    Only the latest is kept. A process that is killed in between leaves it under its old name or under the new one.
    """
    latest = max(_good(folder), key=lambda good: (_number(good[1], "attempt"), _number(good[1], "step")), default=None)
    if latest is None:
        return None
    base, content = latest
    target = folder / f"{EARLIER}{attempt:03d}"
    if base != target:
        _rename(base, target, content)
    earlier = Checkpoint(_number(content, "step"), target, True)
    for path in folder.glob(f"{EARLIER}*"):
        if path not in earlier.files():
            path.unlink(missing_ok=True)
    return earlier


def _rename(base: Path, target: Path, content: dict[str, Any]) -> None:
    """The tensors change their name when the new JSON is there already: at any moment one of the two is whole."""
    old, new = (Checkpoint(0, path, True).files() for path in (base, target))
    named = {**content, "tensors": {**content["tensors"], "file": new[0].name}}
    replace_file(new[1], dumps(named))
    old[0].replace(new[0])
    old[1].unlink(missing_ok=True)


def _good(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Complete and finite checkpoints, with what they say of themselves."""
    for path in sorted(folder.glob("*.json")):
        try:
            content = tensor_files.load_json(path)
            size = path.with_suffix(".safetensors").stat().st_size
        except (RunDirectoryError, OSError):
            continue
        seal = content.get("tensors")
        if content.get("finite") is True and isinstance(seal, dict) and seal.get("bytes") == size:
            yield path.with_suffix(""), content


def _number(content: dict[str, Any], name: str) -> int:
    number = content.get(name, 0)
    return number if isinstance(number, int) else 0
