"""Logs that are broken, huge or hostile: a clear error or a clean reading, nothing half-written, nothing executed."""

# ruff: noqa: E501, PT017
from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imported import looked, points

import steadyrun
from steadyrun.errors import LogError
from steadyrun.importers import convert
from steadyrun.importers.formats import FORMATS

LOGS = {
    "a.csv": b"step,loss,lr\n" + b"".join(b"%d,%f,0.1\n" % (step, 9 / (step + 1)) for step in range(60)),
    "a.jsonl": b"".join(b'{"step": %d, "loss": %f}\n' % (step, 9 / (step + 1)) for step in range(60)),
    "a.json": json.dumps({"loss": [1.5, 1.4, 1.3], "val_loss": [1.5, 1.4, 1.3]}).encode(),
    "trainer_state.json": json.dumps({"log_history": [{"step": step, "loss": 1.0} for step in range(20)]}).encode(),
    "a.log": b"".join(b"iter %d: loss %f, time 2ms\n" % (step, 9 / (step + 1)) for step in range(60)),
    "b.log": b"".join(b"Epoch [1][%d/60] lr: 0.1, loss: %f\n" % (step, 9 / (step + 1)) for step in range(60)),
}


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"step": list(range(50)), "loss": [1.0] * 50}), sink)
    return bytes(sink.getvalue())


LOGS["a.parquet"] = parquet()


def database() -> bytes:
    held = sqlite3.connect(":memory:")
    held.execute("CREATE TABLE metrics (run_name TEXT, timestamp TEXT, step INTEGER, metrics TEXT)")
    entries = [("a", f"2025-01-01T00:00:{step:02d}", step, json.dumps({"loss": 9 / (step + 1)})) for step in range(20)]
    held.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?)", entries)
    held.commit()
    return held.serialize()


LOGS["a.db"] = database()
LOGS["long.csv"] = b"timestamp,metric_name,value\n" + b"".join(
    b"%d,%s,%f\n" % (step, name, 9 / (step + 1)) for name in (b"loss", b"val:loss") for step in range(30)
)
LOGS["curves.json"] = json.dumps({"loss": {"train": {"x": [1, 2, 3], "y": [1.5, 1.4, 1.3]}}}).encode()
LOGS["lists.json"] = json.dumps(
    {"train": [{"epoch": 1, "loss": 1.5}, {"epoch": 2, "loss": 1.4}], "val": [{"epoch": 1, "loss": 1.6}]}
).encode()


def imports_or_says_why(path: Path) -> None:
    """Either a run directory that reads back, or a LogError and no trace."""
    target = path.with_name("out") / "run"
    try:
        run = steadyrun.import_log(path, target)
    except LogError as problem:
        assert str(problem)
        assert not target.parent.exists() or list(target.parent.iterdir()) == []
    else:
        assert run.verify() == []
        assert [each.name for each in target.parent.iterdir()] == ["run"]


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    name = data.draw(st.sampled_from(sorted(LOGS)))
    held = bytearray(LOGS[name])
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(held) - 1))
        held[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(held[: data.draw(st.integers(0, len(held)))])
    imports_or_says_why(path)


@given(st.binary(max_size=400), st.sampled_from([each.name for each in FORMATS]))
@settings(max_examples=200)
def test_any_bytes_in_any_format(tmp_path_factory: pytest.TempPathFactory, held: bytes, form: str) -> None:
    path = tmp_path_factory.mktemp("bytes") / "a.log"
    path.write_bytes(held)
    with pytest.raises(LogError):
        steadyrun.import_log(path, path.with_name("run"), log_format=form)
    assert not path.with_name("run").exists()


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_any_text_around_losses(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("text") / "a.log"
    path.write_text(f"step 1 loss: 2.5 {text}\n{text}\nstep 2 loss: 2.4\n", encoding="utf-8", errors="replace")
    imports_or_says_why(path)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400, "9" * 5000])
