"""What trackers and training libraries write, each in a small sample: tables, lists, databases, and what is read of them."""
# ruff: noqa: E501  (tables are as wide as they are)

from __future__ import annotations

import json
import math
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import looked, points

import steadyrun
from steadyrun.errors import LogError
from steadyrun.importers.import_log import import_place
from steadyrun.importers.log_files import places
from steadyrun.importers.log_rows import Anomalies

FALLING = [(step, 3 - step / 10) for step in range(6)]
HIGHER = [(step, 4 - step / 10) for step in range(6)]


def rows(head: str, line: Callable[[int, float], str], count: int = 6) -> str:
    return f"{head}\n" + "".join(line(step, 3 - step / 10) + "\n" for step in range(count))


def lines(*entries: Any) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def of_rows(row: Callable[[int, float], Any]) -> list[Any]:
    return [row(step, value) for step, value in FALLING]


STEPS, LOSSES = [step for step, _ in FALLING], [value for _, value in FALLING]
BY_METRIC = [
    (name, step, value + shift) for name, shift in (("train_loss", 0), ("val_loss", 1)) for step, value in FALLING
]

TEXTS: dict[str, tuple[str, str, dict[str, list[tuple[int, float]]]]] = {
    "SageMaker: TrainingJobAnalytics": ("metrics.csv", ",timestamp,metric_name,value\n" + "".join(f"{at},{60.0 * step},{name.replace('_', ':')},{value}\n" for at, (name, step, value) in enumerate(BY_METRIC)), {"loss": FALLING, "val_loss": HIGHER}),
    "CloudWatch with dates": ("cloudwatch.csv", rows("timestamp,metric_name,value", lambda step, value: f"2024-05-01T00:0{step}:00Z,loss,{value}"), {"loss": FALLING}),
    "Vertex AI: get_time_series_data_frame": ("vertex.csv", rows("step,wall_time,train_loss,val_loss", lambda step, value: f"{step},2024-05-01 00:0{step}:00.123000+00:00,{value},{value + 1}"), {"loss": FALLING, "val_loss": HIGHER}),
    "Comet: get_metrics as CSV": ("comet.csv", "metricName,metricValue,timestamp,step,epoch,runContext\n" + "".join(f"loss,{value + shift},{1.6e12 + step:.0f},{step},,{context}\n" for context, shift in (("train", 0), ("validate", 1)) for step, value in FALLING), {"loss": FALLING, "val_loss": HIGHER}),
    "Comet: get_metrics": ("comet.json", json.dumps([{"metricName": name, "metricValue": str(value), "timestamp": 1.6e12 + step, "step": step, "epoch": None, "runContext": None} for name, step, value in BY_METRIC]), {"loss": FALLING, "val_loss": HIGHER}),
    "Comet: data of a chart": ("chart.json", json.dumps([{"name": "train_loss", "x": STEPS, "y": LOSSES, "type": "scatter"}, {"name": "val_loss", "x": [0, 5], "y": [4, 3.5]}]), {"loss": FALLING, "val_loss": [(0, 4), (5, 3.5)]}),
    "ClearML: get_reported_scalars": ("scalars.json", json.dumps({"loss": {"train": {"name": "train", "x": STEPS, "y": LOSSES}, "val": {"name": "val", "x": [0, 5], "y": [4, 3.5]}}, ":monitor:gpu": {"gpu_0": {"name": "gpu_0", "x": [0], "y": [1]}}}), {"loss": FALLING, "val_loss": [(0, 4), (5, 3.5)]}),
    "ClearML as a table": ("clearml.csv", rows("iter,train,loss", lambda step, value: f"{step},0.5,{value}"), {"loss": FALLING}),
    "Aim: metric.dataframe": ("aim.csv", "idx,step,value,epoch,time,metric.name,metric.context.subset\n" + "".join(f"{step},{step},{value + shift},,2024-05-01 00:0{step}:00.5,loss,{subset}\n" for subset, shift in (("train", 0), ("val", 1)) for step, value in FALLING), {"loss": FALLING, "val_loss": HIGHER}),
    "Neptune, melted": ("neptune.csv", rows("attribute_path,step,timestamp,float_value", lambda step, value: f"train/loss,{step},2024-05-01T00:00:0{step},{value}"), {"loss": FALLING}),
    "TensorBoard: a downloaded CSV": ("run-a-tag-Loss_train.csv", rows("Wall time,Step,Value", lambda step, value: f"{1.6e9 + step},{step},{value}"), {"loss": FALLING}),
    "TensorBoard: a downloaded JSON": ("run-a-tag-Loss_train.json", json.dumps([[1.6e9 + step, step, value] for step, value in FALLING]), {"loss": FALLING}),
    "MLflow: get_metric_history": ("mlflow.json", json.dumps({name: [{"key": name, "value": value, "step": step, "timestamp": 1.6e12 + step} for own, step, value in BY_METRIC if own == name] for name in ("train_loss", "val_loss")}), {"loss": FALLING, "val_loss": HIGHER}),
    "pandas: melt": ("melt.csv", "step,variable,value\n" + "".join(f"{step},{name},{value}\n" for name, step, value in BY_METRIC), {"loss": FALLING, "val_loss": HIGHER}),
    "pandas: to_json": ("frame.json", json.dumps({"loss": dict(FALLING), "val_loss": dict(HIGHER)}), {"loss": FALLING, "val_loss": HIGHER}),
    "pandas: to_json with steps": ("frame.json", json.dumps({"step": {step: 100 * step for step in STEPS}, "loss": dict(FALLING)}), {"loss": [(100 * step, value) for step, value in FALLING]}),
    "Plotly": ("figure.json", json.dumps({"data": [{"name": "train loss", "x": STEPS, "y": LOSSES}], "layout": {}}), {"loss": FALLING}),
    "lists beside lists of objects": ("history.json", json.dumps({"train_loss": LOSSES, "val_metrics": [{"mae": value} for value in LOSSES], "learning_rates": [0.1] * len(LOSSES)}), {"loss": FALLING, "val_metrics/mae": FALLING, "lr/0": [(step, 0.1) for step in STEPS]}),
    "lists by split": ("history.json", json.dumps({"train": of_rows(lambda step, value: {"epoch": step, "loss": value, "acc": 0.5}), "val": of_rows(lambda step, value: {"epoch": step, "loss": value + 1})}), {"loss": FALLING, "val_loss": HIGHER, "train/acc": [(step, 0.5) for step in STEPS]}),
    "objects by epoch": ("epochs.json", json.dumps({f"epoch_{step}": {"train_loss": value, "val": {"loss": value + 1}} for step, value in FALLING}), {"loss": FALLING, "val_loss": HIGHER}),
    "detectron2": ("metrics.json", lines(*of_rows(lambda step, value: {"data_time": 0.1, "eta_seconds": 9.0, "iteration": step, "loss_cls": 1.0, "lr": 0.001, "total_loss": value}), {"bbox/AP": 10.0, "iteration": 5}), {"loss": FALLING, "bbox/AP": [(5, 10.0)]}),
    "mmengine: vis_data/scalars.json": ("scalars.json", lines(*of_rows(lambda step, value: {"lr": 0.1, "loss": value, "loss_cls": 1.0, "epoch": 1, "iter": step + 1, "step": step + 1}), {"coco/bbox_mAP": 0.1, "step": 1}), {"loss": [(step + 1, value) for step, value in FALLING], "coco/bbox_mAP": [(6, 0.1)]}),
    "mmcv: *.log.json": ("20200101_000000.log.json", lines({"env_info": "x"}, *of_rows(lambda step, value: {"mode": "train", "epoch": 1, "iter": step, "lr": 0.1, "loss": value, "acc": 0.5}), {"mode": "val", "epoch": 1, "iter": 5, "lr": 0.1, "acc": 0.25}), {"loss": FALLING, "acc": [(step, 0.5) for step in STEPS], "val_acc": [(5, 0.25)]}),
    "torchtune: DiskLogger": ("log_1700000000.txt", "".join(f"Step {step} | loss:{value} lr:0.0001 grad_norm:1.5\n" for step, value in FALLING), {"loss": FALLING, "lr/0": [(step, 0.0001) for step in STEPS]}),
    "LLaMA-Factory: trainer_log.jsonl": ("trainer_log.jsonl", lines(*of_rows(lambda step, value: {"current_steps": step, "total_steps": 9, "loss": value, "lr": 0.1, "epoch": step / 10, "elapsed_time": "0:01:03"})), {"loss": FALLING}),
    "axolotl and PaddleNLP: trainer_state.json": ("trainer_state.json", json.dumps({"log_history": of_rows(lambda step, value: {"step": step, "epoch": step / 9, "loss": value, "grad_norm": 1.0, "learning_rate": 0.1})}), {"loss": FALLING}),
    "Chainer: log": ("log", json.dumps(of_rows(lambda step, value: {"main/loss": value, "validation/main/loss": value + 1, "epoch": step, "iteration": step}), indent=4), {"loss": FALLING, "val_loss": HIGHER}),
    "Dreamer: metrics.jsonl": ("metrics.jsonl", lines(*of_rows(lambda step, value: {"step": step, "train/return": value, "train/length": 50})), {"train/return": FALLING}),
    "stable-baselines3: progress.csv": ("progress.csv", rows("time/iterations,time/total_timesteps,rollout/ep_rew_mean,train/loss,train/value_loss", lambda step, value: f"{step + 1},{2048 * step},{20 + step},{value},1"), {"loss": [(2048 * step, value) for step, value in FALLING], "rollout/ep_rew_mean": [(2048 * step, 20 + step) for step in STEPS]}),
    "stable-baselines3: monitor.csv": ("0.monitor.csv", '#{"t_start": 1600000000.0, "env_id": "CartPole-v1"}\n' + rows("r,l,t", lambda step, value: f"{value},{20 + step},{step / 10}"), {"score": FALLING}),
    "RLlib: progress.csv": ("progress.csv", rows("episode_reward_mean,timesteps_total,training_iteration,trial_id,info/learner/default_policy/learner_stats/total_loss", lambda step, value: f"{20 + step},{4000 * step},{step},ab_1,{value}"), {"episode_reward_mean": [(4000 * step, 20 + step) for step in STEPS]}),
    "RLlib: result.json": ("result.json", lines(*of_rows(lambda step, value: {"episode_reward_mean": value, "timesteps_total": 4000 * step, "config": {"lr": 0.1, "env_config": {"x": 1}}, "info": {"learner": {"p": {"learner_stats": {"policy_loss": value}}}}})), {"episode_reward_mean": [(4000 * step, value) for step, value in FALLING]}),
    "fastai: CSVLogger": ("history.csv", rows("epoch,train_loss,valid_loss,accuracy,time", lambda step, value: f"{step},{value},{value + 1},0.5,00:12"), {"loss": FALLING, "val_loss": HIGHER}),
    "spaCy: JSON lines": ("log.jsonl", lines(*of_rows(lambda step, value: {"epoch": 0, "step": step, "score": 0.5, "losses": {"tok2vec": value - 1, "ner": 1}})), {"loss": FALLING, "score": [(step, 0.5) for step in STEPS]}),
    "YOLOv5 classification": ("results.csv", rows("               epoch,          train/loss,            val/loss, metrics/accuracy_top1,                lr/0", lambda step, value: f"                   {step},             {value},            {value + 1},            0.5,             0.07"), {"loss": FALLING, "val_loss": HIGHER, "lr/0": [(step, 0.07) for step in STEPS]}),
    "RT-DETR": ("results.csv", rows("epoch,time,train/giou_loss,train/cls_loss,train/l1_loss,val/giou_loss,val/cls_loss,val/l1_loss,lr/pg0", lambda step, value: f"{step},1,{value - 1},0.5,0.5,{value},0.5,0.5,0.1"), {"loss": FALLING, "val_loss": HIGHER}),
    "timm: summary.csv": ("summary.csv", rows("epoch,train_loss,eval_loss,eval_top1,eval_top5", lambda step, value: f"{step},{value},{value + 1},50.0,70.0"), {"loss": FALLING, "val_loss": HIGHER, "eval_top1": [(step, 50) for step in STEPS]}),
}  # fmt: skip


