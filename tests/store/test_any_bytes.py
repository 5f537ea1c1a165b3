"""Whatever bytes there are: reading works or is refused in steadyrun's own words, and no number is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile import (
    EVENTS,
    MANIFEST,
    PARQUET,
    SEGMENT,
    assert_true_or_said,
    everything,
    truth,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steadyrun
from steadyrun.store.reader import open_run


def _words(text: str) -> list[str]:
    return text.split()


CHANGES = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True), st.integers(0, 7)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(0)),
    st.tuples(st.just("zero"), st.floats(0, 1), st.sampled_from([1, 8, 64, 512, 4096])),
    st.tuples(st.just("ones"), st.floats(0, 1), st.sampled_from([1, 4, 8, 64])),
    st.tuples(st.just("double"), st.floats(0, 1), st.sampled_from([8, 64, 512])),
    st.tuples(st.just("delete"), st.floats(0, 1), st.sampled_from([1, 3, 8, 64, 512])),
)


def changed(data: bytes, how: str, where: float, size: int) -> bytes:
    offset = min(len(data) - 1, int(where * len(data)))
    end = min(len(data), offset + size)
    if how == "flip":
        return data[:offset] + bytes([data[offset] ^ 1 << size]) + data[offset + 1 :]
    middle = {"zero": bytes(end - offset), "ones": b"\xff" * (end - offset), "double": 2 * data[offset:end]}
    return data[:offset] if how == "cut" else data[:offset] + middle.get(how, b"") + data[end:]


@pytest.mark.parametrize("name", [PARQUET, SEGMENT])
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=CHANGES)
def test_no_change_of_a_table_becomes_a_wrong_number(closed: Path, killed: Path, name: str, change: Any) -> None:
    run = closed if name == PARQUET else killed
    data = (run / name).read_bytes()
    try:
        (run / name).write_bytes(changed(data, *change))
        view = open_run(run).as_of_now()
        read = everything(view)
        expected = truth()
        assert all(
            set(points) <= set(expected.get(series, [])) for series, points in read.items() if series != "val_loss"
        )
        assert {series: read.get(series) for series in expected} == expected or view.dropped or change[0] == "cut"
    finally:
        (run / name).write_bytes(data)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flip_in_the_log_becomes_a_wrong_number(closed: Path, where: float, bit: int) -> None:
    data = (closed / EVENTS).read_bytes()
    try:
        (closed / EVENTS).write_bytes(changed(data, "flip", where, bit))
        assert_true_or_said(closed)
    finally:
        (closed / EVENTS).write_bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(
    _words("start resume validation incident rollback crash stopped fault warning verdict checkpoint dropped note")
)
FIELDS = st.dictionaries(
    st.sampled_from(
        _words("kind step time attempt values modes data verdict leaf headline faults cause why severity path code")
        + _words("message fix noticed to_step from_step after_step skipped_batches")
    ),
    JSON,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=KINDS, fields=FIELDS)
def test_any_fields_of_an_event(closed: Path, kind: str, fields: dict[str, Any]) -> None:
    data = (closed / EVENTS).read_bytes()
    try:
        with (closed / EVENTS).open("a") as file:
            file.write(json.dumps({"kind": kind, "step": 5, "time": 1.0} | fields) + "\n")
        view = open_run(closed)
        assert "loss" in view.names()
        view.verify()
        str(view)
        steadyrun.check(closed)
    finally:
        (closed / EVENTS).write_bytes(data)


KEYS = _words("state config inferred failure process earlier_attempts preflight imported model param_groups blocks")
KEYS += _words("tokenizer every flush loaders initial_weights hardware attempt")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_content_of_a_manifest(closed: Path, content: dict[str, Any]) -> None:
    data = (closed / MANIFEST).read_bytes()
    try:
        (closed / MANIFEST).write_text(json.dumps({"schema": 1} | content))
        view = open_run(closed)
        view.verify()
        str(view)
        steadyrun.check(closed)
    finally:
        (closed / MANIFEST).write_bytes(data)