@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", "step,loss\n1,2.5\n2,{}\n3,2.4\n"),
    ("a.jsonl", '{{"step": 1, "loss": 2.5}}\n{{"step": 2, "loss": {}}}\n{{"step": 3, "loss": 2.4}}\n'),
    ("a.log", "step 1 loss: 2.5\nstep 2 loss: {}\nstep 3 loss: 2.4\n"),
    ("b.log", "iter 1: loss 2.5, time 2ms\niter 2: loss {}, time 2ms\niter 3: loss 2.4, time 2ms\n"),
])  # fmt: skip
def test_numbers_that_no_float_holds(name: str, text: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text.format(number))
    assert [pair for pair in points(path)["loss"] if pair[0] != 2] == [(1, 2.5), (3, 2.4)]
    assert not [value for step, value in points(path.rename(tmp_path / f"x{name}"))["loss"] if step == 2]
    assert looked(tmp_path / f"x{name}").odd


@pytest.mark.parametrize("number", ["1e400", "9" * 400])
def test_steps_that_no_integer_holds(number: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"step,loss\n1,2.5\n{number},2.4\n1e18,2.3\nnan,2.2\n2,2.1\n")
    assert [step for step, _ in points(tmp_path / "a.csv")["loss"]][-1] == 2


HOSTILE = ["[red]loss[/red]", "\x1b[2Jloss", "../../etc/passwd", "a" * 10_000, "<script>alert(1)</script>", "loss\x00x", "${HOME}",
           "__import__('os').system('touch pwned')", "\u202eloss", "CON", "", " ", "a\nb", "{{7*7}}", "=cmd()"]  # fmt: skip


def test_hostile_names_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"step": step, "loss": 2.5, **dict.fromkeys(HOSTILE, 1.0)} for step in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = steadyrun.import_log("a.jsonl", "run")
    assert len(run.series("loss")) == 3
    assert {name for name in run.names() if len(name) > 300} == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "run"]


def test_a_loss_with_a_name_that_is_too_long(tmp_path: Path) -> None:
    rows = [
        {"step": step, "val_" + "loss_" * 100: 1.0, "valid_loss_" + "epoch " * 50: 1.0, "a": 1.0} for step in range(9)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert sorted(points(tmp_path / "a.jsonl")) == ["a"]


def test_deeply_nested_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    (tmp_path / "a.jsonl").write_text('{"step": 1, "loss": 2}\n' + "[" * 100_000 + "\n" + '{"step": 2, "loss": 2}\n')
    with pytest.raises(LogError):
        points(tmp_path / "a.json")
    assert len(points(tmp_path / "a.jsonl")["loss"]) == 2


def test_sparse_gigabytes_are_refused_at_once(tmp_path: Path) -> None:
    for name in ("a.log", "a.csv", "a.json", "a.jsonl", "trainer_state.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2 * 2**30)
        with pytest.raises(LogError):
            points(tmp_path / name)


def test_a_line_without_end(tmp_path: Path) -> None:
    for name, start in (
        ("a.log", b"iter 1: loss 2.5, time 2ms\n"),
        ("a.jsonl", b'{"loss": 2, "step": 1}\n' * 2),
        ("a.csv", b"step,loss\n1,2\n"),
    ):
        (tmp_path / name).write_bytes(start + b"7" * (10 * 2**20))
        with pytest.raises(LogError, match=r"line 2|line 3|byte"):
            points(tmp_path / name)


def test_a_small_parquet_file_with_very_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = pa.array(np.zeros(1_000_000))
    with pq.ParquetWriter(
        tmp_path / "a.parquet", pa.schema([("step", pa.float64()), ("loss", pa.float64())])
    ) as writer:
        for _ in range(101):
            writer.write_table(pa.table({"step": zeros, "loss": zeros}))
    assert (tmp_path / "a.parquet").stat().st_size < 2**20
    with pytest.raises(LogError, match="101,000,000 rows"):
        points(tmp_path / "a.parquet")


def test_rows_are_bounded_in_any_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "MOST_ROWS", 10)
    (tmp_path / "a.csv").write_bytes(LOGS["a.csv"])
    with pytest.raises(LogError, match="more than 10 rows"):
        points(tmp_path / "a.csv")
    assert not (tmp_path / "a.csv-run").exists()


def test_very_many_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"step": n, "loss": 1, **{f"n{n}-{m}": 1 for m in range(1000)}}) + "\n" for n in range(20))
    )
    with pytest.raises(LogError, match="more than 5,000 different names"):
        points(tmp_path / "a.jsonl")


