"""Logs in forms of their own: lists by line, a table below settings, epochs named at their end, numbers in lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from imported import looked, points
from test_several_runs import points as points_of_runs
from test_several_runs import runs

from steadyrun.errors import LogError
from steadyrun.importers.log_files import places

CURVE = [round(2 / (index + 1), 3) for index in range(12)]


def test_a_line_with_a_list_is_a_series(tmp_path: Path) -> None:
    (tmp_path / "curves.txt").write_text(f"train_loss: {CURVE}\nval_loss = {CURVE[:11]}\nlengths: [100,200,300]\n")
    found = points(tmp_path / "curves.txt")
    assert found["loss"] == list(enumerate(CURVE))
    assert found["val_loss"] == list(enumerate(CURVE[:11]))
    assert found["lengths"] == [(0, 100.0), (1, 200.0), (2, 300.0)]


def test_a_list_with_the_same_name_is_another_run(tmp_path: Path) -> None:
    text = f"RNN:{CURVE}\nRNN:{CURVE[:4]}\nRNN:[0.5, nan, inf, 1e-3]\n"
    assert points_of_runs(tmp_path / "a.txt", text, "RNN") == [
        [("RNN", count, 0, count - 1)] for count in (12, 4, 4)
    ]  # fmt: skip
    (tmp_path / "loss_log.txt").write_text(text)
    assert [run.roles["loss"] for run in runs(tmp_path / "loss_log.txt")] == ["RNN"] * 3


def test_a_list_without_an_end_loses_its_last_number(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("loss: [0.5, 0.4, 0.3, 0.2, 0.1\n")
    assert points(tmp_path / "a.txt")["loss"] == [(0, 0.5), (1, 0.4), (2, 0.3), (3, 0.2)]


def test_lists_in_a_text_are_not_series(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Settings follow.\nkernels: [1, 3, 5]\nNothing else is said.\nIt ends here.\n")
    with pytest.raises(LogError):
        places(tmp_path / "a.txt")


@pytest.mark.parametrize("above", ["meta:dir='a',batch=128,10,600\n", "My run\n\nseed: 3\n", "meta,10,600\n"])
def test_a_table_below_other_lines(above: str, tmp_path: Path) -> None:
    rows = "".join(f"{step},{value},ok\n" for step, value in enumerate(CURVE))
    (tmp_path / "a.csv").write_text(f"{above}step,loss,note\n{rows}")
    assert points(tmp_path / "a.csv")["loss"] == list(enumerate(CURVE))


def test_lines_of_text_with_commas_are_not_a_table(tmp_path: Path) -> None:
    lines = "".join(f"Epoch: {epoch}, loss: {value}\n" for epoch, value in enumerate(CURVE))
    (tmp_path / "a.log").write_text(f"Hello\n{lines}")
    assert looked(tmp_path / "a.log").format == "text"


def epochs_named_at_their_end(count: int, first: int = 0) -> str:
    return "".join(
        "".join(f"train --- batch:{at}/400 loss:[{0.9 - 0.01 * epoch + at / 1e4:.4f}]\n" for at in (100, 200, 300, 400))
        + f"Epoch [{epoch}]/[{count - 1}] Training Phase Loss: {0.09 - 0.001 * epoch:.3f}\n"
        + "".join(f"val --- batch:{at}/200 loss:[0.5{at}]\n" for at in (100, 200))
        + f"Epoch [{epoch}]/[{count - 1}] Validation Phase Loss: {0.08 - 0.001 * epoch:.3f}\n"
        for epoch in range(first, count)
    )


def test_epochs_that_a_summary_names_at_their_end(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(epochs_named_at_their_end(20))
    found = points(tmp_path / "a.log")
    assert [step for step, _ in found["loss"]] == list(range(100, 8001, 100))
    assert [step for step, _ in found["val_loss"]] == list(range(400, 8001, 400))
    assert found["Training Phase Loss"][-1] == (8000, pytest.approx(0.071))


def test_a_run_that_starts_again_after_such_epochs(tmp_path: Path) -> None:
    text = epochs_named_at_their_end(9) + epochs_named_at_their_end(7)
    assert points_of_runs(tmp_path / "a.log", text) == [[("loss", 36, 100, 3600)], [("loss", 28, 100, 2800)]]


def test_a_result_without_a_place_is_not_the_last_step(tmp_path: Path) -> None:
    steps = "".join(f"INFO:main:Step {step}/20 | Loss: {3 - step / 10:.1f}\n" for step in range(21))
    text = f"{steps}INFO:main:> Evaluation Results:\nINFO:main:   Loss: 1.5\nINFO:main:Final Results: Loss=1.4\n"
    (tmp_path / "a.log").write_text(text)
    found = points(tmp_path / "a.log")
    assert found["loss"][-1] == (20, 1.0)
    assert found["val_loss"] == [(20, 1.5)]


@pytest.mark.parametrize("best", ["Min", "Max"])
def test_a_number_in_a_list_of_its_own(best: str, tmp_path: Path) -> None:
    rounds = [{"iteration": at, "learn": [value], "test": [value + 1]} for at, value in enumerate(CURVE)]
    meta = {"learn_metrics": [{"name": "RMSE", "best_value": best}], "test_sets": ["test"]}
    (tmp_path / "catboost_training.json").write_text(json.dumps({"meta": meta, "iterations": rounds}))
    found = points(tmp_path / "catboost_training.json")
    assert found["loss" if best == "Min" else "learn"] == list(enumerate(CURVE))
    assert ("val_loss" in found) == (best == "Min")


def table(count: int, first: int = 1) -> str:
    return "step,loss\n" + "".join(f"{step},{2 / step:.3f}\n" for step in range(first, first + count))


def test_a_header_that_comes_again_is_a_start_of_the_program(tmp_path: Path) -> None:
    found = points_of_runs(tmp_path / "a.csv", table(30) + table(2) + table(0) + table(30))
    assert found == [[("loss", count, 1, count)] for count in (30, 2, 30)]


def test_a_header_before_rows_that_go_on_begins_no_run(tmp_path: Path) -> None:
    assert points_of_runs(tmp_path / "a.csv", table(30) + table(10, 31)) == [[("loss", 40, 1, 40)]]
    (resumed,) = points_of_runs(tmp_path / "b.csv", table(30) + table(20, 21))
    assert resumed[0][2:] == (1, 40)


def test_the_mean_of_an_epoch_does_not_replace_its_last_step(tmp_path: Path) -> None:
    text = "".join(
        "".join(f"Epoch[{epoch}] Batch [{at}] accuracy=0.{at} lr=0.1\n" for at in (19, 39, 59))
        + f"[Epoch {epoch}] training: accuracy=0.{300 + epoch}\n[Epoch {epoch}] validation: accuracy=0.{400 + epoch}\n"
        for epoch in range(9)
    )
    (tmp_path / "a.log").write_text(text)
    found = points(tmp_path / "a.log")
    assert [value for _, value in found["accuracy"]] == [0.19, 0.39, 0.59] * 9
    assert [value for _, value in found["epoch_accuracy"]] == [round(0.3 + epoch / 1000, 3) for epoch in range(9)]
    assert len(found["val_accuracy"]) == 9
