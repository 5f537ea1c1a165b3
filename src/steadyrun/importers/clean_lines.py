"""Bytes and lines of a log: encodings, progress bars, escape codes, lines that are cut off or far too long."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.log_rows import Anomalies

CHUNK = 2**20
ENCODED = 2**16  # bytes of the beginning that show the encoding
LONGEST_LINE = 8 * 2**20
LARGEST_JSON = 128 * 2**20

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\x08")
_ENDS = re.compile(r"(\r+\n?|\n|\x08{5,})")  # many backspaces: an old progress bar, drawn again in the same place
_CONTROLS = bytes({*range(8), *range(14, 27)})  # without the backspace: old progress bars step back
_HOLES = re.compile(rb"^\0+|\0{64,}")  # where a log was cut, or its disk lost a block, while a program wrote to it
_WHOLE = re.compile(r"[\s:=](?:nan|inf|-inf)\s*$", re.I)  # words that are not cut off in the middle
_FIXED = re.compile(r"^(?P<front>.*[\s,;|:=])[-+]?\d+\.(?P<decimals>\d+(?:[eE][-+]?\d+)?)\s*$", re.S)
_COUNT = re.compile(r"^(?P<front>.*[\s,;|:=#])(?P<count>\d{1,15})\s*$", re.S)
_NUMBERS = re.compile(r"[\d.]+")
_NOT_ASCII = re.compile(r"[\x80-\xff]+")
_LONGEST_FORM = 1_000  # characters at the end of a line that are compared
_MOSTLY = 0.9  # of the lines of a form have as many decimals, if a program prints them so: half a number has fewer
_REMEMBERED = 50  # lines before the last one among which one of its form is looked for
_UP_TO_LAST_WORD = re.compile(r"^.*[\s,;|]", re.S)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
COMPRESSED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}


def head(path: Path, size: int = 2**16) -> bytes:
    """The first bytes of a file; raises a clear error if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as problem:
        raise LogError(f"cannot read {path}: {problem.strerror or problem}") from problem


def encoding_of(start: bytes) -> str:
    """The encoding of a text: UTF-8, unless a byte order mark or the bytes themselves show another one."""
    marked = next((name for mark, name in _BOMS if start.startswith(mark)), None)
    if marked or b"\0" not in start:
        return marked or _without_mark(start)
    even, odd = start[::2].count(0) / len(start), start[1::2].count(0) / len(start)
    if max(even, odd) > 0.4 and min(even, odd) < 0.05:
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8"


def _without_mark(start: bytes) -> str:
    """UTF-8; if most other characters are invalid in it, the encoding of Chinese or of Western European systems.

    Chinese characters have two bytes each, so that runs of such bytes are even; an accented letter has one.
    """
    if start.isascii():
        return "utf-8"
    text = start.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    if wrong <= sum(not character.isascii() for character in text) - wrong:
        return "utf-8"
    runs = _NOT_ASCII.findall(start.decode("latin-1"))
    even = sum(len(run) % 2 == 0 for run in runs)
    return "gb18030" if even >= _MOSTLY * len(runs) else "cp1252"


def decoded(data: bytes) -> str:
    """Bytes as text for a first look: invalid characters are replaced."""
    encoding = encoding_of(data[:ENCODED])
    text = data.lstrip(b"\0") if not encoding.startswith("utf-16") else data
    return text.decode(encoding, "replace")


def binary(start: bytes) -> bool:
    """Whether these bytes are not text in any encoding that logs have."""
    if encoding_of(start[:ENCODED]).startswith(("utf-16", "utf-8-sig")) or not start:
        return False
    text = _HOLES.sub(b"", start)
    odd = len(text) - len(text.translate(None, _CONTROLS))
    return not text or b"\0" in text or odd > len(text) / 50


def lines(path: Path, anomalies: Anomalies) -> Iterator[tuple[int, str]]:
    """(number, text) of each line, also one for each redrawing of a progress bar, without escape codes.

    A last line without an end may be cut off in its last word, and half a number is another number: the word goes.
    """
    number, rest, read = 1, "", 0
    before: deque[str] = deque(maxlen=_REMEMBERED)
    decoder = codecs.getincrementaldecoder(encoding_of(head(path, ENCODED)))("replace")
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            read += len(chunk)
            anomalies.progress(read)
            text = decoder.decode(chunk)
            if "\0" in text:
                zeros = text.count("\0")
                anomalies.note("zero bytes", "left out", f"near byte {read - len(chunk):,}", zeros)
                text = text.replace("\0", "")
            if "\ufffd" in text:
                where = f"near byte {read - len(chunk):,}"
                anomalies.note("characters in another encoding", "replaced by �", where, text.count("\ufffd"))
            *whole, rest = _ENDS.split(rest + text)
            if not rest and whole and whole[-1].endswith(("\r", "\x08")):  # the end itself may go on
                rest = whole.pop()
                rest = whole.pop() + rest
            if len(rest) > LONGEST_LINE:
                raise LogError(
                    f"{path}, line {number:,}: longer than {LONGEST_LINE:,} characters. Export the log as text with "
                    "one row per line."
                )
            for part, end in zip(whole[::2], whole[1::2], strict=True):
                before.append(part)
                yield number, plain(part)
                number += end.endswith("\n")
    if rest.strip():
        *ended, last = _ENDS.split(rest)
        yield from ((number, plain(part)) for part in ended[::2])
        if last.strip():
            alike = [plain(line) for line in before]
            yield number, _without_last_word(plain(last), number, anomalies, alike)


def plain(line: str) -> str:
    """A text without the codes that colour it or move the cursor."""
    return _ESCAPES.sub("", line) if "\x1b" in line or "\x08" in line else line


def is_whole(last: str, before: Iterable[str]) -> bool:
    """Whether nothing is missing at the end of a last line: it is closed, or as long as those of its form."""
    if last.rstrip().endswith(("}", "]", ")", "|", "%", '"')) or _WHOLE.search(last):
        return True
    before = list(before)
    if (counts := _counts([*before, last])) is not None:
        return counts
    form = _fixed(last)
    alike = [other for line in before if (other := _fixed(line)) and form and other[0] == form[0]]
    return bool(alike) and sum(other == form for other in alike) >= _MOSTLY * len(alike)


def _counts(lines: list[str]) -> bool | None:
    """Whether the count at the end of the last line goes on as those before it did; None if it ends in no count."""
    ends = [_COUNT.match(line[-_LONGEST_FORM:]) for line in lines]
    if ends[-1] is None:
        return None
    form = _NUMBERS.sub("0", ends[-1]["front"])
    alike = [int(end["count"]) for end in ends if end and _NUMBERS.sub("0", end["front"]) == form]
    return len(alike) > 2 and alike[-1] - alike[-2] == alike[-2] - alike[-3]


def _fixed(line: str) -> tuple[str, int] | None:
    """The form of a line that ends in a number with decimals: the text around its numbers, and how many decimals."""
    match = _FIXED.match(line[-_LONGEST_FORM:])
    return (_NUMBERS.sub("0", match["front"]), len(match["decimals"])) if match else None


def _without_last_word(line: str, number: int, anomalies: Anomalies, before: Iterable[str]) -> str:
    if is_whole(line, before):
        return line
    anomalies.note(
        "a last line without an end", "its last word is left out because it may be cut off", f"line {number:,}"
    )
    match = _UP_TO_LAST_WORD.match(line)
    return match[0] if match else ""
