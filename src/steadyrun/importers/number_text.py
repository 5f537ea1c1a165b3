"""Numbers as logs spell them: NaN and infinity in every fashion, thousands separators, units, printed tensors."""

from __future__ import annotations

import math
import re

NUMBER = r"(?>[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)(?:\.\d+)?|\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?)"
SPECIAL = r"[-+]?(?:nan|inf(?:inity)?)(?![a-z]{3})"  # `nanms` is a NaN with a unit, `information` is a word
ANY = rf"(?:{SPECIAL}|{NUMBER})"
"""A number within a line of text; case is not minded. It is whole or none: no part of its digits is tried instead."""

_NAN = re.compile(r"^[-+]?(?:nan(?:\(\w*\))?|1\.#(?:qnan|snan|ind)\d*)", re.I)
_INF = re.compile(r"^([-+]?)(?:inf(?:inity)?|∞|1\.#inf\d*)", re.I)
_THOUSANDS = re.compile(r"^[-+]?\d{1,3}(?:[,'_ \u00a0\u202f]\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"^[-+]?\d*,\d+(?:[eE][-+]?\d+)?")
_WRAPPERS = frozenset({
    "tensor", "array", "devicearray", "ndarray", "variable", "parameter", "float", "bfloat", "int", "double", "scalar",
    "decimal", "eagertensor", "arrayimpl",
})  # fmt: skip
_WRAPPED = re.compile(  # `tf.Tensor(0.5, shape=(), dtype=float32)`, `tensor([0.5], grad_fn=<MeanBackward0>)`
    rf"(?<![\w.])(?P<type>[A-Za-z_][\w.]*+)\([\s\[(]*+(?P<number>{ANY})[\s\]]*+"
    r"(?:\)|,?\s*+$|,\s*+(?![-+.\d\[(])[^()<>]*+(?:(?:\([^()]*+\)|<[^<>]*+>)[^()<>]*+)*+\))"
    rf"|<[^<>]*?\bnumpy=[\s\[]*+(?P<inner>{ANY})[\s\]]*+>",  # `<tf.Tensor: shape=(), dtype=float32, numpy=0.5>`
    re.I,
)
_UNIT = re.compile(
    r"^(.*[\d.])\s*+(?:%|[a-zA-Zµ/]{1,12}|\([a-zA-Z ]{1,20}\)|(?:±|\+/-)\s*+[\d.]++(?:[eE][-+]?\d++)?%?)"
)
"""What may stand behind a number: a unit, a remark such as `(tracked)`, a spread."""
_LONGEST = 10_000  # characters of a number; more are a text, and would be read again and again
MISSING = frozenset({"", "-", "--", "none", "null", "na", "n/a", "<na>", "nil", "undefined", "missing"})


class TooLargeError(ValueError):
    """A finite number that no float can hold: not an infinity, so it is not read as one."""


def number(text: str) -> float | None:
    """The number that a text spells, or None. NaN and infinities are numbers that were logged."""
    plain = text.strip().strip("\"'")
    if len(plain) > _LONGEST:
        return None
    try:
        parsed = math.nan if "_" in plain else float(plain)
    except ValueError:
        return _unusual(plain)
    if "_" in plain:  # Python reads `12_0.5` as 120.5
        return _unusual(plain)
    if math.isinf(parsed) and not _INF.fullmatch(plain):
        raise TooLargeError(f"{plain[:40]} is larger than any float")
    return parsed


_CHANGE = re.compile(rf"(?<![\w.]){ANY}\s*+(?:-{{1,3}}>|={{1,2}}>|→)\s*+(?={ANY})", re.I)


def changed(line: str) -> str:
    """A text in which of a change such as `decreased (inf --> 0.31)` the newer number is left."""
    return _CHANGE.sub("", line) if ">" in line or "→" in line else line


def unwrapped(line: str) -> str:
    """A text in which a number that a framework prints with its type around it is the number alone."""
    return _WRAPPED.sub(_bare, line) if "(" in line or "numpy=" in line else line


def _bare(match: re.Match[str]) -> str:
    if match["inner"]:
        return match["inner"]
    kind = match["type"].rpartition(".")[2].lower().rstrip("0123456789_")
    return match["number"] if kind in _WRAPPERS else match[0]


def _unusual(plain: str) -> float | None:
    if plain.lower() in MISSING:
        return None
    if _NAN.fullmatch(plain):
        return math.nan
    if match := _INF.fullmatch(plain):
        return -math.inf if match[1] == "-" else math.inf
    if _THOUSANDS.fullmatch(plain):
        return float(re.sub(r"[,'_ \u00a0\u202f]", "", plain))
    if _DECIMAL_COMMA.fullmatch(plain):
        return float(plain.replace(",", "."))
    if (bare := unwrapped(plain)) != plain:
        return number(bare)
    if match := _UNIT.fullmatch(plain):
        return number(match[1])
    return None


def value(json_value: object) -> float | None:
    """A number out of JSON: numbers, and strings that spell one; a flag is not a measurement."""
    if isinstance(json_value, bool):
        return None
    if isinstance(json_value, int | float):
        try:
            return float(json_value)
        except OverflowError as problem:
            raise TooLargeError("an integer is larger than any float") from problem
    return number(json_value) if isinstance(json_value, str) and len(json_value) <= 200 else None
