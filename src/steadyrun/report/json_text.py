"""A report as JSON: valid everywhere and in ASCII, whatever a run's names hold and a terminal can show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from steadyrun.store.jsonio import jsonable

if TYPE_CHECKING:
    from steadyrun.report.comparison import Comparison
    from steadyrun.report.report import Report


def document(report: Report, comparison: Comparison | None = None) -> dict[str, Any]:
    """The documented form; `after` is there when two runs were compared."""
    return report.to_dict() | ({} if comparison is None else {"after": comparison.to_dict()})


def dumps(value: Any, *, indent: int | None = 2) -> str:
    return json.dumps(jsonable(value), indent=indent, allow_nan=False)
