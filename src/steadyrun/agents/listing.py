"""The tool `list_runs`: the runs below the root, the newest first."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steadyrun.agents.bounding import Answer, figure, page, short
from steadyrun.agents.naming import name_of
from steadyrun.report.standing import last_word, started
from steadyrun.store.finding import Place, Root
from steadyrun.store.reader import open_run

log = logging.getLogger("steadyrun.agents")

_UNREADABLE = "unreadable"


@dataclass(frozen=True)
class _Seen:
    place: Place
    name: str
    began: float


def list_runs(root: Root, offset: int = 0, limit: int = 20) -> Answer:
    """One page of the list; only the runs on it are read."""
    seen = sorted((_seen(place) for place in root.runs()), key=lambda each: (-each.began, each.name))
    rows = [_row(each) for each in seen[offset : offset + limit]]

    def wrap(shown: list[Any]) -> Answer:
        return {"total": len(seen), "offset": offset, "runs": shown}

    return page(rows, offset, len(seen), wrap)


def _seen(place: Place) -> _Seen:
    try:
        began = started(open_run(place.path).manifest)
    except Exception as problem:  # one strange run must not hide the others
        log.debug("reading %s failed: %s", place.name, problem)
        began = 0.0
    return _Seen(place, name_of(place), began)


def _row(seen: _Seen) -> dict[str, Any]:
    try:
        view = open_run(seen.place.path).as_of_now()
        state = view.state
        loss = view.series("loss") if "loss" in view.names() else None
        verdict, headline = last_word(view, state)
        return {
            "run": seen.name,
            "state": short(state, 20),
            "started": _time(seen.began),
            "last_step": view.last_step(),
            "last_loss": figure(float(loss.values[-1])) if loss is not None and len(loss) else None,
            "verdict": verdict or None,
            "headline": short(headline, 40) or None,
        }
    except Exception as problem:
        log.debug("reading %s failed: %s", seen.name, problem)
        empty = dict.fromkeys(("last_step", "last_loss", "verdict", "headline"))
        return {"run": seen.name, "state": _UNREADABLE, "started": _time(seen.began), **empty}


def _time(began: float) -> str | None:
    known = 0 < began < 4e9
    return datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds") if known else None
