"""Files that hold a run: CSV, JSON, JSON lines, Parquet, trainer states, in the shapes in which they are found."""
# ruff: noqa: E501  (tables are as wide as they are)

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import looked, points

import steadyrun
from steadyrun.errors import LogError


def written(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


CSV = {
    "Lightning": ("epoch,step,train_loss,val_loss\n0,49,2.5,\n0,99,2.0,\n0,99,,2.1\n", {"loss": [(49, 2.5), (99, 2.0)], "val_loss": [(99, 2.1)]}),
    "Keras CSVLogger": ("epoch,accuracy,loss,val_accuracy,val_loss\n0,0.1,2.5,0.2,2.4\n1,0.2,2.0,0.3,2.2\n", {"loss": [(0, 2.5), (1, 2.0)], "val_loss": [(0, 2.4), (1, 2.2)]}),
    "timm summary.csv": ("epoch,train_loss,eval_loss,eval_top1,lr\n0,6.9,6.8,0.1,1e-06\n1,6.5,6.4,0.5,1e-3\n", {"loss": [(0, 6.9), (1, 6.5)], "val_loss": [(0, 6.8), (1, 6.4)], "lr/0": [(0, 1e-6), (1, 1e-3)]}),
    "YOLOv5": ("               epoch,      train/box_loss,      train/obj_loss,      train/cls_loss,   metrics/precision,        val/box_loss,        val/obj_loss,        val/cls_loss,               x/lr0,               x/lr1\n                   0,             0.1,            0.02,            0.03,              0.5,             0.2,            0.03,            0.04,             0.07,            0.0033\n", {"loss": [(0, 0.15)], "val_loss": [(0, 0.27)], "lr/0": [(0, 0.07)]}),
    "YOLOv8": ("epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/mAP50(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1\n1,10.5,1.0,2.0,1.5,0.1,1.1,2.1,1.6,0.01,0.02\n", {"loss": [(1, 4.5)], "val_loss": [(1, 4.8)], "lr/0": [(1, 0.01)], "lr/1": [(1, 0.02)]}),
    "TSV": ("step\tloss\n1\t2.5\n2\t2.0\n", {"loss": [(1, 2.5), (2, 2.0)]}),
    "semicolons and decimal commas": ("step;loss\n1;2,5\n2;2,0\n", {"loss": [(1, 2.5), (2, 2.0)]}),
    "thousands": ('step,loss\n"1,000","2,500.5"\n"2,000",2.0\n', {"loss": [(1000, 2500.5), (2000, 2.0)]}),
    "spellings of NaN and infinity": ("step,loss\n1,NaN\n2,nan\n3,-inf\n4,Infinity\n5,1.#QNAN\n6,N/A\n7,\n8,2.0\n", {"loss": [(1, math.nan), (2, math.nan), (3, -math.inf), (4, math.inf), (5, math.nan), (8, 2.0)]}),
    "steps as floats": ("step,loss\n1.0,2.5\n2.0,2.0\n", {"loss": [(1, 2.5), (2, 2.0)]}),
    "a comment for a header": ("# step,loss\n1,2.5\n2,2.0\n", {"loss": [(1, 2.5), (2, 2.0)]}),
    "comments above": ("# run 7\n\nstep,loss\n1,2.5\n2,2.0\n", {"loss": [(1, 2.5), (2, 2.0)]}),
    "quoted names": ('"step","train/loss, mean","loss"\n1,9,2.5\n2,9,2.0\n', {"loss": [(1, 2.5), (2, 2.0)]}),
    "an index column": (",step,loss\n0,1,2.5\n1,2,2.0\n", {"loss": [(1, 2.5), (2, 2.0)]}),
    "a header again after a resume": ("step,loss\n1,2.5\n2,2.0\nstep,loss\n2,2.1\n3,1.9\n", {"loss": [(1, 2.5), (2, 2.1), (3, 1.9)]}),
    "batches within epochs": ("epoch,batch,loss\n0,0,2.5\n0,1,2.4\n1,0,2.3\n1,1,2.2\n", {"loss": [(0, 2.5), (1, 2.4), (2, 2.3), (3, 2.2)]}),
    "several rows for an epoch": ("epoch,loss\n0,2.5\n0,2.4\n1,2.3\n", {"loss": [(0, 2.5), (1, 2.4), (2, 2.3)]}),
    "no steps at all": ("loss,lr\n2.5,0.1\n2.4,0.1\n", {"loss": [(0, 2.5), (1, 2.4)]}),
}  # fmt: skip


def same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], nan_ok=True)


