"""Forms of logs that strangers have: groups of columns, other encodings, counts in headings, Sockeye metrics."""

# ruff: noqa: RUF001  (marks of other scripts are what it is about)

from __future__ import annotations

from pathlib import Path

import pytest
from imported import looked, points

import steadyrun
from steadyrun.errors import LogError

RULE = "-" * 100 + "\n"
GROUPS = (
    "              |------ VALID -------|------ TRAIN -------|----Accuracy----|------------|\n"
    "lr     iter   epoch  | loss   top-1  top-2 | loss   top-1  top-2 | Current Best | time   |\n"
) + RULE


def grouped(epochs: int) -> str:
    rows = (
        f"0.0001   {e}.0    {e}.0   | {0.5 - e / 100:.3f}  80.3{e}  96.347  | {0.9 - e / 50:.3f}  66.667  95.480  |"
        f"     80.365295     |  0 hr {e:02} min\n"
        for e in range(epochs)
    )
    return GROUPS + "".join(rows)


def log(folder: Path, text: str | bytes, name: str = "train.log") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_groups_of_columns_below_titles(tmp_path: Path) -> None:
    run = steadyrun.import_log(log(tmp_path, grouped(12)), tmp_path / "run")
    assert run.series("loss").values[0] == pytest.approx(0.9)
    assert run.series("val_loss").values[-1] == pytest.approx(0.39)
    assert len(run.series("lr/0").values) == 12
    assert {"train_top-1", "val_top-1", "Current Best"} <= set(run.names())


def test_each_start_of_a_grouped_table_is_a_run(tmp_path: Path) -> None:
    start = "------------ [START 2019-03-29 10:48:27] ------------\n\n** start training here! **\n"
    text = start + GROUPS + start + grouped(12) + start + grouped(8)
    with pytest.raises(ValueError, match="2 runs"):
        looked(log(tmp_path, text))


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("gb18030", "当前Batch：{s}/600 | 当前epoch:0/50 | 当前损失值：{l:.4f} | 当前准确率：{s}.00%\n"),
        ("utf-8", "当前Batch：{s}/600 | 当前epoch:0/50 | 当前损失值：{l:.4f} | 当前准确率：{s}.00%\n"),
        ("cp1252", "Époque {s}/60, perte: {l:.4f}, précision: 0.{s}\n"),
    ],
)
def test_other_encodings(encoding: str, line: str, tmp_path: Path) -> None:
    text = "".join(line.format(s=step, l=2 - step / 50) for step in range(10, 60))
    run = steadyrun.import_log(log(tmp_path, text.encode(encoding)), tmp_path / "run")
    assert len(run.series("loss").values) == 50
    assert run.series("loss").values[0] == pytest.approx(1.8)


def test_bytes_cut_by_a_recorder_leave_utf_8(tmp_path: Path) -> None:
    bar = "100%|████████".encode()[:-1]
    text = b"".join(bar + b"\nepoch %d loss: %.3f\n" % (epoch, 2 - epoch / 50) for epoch in range(30))
    assert len(steadyrun.import_log(log(tmp_path, text), tmp_path / "run").series("loss").values) == 30


def test_of_two_counts_beside_an_epoch_the_one_through_all_epochs_counts(tmp_path: Path) -> None:
    text = "".join(
        f"epoch: {epoch}, iteration: {i}, step: {epoch * 300 + i}\n[Train] loss: {2 - (epoch * 300 + i) / 2000:.4f}\n"
        for epoch in range(4)
        for i in (0, 100, 200)
    )
    run = steadyrun.import_log(log(tmp_path, text), tmp_path / "run")
    assert run.series("loss").steps.tolist() == [300 * epoch + i for epoch in range(4) for i in (0, 100, 200)]


def test_sockeye_metrics(tmp_path: Path) -> None:
    text = "".join(
        f"{n}\tepoch=0\tlearning-rate=0.0002\tgradient-norm=1.5\tperplexity-train={90 / n:.4f}"
        f"\tperplexity-val={99 / n:.4f}\n"
        for n in range(1, 31)
    )
    run = steadyrun.import_log(log(tmp_path, text, "metrics"), tmp_path / "run")
    assert run.series("perplexity-val").steps.tolist() == list(range(1, 31))
    assert run.series("perplexity-train").values[0] == pytest.approx(90)
    assert "lr/0" in run.names()


def test_a_loss_that_is_rarely_printed_is_not_the_loss_of_the_run(tmp_path: Path) -> None:
    means = "".join(f"Training epoch: {epoch}\n\tmean_loss: {3 - epoch / 40:.4f}\n" for epoch in range(80))
    late = "".join(
        f"Training epoch: {epoch}\n\tIter {epoch * 500} Done. | loss: 1.5 | lr: 0.01\n"
        f"\tmean_loss: {1 - epoch / 400:.4f}\n"
        for epoch in range(80, 85)
    )
    run = steadyrun.import_log(log(tmp_path, means + late), tmp_path / "run")
    assert len(run.series("loss").values) == 85


