"""Advice for a script that `steadyrun run` recorded: what can be done without an edit."""

from __future__ import annotations

import re
import shlex

RECORDED_BY = "steadyrun run"
"""What the manifest has as `recorded_by` then."""

_DECLARATION = re.compile(r"""(?P<verb>[Dd]eclare )?config=\{["'](?P<name>\w+)["']: ?(?P<value>[^}]*)\}""")
_LOG_CALL = re.compile(r"(?:log it with )?run\.log\((\w+)=…\)")
_PRINT_VALIDATION = "print or log the validation loss"
_CALLS = (
    ("call run.val(loss) after", f"{_PRINT_VALIDATION} after"),
    ("right before run.val", "right before the validation loss is printed or logged"),
)
_API = re.compile(r"\brun\.(?:step|val|watch|log)\b")


def for_script(advice: str) -> str:
    """The same advice with options of `steadyrun run` and printed lines instead of calls."""
    advice = _DECLARATION.sub(_option, advice)
    for call, instead in _CALLS:
        advice = advice.replace(call, instead)
    advice = _LOG_CALL.sub(r"print or log \1", advice)
    return f"add steadyrun.record to the script, then {advice}" if _API.search(advice) else advice


def _option(found: re.Match[str]) -> str:
    verb = {"D": "Use ", "d": "use "}.get((found["verb"] or "")[:1], "")
    value = found["value"].strip()
    value = {"True": "true", "False": "false"}.get(value, value)
    if value[:1] in "\"'" and value[-1:] == value[:1]:
        value = value[1:-1]
    pair = f"{found['name']}={value}"
    return f"{verb}--declare {shlex.quote(pair) if ' ' in pair else pair}"
