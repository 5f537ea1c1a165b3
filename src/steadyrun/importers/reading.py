"""Bytes and lines of a log: encodings, progress bars, escape codes, lines that are cut off or far too long."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.told import Told

CHUNK = 2**20
LONGEST_LINE = 8 * 2**20
LARGEST_JSON = 512 * 2**20

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|\x08")
_ENDS = re.compile(r"\r\n|\n|\r")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
COMPRESSED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}


def head(path: Path, size: int = 2**16) -> bytes:
    """The first bytes of a file; a clear error where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as problem:
        raise LogError(f"cannot read {path}: {problem.strerror or problem}") from problem


def encoding_of(start: bytes) -> str:
    """The encoding of a text; UTF-8 unless a byte order mark says otherwise."""
    return next((name for mark, name in _BOMS if start.startswith(mark)), "utf-8")


def decoded(data: bytes) -> str:
    """Bytes as text for a first look: whatever is no text is replaced."""
    return data.decode(encoding_of(data), "replace")


def binary(start: bytes) -> bool:
    """Whether these bytes are no text in any encoding that logs have."""
    if encoding_of(start) != "utf-8" or not start:
        return False
    odd = sum(byte < 9 or 13 < byte < 27 for byte in start)
    return b"\0" in start or odd > len(start) / 50


def lines(path: Path, told: Told) -> Iterator[tuple[int, str]]:
    """(number, text) of each line, one for each redrawing of a progress bar, too, without escape codes.

    A last line without an end was cut off while it was written: it is left out, for half a number is another number.
    """
    number, rest, read = 0, "", 0
    decoder = codecs.getincrementaldecoder(encoding_of(head(path, 4)))("replace")
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            read += len(chunk)
            told.progress(read)
            text = decoder.decode(chunk)
            if "\ufffd" in text:
                told.odd(
                    "characters in another encoding",
                    "replaced by �",
                    f"near byte {read - len(chunk):,}",
                    text.count("\ufffd"),
                )
            parts = _ENDS.split(rest + text)
            rest = parts.pop()
            if len(rest) > LONGEST_LINE:
                raise LogError(f"{path}, line {number + 1}: longer than {LONGEST_LINE:,} characters. Is it a text?")
            for part in parts:
                number += 1
                yield number, _ESCAPES.sub("", part) if "\x1b" in part or "\x08" in part else part
    if rest.strip():
        told.odd("a last line without an end", "left out, for it may be cut off", f"line {number + 1}")