def test_rows_that_share_their_first_number_are_counted(tmp_path: Path) -> None:
    text = "".join(f"{epoch}\t{9 - epoch - i / 40:.5f}\n" for epoch in range(4) for i in range(20))
    run = steadyrun.import_log(log(tmp_path, text, "train_losses.csv"), tmp_path / "run")
    assert len(run.series("loss").values) == 80


def test_a_number_sign_before_a_count(tmp_path: Path) -> None:
    text = "".join(f"[BEST] Epoch #{epoch}: train_loss={2 - epoch / 50:.4f}, time=0.2s\n" for epoch in range(30))
    assert points(log(tmp_path, text), "loss")["loss"][-1] == (29, pytest.approx(1.42))


def test_a_stage_that_begins_at_its_first_interval_is_a_run(tmp_path: Path) -> None:
    first = "".join(f"Epoch {epoch}: loss={5 - epoch / 50:.4f}\n" for epoch in range(200))
    second = "".join(f"Epoch {epoch}: loss={0.5 - epoch / 500:.4f}\n" for epoch in range(10, 110, 10))
    with pytest.raises(ValueError, match="2 runs"):
        looked(log(tmp_path, first + second))


def test_an_indented_line_with_a_place_is_no_field(tmp_path: Path) -> None:
    text = "".join(
        "".join(f"  epoch {epoch}/6  step {step}/8  loss={1 / (8 * epoch + step):.4f}\n" for step in range(1, 9))
        + f"Epoch {epoch} mean Dice: 0.{epoch}5\n"
        for epoch in range(1, 7)
    )
    found = points(log(tmp_path, text))
    assert len(found["loss"]) == 48
    assert [value for _, value in found["mean Dice"]] == [0.15, 0.25, 0.35, 0.45, 0.55, 0.65]


def test_a_size_of_a_batch_behind_the_values_is_no_step(tmp_path: Path) -> None:
    text = "".join(
        f"[{step:06}/50000] SETA | loss {3 - step / 9000:.4f} | MEM 1.4/15.9GB (9%) | batch 16\n"
        for step in range(0, 20000, 500)
    )
    assert [step for step, _ in points(log(tmp_path, text), "loss")["loss"]] == list(range(0, 20000, 500))


@pytest.mark.parametrize("prefix", ["I1217 06:{m:02}:28.371599 1370961 trains.py:298] ", "INFO:tensorflow:"])
def test_a_place_in_brackets_behind_the_prefix_of_a_logger(prefix: str, tmp_path: Path) -> None:
    text = "".join(
        f"{prefix.format(m=n)}[ {1000 * n:5}] | gnorm {2 + n % 3:.2f} lr 0.001 | loss {6 - n / 9:.3f}\n"
        for n in range(1, 40)
    )
    found = points(log(tmp_path, text), "loss", "grad_norm")
    assert found["loss"][0] == (1000, pytest.approx(6 - 1 / 9, abs=1e-3))
    assert len(found["grad_norm"]) == 39


@pytest.mark.parametrize("row", ["epoch{n}\t{l:.6f}\n", "Epoch {n}: {l:.6f}\n", "step={n} {l:.6f}\n"])
def test_a_count_and_a_number_in_a_file_that_is_named_after_it(row: str, tmp_path: Path) -> None:
    text = "".join(row.format(n=n, l=2 - n / 50) for n in range(1, 40))
    assert points(log(tmp_path, text, "train_loss.txt"), "loss")["loss"][-1] == (39, pytest.approx(1.22))


def test_a_count_and_a_number_in_another_file_say_nothing(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        looked(log(tmp_path, "".join(f"epoch{n} {2 - n / 50:.6f}\n" for n in range(1, 40)), "notes.txt"))


def test_a_fraction_in_front_of_the_word_epoch(tmp_path: Path) -> None:
    text = "".join(f"{n}/30 epoch train_loss : {2 - n / 50:.4f}\n" for n in range(1, 31))
    assert points(log(tmp_path, text), "loss")["loss"][-1] == (30, pytest.approx(1.4))


def test_a_metric_without_a_step_is_a_course_if_its_lines_have_a_time(tmp_path: Path) -> None:
    rows = [f"accuracy: {40 + n}.25%; precision: {30 + n}.50%\n" for n in range(20)]
    timed = "".join(f"2020-02-11 02:{n:02}:29,239 - INFO - {row}" for n, row in enumerate(rows))
    assert len(points(log(tmp_path, timed), "accuracy")["accuracy"]) == 20
    with pytest.raises(LogError):  # a list of results has no order
        looked(log(tmp_path, "".join(rows), "results.txt"))


def test_holes_in_a_text_are_no_binary_file(tmp_path: Path) -> None:
    rows = [b"step %d loss: %.3f\n" % (n, 2 - n / 50) for n in range(40)]
    text = b"".join(rows[:20]) + b"\0" * 3000 + b"".join(rows[20:])
    assert len(points(log(tmp_path, text), "loss")["loss"]) >= 39
    with pytest.raises(LogError, match="binary"):
        looked(log(tmp_path, b"".join(row + b"\0" for row in rows), "model.dat"))
