"""What a run keeps of its program has no address of an alert in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import steadyrun
from steadyrun.forwarding.outgoing_text import Hidden

ADDRESS = "json://user:hush-hush@localhost:9/token"


def test_addresses_are_taken_out_of_anything() -> None:
    hidden = Hidden([ADDRESS])
    fields = {"a": [f"to {ADDRESS}!", 3], f"{ADDRESS}": ("x", ADDRESS.replace("json", "JSON"))}
    assert "hush" not in str(hidden.out_of(fields))
    assert hidden.out_of({"a": 1.5}) == {"a": 1.5}


def test_not_in_what_a_crash_or_a_note_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.forwarding import forwarding

    alerts = steadyrun.Alerts(to=[ADDRESS], wait=0)
    monkeypatch.setattr(forwarding, "through_apprise", lambda _urls: lambda _title, _body: True)
    crash = "could not reach"
    with pytest.raises(RuntimeError, match=crash), steadyrun.record(tmp_path / "run", alert=alerts) as run:
        run.log(loss=1.0)
        run.note(f"alerts go to {ADDRESS}")
        raise RuntimeError(f"{crash} {ADDRESS}")
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    assert not [path.name for path in files if b"hush-hush" in path.read_bytes()]