def same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], nan_ok=True)


@pytest.mark.parametrize("tool", TEXTS)
def test_a_tool(tool: str, tmp_path: Path) -> None:
    name, text, expected = TEXTS[tool]
    (tmp_path / name).write_text(text)
    found = points(tmp_path / name)
    for series, values in expected.items():
        same(found[series], values)


def test_settings_are_no_series(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(TEXTS["RLlib: result.json"][1])
    assert not [name for name in points(tmp_path / "result.json") if name.startswith("config")]


# -- several runs in one file -----------------------------------------------------------------------------------------


def runs(path: Path) -> dict[str, dict[str, int]]:
    """The points of each series, by run."""
    places_of = places(path)
    return {
        place.name: {each.name: each.points for each in import_place(place, None, {}, {}).series} for place in places_of
    }


TWO_RUNS = [(run, step, value) for step, value in FALLING for run in ("a", "b") if run == "a" or step < 4]
EXPECTED_RUNS = {"run-a": {"loss": 6}, "run-b": {"loss": 4}}


def trackio(path: Path, as_bytes: bool = False, close: bool = True) -> None:
    """A project as trackio keeps it."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
    )
    database.execute(
        "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL)"
    )
    database.execute(
        "CREATE TABLE system_metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, metrics TEXT)"
    )
    for run, step, value in TWO_RUNS:
        text = json.dumps(
            {"train/loss": value if step != 3 else "NaN", "sample": {"_type": "trackio.image", "width": 3}}
        )
        moment = f"2025-01-01T00:00:0{step}+00:00"
        values = (f"id{run}", moment, f"run-{run}", step, text.encode() if as_bytes else text)
        database.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", values
        )
        database.execute(
            "INSERT INTO system_metrics (run_id, timestamp, run_name, metrics) VALUES (?, ?, ?, ?)",
            (*values[:3], '{"gpu/0/utilization": 97}'),
        )
        database.execute(
            "INSERT INTO system_metrics (run_id, timestamp, run_name, metrics) VALUES (?, ?, ?, ?)",
            (*values[:3], '{"gpu/0/utilization": 98}'),
        )
    database.execute(
        "INSERT INTO configs (run_id, run_name, config, created_at) VALUES ('ida', 'run-a', '{\"lr\": 0.1, \"_Username\": \"x\"}', '')"
    )
    database.commit()
    if close:
        database.close()


@pytest.mark.parametrize("as_bytes", [False, True])
def test_trackio_s_database(as_bytes: bool, tmp_path: Path) -> None:
    trackio(tmp_path / "project.db", as_bytes)
    assert runs(tmp_path / "project.db") == EXPECTED_RUNS
    import_place(places(tmp_path / "project.db")[0], tmp_path / "run", {}, {})
    run = steadyrun.open_run(tmp_path / "run")
    same(
        list(zip(run.series("loss").steps, run.series("loss").values, strict=True)),
        [(step, math.nan if step == 3 else value) for step, value in FALLING],
    )
    assert run.manifest["imported"]["config"] == {"lr": 0.1}


def test_a_database_that_is_being_written(tmp_path: Path) -> None:
    if (writer := os.fork()) == 0:
        trackio(tmp_path / "project.db", close=False)
        os._exit(0)  # without a checkpoint: the rows are in the write-ahead log
    os.waitpid(writer, 0)
    assert (tmp_path / "project.db-wal").stat().st_size
    before = sorted(path.name for path in tmp_path.iterdir())
    assert runs(tmp_path / "project.db") == EXPECTED_RUNS
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_trackio_s_parquet(tmp_path: Path) -> None:
    entries = [
        {
            "id": at,
            "run_id": f"id{run}",
            "timestamp": f"2025-01-01T00:00:0{step}+00:00",
            "run_name": f"run-{run}",
            "step": step,
            "log_id": None,
            "train/loss": value,
        }
        for at, (run, step, value) in enumerate(TWO_RUNS)
    ]
    pq.write_table(pa.Table.from_pylist(entries), tmp_path / "project.parquet")
    assert runs(tmp_path / "project.parquet") == EXPECTED_RUNS


def test_a_wide_table_of_several_runs(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(
        "run_id,Run Name,step,loss\n" + "".join(f"id{run},run-{run},{step},{value}\n" for run, step, value in TWO_RUNS)
    )
    assert runs(tmp_path / "runs.csv") == EXPECTED_RUNS


def test_a_long_table_of_several_runs(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(
        "run.hash,metric.name,step,value\n"
        + "".join(f"run-{run},loss,{step},{value}\n" for run, step, value in TWO_RUNS)
    )
    assert runs(tmp_path / "runs.csv") == EXPECTED_RUNS


def test_a_table_with_a_row_per_run_is_one_log(tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text("run,lr,loss\na,0.1,3\nb,0.2,2\nc,0.1,1\n")
    assert runs(tmp_path / "sweep.csv") == {"sweep": {"loss": 3, "lr/0": 3}}


def test_long_and_wide_tables_of_databases(tmp_path: Path) -> None:
    for name, columns, entries in (
        ("wide", "step, loss", FALLING),
        ("long", "step, value, key", [(*each, "loss") for each in FALLING]),
    ):
        database = sqlite3.connect(tmp_path / f"{name}.db")
        database.execute(f"CREATE TABLE log ({columns})")
        database.executemany(f"INSERT INTO log VALUES ({', '.join('?' * len(entries[0]))})", entries)
        database.commit()
        database.close()
        same(points(tmp_path / f"{name}.db")["loss"], FALLING)


def test_a_database_without_a_log_says_what_it_has(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "people.db")
    database.execute("CREATE TABLE people (name TEXT, age INTEGER)")
    database.execute("INSERT INTO people VALUES ('ann', 3)")
    database.commit()
    with pytest.raises(LogError, match=r"it has people \(name, age\)\. Save the table"):
        points(tmp_path / "people.db")


def test_aim_s_own_storage_names_the_export(tmp_path: Path) -> None:
    for name in ("seqs", "meta"):
        (tmp_path / ".aim" / name).mkdir(parents=True)
    (tmp_path / ".aim" / "VERSION").write_text("3")
    with pytest.raises(LogError, match="Export it with Aim"):
        points(tmp_path / ".aim")


# -- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_a_long_table_does_not_matter(seed: int, tmp_path: Path) -> None:
    shuffled = random.Random(seed).sample(BY_METRIC, len(BY_METRIC))
    (tmp_path / "long.csv").write_text(
        "time,step,metric,value\n"
        + "".join(f"{1.6e9 + step},{step},{name},{value}\n" for name, step, value in shuffled)
    )
    found = points(tmp_path / "long.csv")
    same(found["loss"], FALLING)
    same(found["val_loss"], HIGHER)


def test_a_second_run_in_a_long_table_stays_behind_the_first(tmp_path: Path) -> None:
    entries = [(name, step, value + run) for name in ("loss", "lr") for run in (0, 1) for step, value in FALLING]
    (tmp_path / "long.csv").write_text(
        "step,metric,value\n" + "".join(f"{step},{name},{value}\n" for name, step, value in entries)
    )
    (place,) = places(tmp_path / "long.csv")
    log = place.format.read(place.path, place.key, Anomalies())
    (pack,) = log.rows
    assert pack.columns["step"].to_pylist() == STEPS + STEPS
    assert pack.columns["loss"].to_pylist() == pytest.approx(LOSSES + [value + 1 for value in LOSSES])


def test_a_header_with_other_columns_further_down(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(
        "epoch,loss\n0,3.0\n1,2.9\nepoch,loss,val_loss\n2,2.8,3.8\n3,2.7,oops,7\n4,2.6,3.6\nepoch,val_loss,loss\n5,3.5,2.5\n"
    )
    found = points(tmp_path / "results.csv")
    same(found["loss"], [each for each in FALLING if each[0] != 3])
    same(found["val_loss"], [(2, 3.8), (4, 3.6), (5, 3.5)])
    assert looked(tmp_path / "results.csv").odd == ["rows that do not have 3 cells (first: line 6): left out"]


def test_zero_bytes_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b"\xef\xbb\xbfstep,loss\n" + b"".join(b"%d,%f\n" % each for each in FALLING) + b"\0" * 50
    )
    same(points(tmp_path / "a.csv", "loss")["loss"], FALLING)


def test_mixed_kinds_of_cells(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        lines(
            {"step": 0, "loss": "3.0"},
            {"step": 1, "loss": None},
            {"step": 2, "loss": [1]},
            {"step": 3, "loss": 2.7},
            {"step": 4, "loss": True},
            {"step": 5, "loss": [1, 2]},
        )
    )
    same(points(tmp_path / "a.jsonl")["loss"], [(0, 3.0), (2, 1.0), (3, 2.7)])


@pytest.mark.parametrize("name", ["a.json", "trainer_state.json"])
@pytest.mark.parametrize("lost", [2, 20, 60])
def test_json_that_is_cut_off(name: str, lost: int, tmp_path: Path) -> None:
    entries = of_rows(lambda step, value: {"step": step, "loss": value})
    text = json.dumps({"max_steps": 6, "log_history": entries} if name.startswith("t") else entries, indent=2)
    (tmp_path / name).write_text(text[:-lost])
    loss = points(tmp_path / name)["loss"]
    same(loss, FALLING[: len(loss)])
    assert 4 <= len(loss) <= 6
    assert any("cut off" in line for line in looked(tmp_path / name).odd)


# -- the logs of others -----------------------------------------------------------------------------------------------

OTHERS = Path(__file__).parents[2].parent / "shared" / "reallogs2"
READ_BY_HAND: dict[str, dict[str, tuple[int, tuple[int, float], tuple[int, float]]]] = {
    "chainer-began/log": {
        "loss_gen": (99, (100, 0.009349608793854713), (9900, 0.04996645450592041)),
        "loss_dis": (99, (100, 0.3170263171195984), (9900, 0.10267047584056854)),
    },
    "dreamer-fetchreach/metrics.jsonl": {"train/return": (86, (50, -48.0), (4300, -48.0))},
    "lf-grpo360/trainer_log.jsonl": {
        "loss": (202, (1, 0.6491), (202, 0.4962)),
        "lr/0": (202, (1, 9.803921568627451e-10), (202, 1.980392156862745e-07)),
    },
    "lf-nsllm/trainer_log.jsonl": {"loss": (435, (5, 2.3475), (2175, 1.9787))},
    "lightning-sparserecon/version_12_metrics.csv": {
        "loss": (435, (47, 0.08248982578516006), (20879, 0.11265388131141663)),
        "train_loss_epoch": (435, (47, 0.048178721219301224), (20879, 0.034970905631780624)),
    },
    "lightning-sparserecon/version_14_metrics.csv": {
        "loss": (447, (47, 0.023036761209368706), (21455, 0.015698911622166634)),
        "train_loss_epoch": (447, (47, 0.04339789226651192), (21455, 0.03910558298230171)),
    },
}


@pytest.mark.skipif(not OTHERS.is_dir(), reason="the folder shared/reallogs2 is not beside the project")
@pytest.mark.parametrize("name", READ_BY_HAND)
def test_a_log_of_another_project(name: str, tmp_path: Path) -> None:
    run = steadyrun.import_log(OTHERS / name, tmp_path / "run")
    for series, (count, first, last) in READ_BY_HAND[name].items():
        found = run.series(series)
        assert (len(found), found.steps[0], found.steps[-1]) == (count, first[0], last[0]), series
        assert [found.values[0], found.values[-1]] == pytest.approx([first[1], last[1]]), series