@pytest.mark.parametrize("name", CSV)
def test_csv(name: str, tmp_path: Path) -> None:
    text, expected = CSV[name]
    found = points(written(tmp_path, "results.csv", text))
    for series, values in expected.items():
        same(found[series], values)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize(("name", "text"), [
    ("run.csv", "step,loss,µ\n1,2.5,1\n2,2.0,1\n"),
    ("run.jsonl", '{"step": 1, "loss": 2.5, "µ": 1}\n{"step": 2, "loss": 2.0}\n'),
    ("run.log", "µ\nstep 1 loss: 2.5\nstep 2 loss: 2.0\n"),
    ("run.json", '{"step": [1, 2], "loss": [2.5, 2.0]}'),
])  # fmt: skip
def test_encodings(name: str, text: str, encoding: str, tmp_path: Path) -> None:
    found = points(written(tmp_path, name, text.replace("\n", "\r\n"), encoding))
    assert found["loss"] == [(1, 2.5), (2, 2.0)]


@pytest.mark.parametrize(("name", "text"), [
    ("run.csv", "step,loss,naïve\n1,2.5,1\n2,2.0,1\n"),
    ("run.log", "naïve\nstep 1 loss: 2.5\nstep 2 loss: 2.0\n"),
])  # fmt: skip
def test_latin_1(name: str, text: str, tmp_path: Path) -> None:
    assert points(written(tmp_path, name, text, "latin-1"))["loss"] == [(1, 2.5), (2, 2.0)]


