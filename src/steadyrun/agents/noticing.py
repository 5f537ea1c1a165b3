"""The tool `events`: what was noted while a run went on."""

from __future__ import annotations

from collections import Counter
from typing import Any

from steadyrun.agents.bounding import Answer, harmless, page, short
from steadyrun.agents.naming import find, name_of
from steadyrun.records import Event
from steadyrun.store.finding import Root
from steadyrun.store.reader import open_run

_KINDS = 40  # that are counted
_MOST = 200  # events on one page


def events(root: Root, run: str, kind: str = "", offset: int = 0) -> Answer:
    """The events of a run, oldest first; of one kind if it is given."""
    place = find(root, run)
    all_events = open_run(place.path).events()
    found = [event for event in all_events if kind in ("", event.kind)]
    counts = Counter(event.kind for event in all_events).most_common(_KINDS)
    kinds = {short(name, 60): count for name, count in sorted(counts)}

    def wrap(shown: list[Any]) -> Answer:
        return {"run": name_of(place), "kinds": kinds, "total": len(found), "offset": offset, "events": shown}

    shown = [_entry(event) for event in found[offset : offset + _MOST]]
    return page(shown, offset, len(found), wrap)


def _entry(event: Event) -> dict[str, Any]:
    fields = harmless(dict(event.fields), longest=300, items=20, depth=4)
    return {"kind": short(event.kind, 60), "step": event.step, "time": round(event.time, 3), "fields": fields}
