"""Tensors and their structure on disk: a safetensors file and a JSON file that knows its size and checksum.

Both are written beside their names and moved there when complete, the JSON last: a pair whose JSON is there is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.errors import RunDirectoryError, SteadyrunError, UsageError
from steadyrun.store.jsonio import dumps, read_json, regular_size, replace_file

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 1
_PIECE = 2**22  # bytes to write and to hash at once
_ALIGNED = 8  # bytes: where the tensors of a safetensors file begin
_KINDS = {  # names of safetensors for those of torch
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def require_safetensors() -> None:
    """A clear error where torch or safetensors is missing."""
    try:
        import safetensors.torch  # noqa: F401
    except ModuleNotFoundError as problem:
        raise UsageError('incidents need torch and safetensors: pip install "steadyrun[torch]"') from problem


def save(base: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write `base`.safetensors, then `base`.json with `content`."""
    target = base.with_name(f"{base.name}.safetensors")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        written, digest = write_tensors(temporary, tensors)
        seal = {"file": target.name, "bytes": written, "sha256": digest}
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    replace_file(base.with_name(f"{base.name}.json"), dumps({"schema": SCHEMA, "tensors": seal, **content}))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write a safetensors file; its size and checksum.

    Older versions of safetensors hold Python's lock while they write, which stops the training for as long.
    """
    ordered = sorted(tensors.items(), key=lambda entry: (-entry[1].element_size(), entry[0]))
    entries, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = _KINDS[str(tensor.dtype).removeprefix("torch.")]
        entries[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
    header += b" " * (-len(header) % _ALIGNED)
    digest, written = hashlib.sha256(), 0
    with path.open("wb") as file:
        for content in (len(header).to_bytes(8, "little"), header, *(_bytes(tensor) for _, tensor in ordered)):
            view = memoryview(content)
            for start in range(0, len(view), _PIECE):
                digest.update(view[start : start + _PIECE])
                written += file.write(view[start : start + _PIECE])
    return written, digest.hexdigest()


def _bytes(tensor: Tensor) -> Any:
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def load(base: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `save` wrote; a clear error for a file that is missing, cut off or changed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    content = load_json(base.with_name(f"{base.name}.json"))
    target = base.with_name(f"{base.name}.safetensors")
    seal = content.get("tensors")
    if not isinstance(seal, dict) or not isinstance(seal.get("sha256"), str):
        raise RunDirectoryError(
            f"{base.name}.json names no file of tensors: it was changed, or does not belong to a run"
        )
    try:
        size = regular_size(target)
    except OSError as problem:
        raise RunDirectoryError(f"{target} is missing: {problem.strerror or problem}") from problem
    if size != seal.get("bytes"):
        raise RunDirectoryError(
            f"{target} has {size} bytes and should have {seal.get('bytes')}: it was cut off or changed"
        )
    if checksum(target) != seal["sha256"]:
        raise RunDirectoryError(f"{target} is not what was written: its checksum differs, so it was changed or damaged")
    try:
        return content, load_file(target)
    except (SafetensorError, OSError, ValueError, KeyError) as problem:
        raise RunDirectoryError(f"{target} cannot be read: {problem}") from problem


def load_json(path: Path) -> dict[str, Any]:
    """A JSON object of ours, or a clear error."""
    try:
        content = read_json(path)
    except FileNotFoundError as problem:
        raise RunDirectoryError(f"{path} is missing") from problem
    except (OSError, ValueError) as problem:
        raise RunDirectoryError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise RunDirectoryError(f"{path} is not a file of steadyrun's incidents: it has no schema number")
    if content["schema"] > SCHEMA:
        raise RunDirectoryError(f"{path} has schema {content['schema']}, newer than this version knows ({SCHEMA})")
    return content


@contextmanager
def damage(what: object, how: str = "is damaged") -> Iterator[None]:
    """Around code that takes apart what was read: whatever it stumbles over is a damaged file, not a bug."""
    try:
        yield
    except SteadyrunError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise RunDirectoryError(f"{what} {how}: {type(problem).__name__} {problem}") from problem


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def place(source: Path, target: Path) -> None:
    """The file under a second name: a hard link where the filesystem has them, a copy otherwise."""
    import shutil

    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
