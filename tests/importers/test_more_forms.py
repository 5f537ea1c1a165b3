"""Forms of logs that strangers have: groups of columns, other encodings, counts in headings, Sockeye metrics."""

# ruff: noqa: RUF001  (marks of other scripts are what it is about)

from __future__ import annotations

from pathlib import Path

import pytest
from imported import looked

import steadyrun

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