FULL = """
import resource, signal, sys, steadyrun
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    steadyrun.import_log(sys.argv[1], sys.argv[2])
except steadyrun.errors.LogError as problem:
    print("refused:", problem)
"""


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss\n" + "".join(f"{step},{step * 1.1}\n" for step in range(20_000)))
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "a.csv"), str(tmp_path / "out" / "run")],
                          capture_output=True, text=True, timeout=300, check=True)  # fmt: skip
    assert "refused:" in done.stdout
    assert list((tmp_path / "out").iterdir()) == []


def test_counters_that_no_integer_holds(tmp_path: Path) -> None:
    """Every line that a dialect knows, with every digit in it grown to 500, between lines that are fine."""
    from test_dialects import CASES

    for place, (text, _, _) in enumerate(CASES.values()):
        (tmp_path / str(place)).mkdir()
        grown = "".join(character * 500 if character.isdecimal() else character for character in text[:150])
        path = tmp_path / str(place) / "a.log"
        path.write_text(text + grown + "\n" + text, encoding="utf-8", newline="")
        imports_or_says_why(path)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogError, match="neither a file nor a folder"):
        points(tmp_path / "pipe")


MEGATRON = " iteration {}/ 100 | lm loss: 2.5E+00 | number of skipped iterations: {} | number of nan iterations: {} |\n"


@pytest.mark.parametrize("count", ["nan", "inf", "-inf", "0", "1"])
def test_counts_that_are_none(count: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(MEGATRON.format(step, count, count) for step in range(1, 30)))
    loss = points(tmp_path / "a.log")["loss"]
    assert [step for step, _ in loss] == list(range(1, 30))
    assert all(value == 2.5 for _, value in loss) == (count != "1")  # one of one iteration: its loss is NaN


WRONG = {
    **LOGS,
    "empty.log": b"",
    "blank.txt": b"\n" * 500,
    "word.txt": b"x",
    "bytes.bin": bytes(range(256)) * 20,
    "ones.bin": b"\xff" * 3000,
    "zeros.bin": b"\0" * 5000,
    "database.db": b"SQLite format 3\0" + b"\0" * 4000,
    "cut.wandb": b":W&B\xe1\xbe\0" + b"z" * 99,
    "cut.parquet": b"PAR1" + b"x" * 50 + b"PAR1",
    "list.json": b"[1, 2, 3]",
    "null.json": b"null",
    "nested.json": b'{"loss": [[1], [2]]}',
    "history.json": b'{"log_history": 3}',
    "golden.json": b'{"loss": {"values": [1, 2], "start_step": "nan"}}',
}


@pytest.mark.parametrize("form", [each.name for each in FORMATS])
def test_the_file_of_another_format(form: str, tmp_path: Path) -> None:
    """It is read, or refused with a next step; nothing else comes out, and nothing is left."""
    for name, held in WRONG.items():
        path = tmp_path / name
        path.write_bytes(held)
        try:
            steadyrun.import_log(path, tmp_path / f"{name}-run", log_format=form)
        except LogError as problem:
            assert str(path) in str(problem) or "golden values begin" in str(problem)
            assert "--formats" in str(problem)
            assert not (tmp_path / f"{name}-run").exists()
        else:
            assert held in LOGS.values(), name