@pytest.mark.parametrize(("name", "text", "kept", "told"), [
    ("run.log", "step 1 loss: 2.5 lr: 0.1\nstep 2 loss: 2.4 lr: 0.1\nstep 3 loss: 2.3 lr: 0.", [1, 2, 3], "last word is left out"),
    ("run.log", "step 1 loss: 2.5\nstep 2 loss: 2.4\nstep 3 loss: 2", [1, 2], "last word is left out"),
    ("run.csv", "step,lr,loss\n1,0.1,2.5\n2,0.1,2.4\n3,0.1,2", [1, 2], "last cell is left out"),
    ("run.csv", "step,loss,lr\n1,2.5,0.1\n2,2.4,0.1\n3,2", [1, 2], "rows that do not have 3 cells"),
    ("run.jsonl", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n{"step": 3, "loss": 2', [1, 2], "not JSON objects"),
    ("run.jsonl", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n{"step": 3, "loss": 2.3}', [1, 2, 3], ""),
])  # fmt: skip
def test_a_last_line_that_is_cut_off(name: str, text: str, kept: list[int], told: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, text)
    assert [step for step, _ in points(path)["loss"]] == kept
    odd = looked(path).odd
    assert any(told in line for line in odd) if told else odd == []


JSON = {
    "Keras history": {"loss": [2.5, 2.0], "val_loss": [2.6, "nan"]},
    "under history": {"history": {"loss": [2.5, 2.0]}, "epoch": [0, 1], "params": {"epochs": 2}},
    "by split": {"train": {"loss": [2.5, 2.0], "acc": [0.1, 0.2]}, "val": {"loss": [2.6, 2.1]}, "lr": 0.1},
    "records": [{"epoch": 0, "loss": 2.5}, {"epoch": 1, "loss": "2.0"}],
    "records under a name": {"config": {"lr": 0.1}, "logs": [{"step": 0, "train": {"loss": 2.5}}, {"step": 1, "train": {"loss": 2.0}}]},
    "golden values": {"lm loss": {"start_step": 0, "end_step": 2, "step_interval": 1, "values": [2.5, 2.0]}},
    "trainer state": {"log_history": [{"step": 0, "epoch": 0.1, "loss": 2.5}, {"step": 1, "loss": 2.0, "epoch": 0.2},
                                      {"step": 1, "train_loss": 9.9, "train_runtime": 1.0}], "max_steps": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_json(name: str, tmp_path: Path) -> None:
    found = points(written(tmp_path, "run.json", json.dumps(JSON[name])))
    assert found["loss"] == [(0, 2.5), (1, 2.0)]


JSONL = {
    "detectron2": [{"iteration": 19, "total_loss": 2.5, "loss_cls": 1.0}, {"iteration": 39, "total_loss": 2.0}],
    "mmdetection": [{"env_info": "x"}, {"mode": "train", "epoch": 1, "iter": 19, "loss": 2.5, "lr": 0.1},
                    {"mode": "val", "epoch": 1, "iter": 7, "loss": 3.0}, {"mode": "train", "epoch": 1, "iter": 39, "loss": 2.0}],
    "LLaMA-Factory": [{"current_steps": 19, "total_steps": 99, "loss": 2.5}, {"current_steps": 39, "total_steps": 99, "loss": 2.0}],
    "one metric per line": [{"name": "train/loss", "value": 2.5, "step": 19}, {"name": "train/loss", "value": 2.0, "step": 39}],
    "nested": [{"step": 19, "train": {"loss": 2.5}}, {"step": 39, "train": {"loss": 2.0}}],
}  # fmt: skip


@pytest.mark.parametrize("name", JSONL)
def test_json_lines(name: str, tmp_path: Path) -> None:
    found = points(written(tmp_path, "run.jsonl", "".join(json.dumps(row) + "\n" for row in JSONL[name])))
    assert found["loss"] == [(19, 2.5), (39, 2.0)]


def test_python_s_json_has_nan(tmp_path: Path) -> None:
    found = points(written(tmp_path, "run.jsonl", '{"step": 1, "loss": NaN}\n{"step": 2, "loss": -Infinity}\n'))
    same(found["loss"], [(1, math.nan), (2, -math.inf)])


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"step": [1, 2], "train.loss": pa.array([2.5, None]), "note": ["a", "b"], "lr": pa.array([0.1, 0.2], pa.float32()),
                      "nested": [{"x": 1.0}, {"x": 2.0}]})  # fmt: skip
    pq.write_table(table, tmp_path / "run.parquet")
    found = points(tmp_path / "run.parquet")
    assert found["loss"] == [(1, 2.5)]
    assert sorted(found) == ["loss", "lr/0"]


def test_an_export_of_wandb_has_several_runs(tmp_path: Path) -> None:
    text = '"Step","a - loss","a - loss__MIN","a - loss__MAX","b - loss","b - loss__MIN","b - loss__MAX"\n"1","2.5","2.5","2.5","3.5","3.5","3.5"\n"2","2.0","2.0","2.0","","",""'
    path = written(tmp_path, "wandb_export.csv", text)
    from steadyrun.importers.import_log import import_place
    from steadyrun.importers.log_files import places

    a, b = places(path)
    assert [a.name, b.name] == ["a", "b"]
    assert [(each.name, each.points, each.last) for each in import_place(a, None, {}, {}).series] == [("loss", 2, 2)]
    assert [(each.name, each.points, each.last) for each in import_place(b, None, {}, {}).series] == [("loss", 1, 1)]


@pytest.mark.parametrize(("name", "text"), [
    ("notes.txt", "We trained for 3 epochs.\nThe loss was fine.\n"),
    ("train.py", "import torch\nloss = 0.0\nfor step in range(10):\n    loss = 0\n    total_loss = 0.0\nprint(loss)\n"),
    ("config.jsonc", '{"lr": 0.1,\n "loss": "ce"}\n'),
    ("settings.json", '{"lr": 0.1, "epochs": 3}'),
    ("people.csv", "name,age\nann,3\nbob,4\n"),
    ("prose.md", "Label smoothing of 0.1 makes the loss 0.3 higher.\nA loss: the end.\n"),
])  # fmt: skip
def test_what_is_no_log_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(LogError):
        points(written(tmp_path, name, text))


def test_what_was_odd_is_told(tmp_path: Path) -> None:
    text = "step,loss\n1,2.5\n2,2.4\n2,2.3\nx,y,z\n3,1e400\n4,oops\n5,2.2\n3,2.1\n4,2.0\n"
    odd = "\n".join(looked(written(tmp_path, "run.csv", text)).odd)
    assert "rows that do not have 2 cells (first: line 5): left out" in odd
    assert "numbers larger than any float" in odd
    assert "cells without a number in a column of numbers (first: column 'loss'): left out" in odd
    assert "times the steps go back (first: 3 after 5): kept as a resume, the later points count" in odd
    assert "values given more than once for a step (first: step 2): the last one counts" in odd


def test_nothing_is_invented(tmp_path: Path) -> None:
    assert sorted(points(written(tmp_path, "run.csv", "step,loss\n1,2.5\n2,2.0\n"))) == ["loss"]


def test_rows_of_a_table_that_say_what_they_are(tmp_path: Path) -> None:
    rows = "".join(f"{epoch},train,{2 - epoch / 10}\n{epoch},val,{3 - epoch / 10}\n" for epoch in range(5))
    (tmp_path / "log.csv").write_text(f"epoch,phase,loss\n{rows}")
    run = steadyrun.import_log(tmp_path / "log.csv", tmp_path / "run")
    assert run.series("loss").values.tolist() == [2 - epoch / 10 for epoch in range(5)]
    assert run.series("val_loss").values.tolist() == [3 - epoch / 10 for epoch in range(5)]


@pytest.mark.parametrize(("name", "text"), [("a.log", "step {} loss {}\n"), ("a.csv", "{},{}\n")])
def test_a_last_nan_is_not_cut_off(name: str, text: str, tmp_path: Path) -> None:
    head = "step,loss\n" if name == "a.csv" else ""
    lines = "".join(text.format(step, 2.5) for step in range(30)) + text.format(30, "nan")
    (tmp_path / name).write_text(head + lines.rstrip("\n"))
    run = steadyrun.import_log(tmp_path / name, tmp_path / "run")
    assert np.isnan(run.series("loss").values[-1])
    assert steadyrun.check(tmp_path / "run").leaf.question.code == "D1.3"
