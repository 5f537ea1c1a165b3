"""manifest.json: what the run declared, what was inferred, where it ran and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadyrun.errors import NewerSchemaError, RunDirectoryError
from steadyrun.store.jsonio import dumps, read_json, replace_file
from steadyrun.store.layout import MANIFEST, SCHEMA


def write_manifest(root: Path, manifest: dict[str, Any]) -> None:
    """Replace the manifest by rename."""
    replace_file(root / MANIFEST, dumps({"schema": SCHEMA, **manifest}, indent=1) + "\n")


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of the run in `root`; a clear error where it is none, damaged, or newer than this version."""
    path = root / MANIFEST
    try:
        manifest = read_json(path)
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{root} is not a run directory: it has no {MANIFEST}. Give the folder that steadyrun.record wrote."
        ) from None
    except (OSError, ValueError) as problem:
        raise RunDirectoryError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
        raise RunDirectoryError(f"{path} was not written by steadyrun: it has no schema number")
    if manifest["schema"] > SCHEMA:
        raise NewerSchemaError(
            f"{path} has schema {manifest['schema']}, this version of steadyrun reads up to {SCHEMA}: "
            "upgrade with `pip install --upgrade steadyrun`"
        )
    return manifest
