"""Numbers, times and lists of names as messages print them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

_DIGITS = 3
_MOST_DIGITS = 9
_LARGE, _HUGE, _TINY = 3, 6, -3  # powers of ten: separators from the first on, exponents beyond the others
_LISTED = 3  # of a list of names


def shown(value: float, digits: int = _DIGITS) -> str:
    """A number with three significant digits: 0.481, 12,300, 1.77e7. Whole numbers below a million keep all digits."""
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    if number == int(number) and abs(number) < 10**_HUGE:
        return f"{number:,.0f}"
    mantissa, _, power = f"{number:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if exponent >= _HUGE or exponent < _TINY:
        return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"
    if exponent >= _LARGE:
        return f"{float(f'{mantissa}e{exponent}'):,.{max(0, digits - 1 - exponent)}f}"
    return f"{number:.{digits}g}"


def apart(*values: float) -> tuple[str, ...]:
    """Numbers with as many digits as it takes to see that they differ."""
    different = len(set(values))
    for digits in range(_DIGITS, _MOST_DIGITS):
        texts = tuple(shown(value, digits) for value in values)
        if len(set(texts)) == different:
            return texts
    return tuple(shown(value, _MOST_DIGITS) for value in values)


def normally(level: float, sigma: float) -> str:
    """The usual range beside an odd value, such as "normally 0.48 ± 0.03"; the level ends at the digit of its σ."""
    if not (math.isfinite(level) and math.isfinite(sigma)) or sigma <= 0:
        return f"normally {shown(level)}"
    decimals = min(max(0, -math.floor(math.log10(sigma))), _MOST_DIGITS)
    if decimals > _DIGITS + 1 or abs(level) >= 10**_LARGE:
        return f"normally {shown(level)} ± {shown(sigma, 1)}"
    return f"normally {level:.{decimals}f} ± {sigma:.{decimals}f}"


def percent(fraction: float) -> str:
    """A fraction in percent with three significant digits. What is not quite everything is never printed as 100%."""
    number = 100 * float(fraction)
    digits = _DIGITS
    while shown(number, digits) == "100" and number != 100 and digits < _MOST_DIGITS:
        digits += 1
    return f"{shown(number, digits)}%"


def listed(names: Sequence[str], total: int | None = None) -> str:
    """A few of the names, and how many more there are."""
    more = (len(names) if total is None else total) - _LISTED
    few = ", ".join(names[:_LISTED])
    return f"{few} and {more} more" if more > 0 else few


def counted(count: int, word: str) -> str:
    """A number and what it counts."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def in_utc(seconds: float) -> str:
    """A time since 1970 as date and time of day; "" if no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return ""
