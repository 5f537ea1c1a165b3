"""Several runs in one log: folds, seeds, starts of a program, rows without ends of line, losses with other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steadyrun
from steadyrun.importers.convert import Imported, Request
from steadyrun.importers.formats.dialects.joined_rows import separate
from steadyrun.importers.import_log import import_place, import_runs
from steadyrun.importers.log_files import places


def runs(path: Path) -> list[Imported]:
    (place,) = places(path)
    return import_runs(place, None, Request())


def points(path: Path, text: str, *series: str) -> list[list[tuple[str, int, int | None, int | None]]]:
    """For each run: name in the log, points, first and last step of some series."""
    path.write_text(text)
    wanted = series or ("loss",)
    return [
        [(each.source, each.points, each.first, each.last) for each in run.series if each.name in wanted]
        for run in runs(path)
    ]


def fold(number: int, epochs: int, name: str = "tr_loss") -> str:
    return "".join(
        f"[Fold {number} Ep {epoch:03}] {name}={1 / epoch:.4f} | val_auc=0.5\n" for epoch in range(1, epochs + 1)
    )


def test_folds_are_runs_however_short(tmp_path: Path) -> None:
    found = points(tmp_path / "a.log", fold(1, 20) + fold(2, 1) + fold(3, 2) + fold(4, 20))
    assert found == [[("tr_loss", count, 1, count)] for count in (20, 1, 2, 20)]


def test_a_fold_that_only_a_heading_names(tmp_path: Path) -> None:
    text = "".join(
        f"===== Fold {number}/3 =====\n" + "".join(f"Epoch {epoch} loss: {2 / epoch:.3f}\n" for epoch in (1, 2))
        for number in (1, 2, 3)
    )
    assert points(tmp_path / "a.log", text) == [[("loss", 2, 1, 2)]] * 3


def test_each_run_has_the_loss_that_it_really_has(tmp_path: Path) -> None:
    final = "".join(f"[Ep {epoch:03}/20] loss={3 / epoch:.4f} lr=1e-3\n" for epoch in range(1, 21))
    found = points(tmp_path / "a.log", fold(1, 30) + fold(2, 30) + final)
    assert found == [[("tr_loss", 30, 1, 30)], [("tr_loss", 30, 1, 30)], [("loss", 20, 1, 20)]]


def test_a_counter_above_the_epochs_in_rows(tmp_path: Path) -> None:
    rows = [{"seed": seed, "epoch": epoch, "loss": 1 / epoch} for seed in (1, 2, 3) for epoch in (1, 2)]
    found = points(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert found == [[("loss", 2, 1, 2)]] * 3


def test_a_stage_that_counts_on_is_the_same_run(tmp_path: Path) -> None:
    rows = [{"stage": epoch // 10, "epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 31)]
    found = points(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert found == [[("loss", 30, 1, 30)]]


def losses(*epochs: int) -> list[tuple[int, str]]:
    return [(epoch, f"{2 / (epoch + 1):.4f}") for epoch in epochs]


@pytest.mark.parametrize("label", ["phase", "model", "fold", "stage"])
def test_labels_in_words_are_runs(label: str, tmp_path: Path) -> None:
    """Each begins where it likes: at the start, behind the last one, or in the middle of its own training."""
    parts = {"warm": range(1, 11), "main": range(1, 16), "end": range(11, 21), "warm again": range(40, 50)}
    text = f"{label},epoch,loss\n"
    text += "".join(f"{name},{epoch},{loss}\n" for name, epochs in parts.items() for epoch, loss in losses(*epochs))
    assert [count for [(_, count, _, _)] in points(tmp_path / "a.csv", text)] == [10, 15, 10, 10]


def test_words_that_count_on_are_one_run(tmp_path: Path) -> None:
    text = "stage,epoch,loss\n" + "".join(
        f"{'warm' if e < 9 else 'main'},{e},{loss}\n" for e, loss in losses(*range(30))
    )
    assert points(tmp_path / "a.csv", text) == [[("loss", 30, 0, 29)]]


def by_place(path: Path) -> dict[str, dict[str, int]]:
    found = {place.name: import_place(place, None, {}, {}) for place in places(path)}
    return {name: {each.name: each.points for each in run.series} for name, run in found.items()}


def test_folds_that_take_turns_are_runs(tmp_path: Path) -> None:
    text = "epoch,fold,loss\n" + "".join(f"{e},{fold},{loss}\n" for e, loss in losses(*range(20)) for fold in (1, 2, 3))
    (tmp_path / "a.csv").write_text(text)
    assert by_place(tmp_path / "a.csv") == {f"fold-{fold}": {"loss": 20, "fold": 20} for fold in (1, 2, 3)}


@pytest.mark.parametrize("name", ["loss_fold{}", "fold_{}/loss", "Seed {} loss", "seed{}"])
def test_columns_of_several_runs(name: str, tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text(
        f"epoch,{name.format(1)},{name.format(2)}\n" + "".join(f"{e},{loss},{loss}\n" for e, loss in losses(*range(9)))
    )
    assert list(by_place(tmp_path / "loss.csv").values()) == [{"loss": 9}] * 2


@pytest.mark.parametrize("column", ["phase", "split", "stage", "mode", "dataset", "type", "partition"])
@pytest.mark.parametrize("words", [("train", "val"), ("Train", "Test"), ("training", "validation")])
def test_rows_of_training_and_validation(column: str, words: tuple[str, str], tmp_path: Path) -> None:
    text = f"{column},epoch,loss,acc\n"
    text += "".join(f"{word},{e},{loss},0.5\n" for e, loss in losses(*range(9)) for word in words)
    assert points(tmp_path / "a.csv", text, "loss", "val_loss") == [[("loss", 9, 0, 8), ("val_loss", 9, 0, 8)]]


BANNER = "================ Training Loss (Fri May 2{} 15:43:51 2021) ================\n"


def rows(epoch: int, *steps: int) -> str:
    return "".join(f"(epoch: {epoch}, iters: {step}, time: 1.5) idt: 2.3 disc: 0.74 gen: 1.6\n" for step in steps)


def test_a_program_that_starts_again(tmp_path: Path) -> None:
    long = "".join(rows(epoch, *range(500, 4000, 500)) for epoch in range(1, 6))
    text = BANNER.format(1) + BANNER.format(2) + rows(1, 500, 1000) + BANNER.format(3) + rows(1, 100)
    text += BANNER.format(4) + long
    assert [count for [(_, count, _, _)] in points(tmp_path / "a.txt", text, "disc")] == [2, 1, 35]


def test_a_program_that_goes_on_after_a_start(tmp_path: Path) -> None:
    first, then = (
        "".join(rows(epoch, *range(500, 4000, 500)) for epoch in epochs) for epochs in (range(1, 6), range(6, 9))
    )
    assert len(points(tmp_path / "a.txt", BANNER.format(1) + first + BANNER.format(2) + then, "disc")) == 1


def test_a_maker_and_a_judge_have_no_total(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(rows(1, *range(100, 2000, 100)))
    (run,) = runs(tmp_path / "a.txt")
    assert any(line.startswith("losses of players against each other") for line in run.odd)


@pytest.mark.parametrize("joint", ["", " ", "; "])
def test_rows_without_ends_of_line(joint: str, tmp_path: Path) -> None:
    rows = [f"epoch: {epoch}/100, train_loss: {9 / epoch:.4f}, train_acc: 0.{epoch}" for epoch in range(1, 2_000)]
    found = points(tmp_path / "a.txt", joint.join(rows) + "\n")
    assert found == [[("train_loss", 1_999, 1, 1_999)]]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 3: val loss 0.3 (best epoch 2: 0.25)",
        "step 10 loss 2.3 step time 0.3",
        "epoch 1/10 - epoch 1 took 3 s",
        "a line without counts",
        "",
    ],
)
def test_a_line_that_is_one_row(line: str) -> None:
    assert separate(line) == [line]


def by_turns(*starts: int) -> str:
    """Processes that print every hundredth step, the one or the other sometimes twice in a row."""
    turns = [index for turn in range(60) for index in range(len(starts)) for _ in range(1 + (turn % 7 == index))]
    at, lines = list(starts), []
    for index in turns:
        at[index] += 100
        epoch, step = divmod(at[index], 3700)
        lines.append(f"(epoch: {epoch}, iters: {step}, time: 0.5) D_A: 0.{index}1 G_A: 0.5 idt_A: 0.1\n")
    return "".join(lines)


def test_processes_that_write_by_turns_are_runs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(by_turns(15_000, 3_700))
    far, near = runs(tmp_path / "a.txt")
    for run, value in ((far, 0.01), (near, 0.11)):
        (series,) = (each for each in run.series if each.name == "D_A")
        assert (series.low, series.high, series.points) == (value, value, series.points)
        assert series.points > 60
        assert run.attempts == 1
    assert any(line.startswith("2 processes wrote by turns") for line in far.odd)


def test_processes_are_written_to_folders_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(by_turns(15_000, 3_700))
    (place,) = places(tmp_path / "a.txt")
    both = import_runs(place, tmp_path / "run", Request())
    assert [run.path and run.path.name for run in both] == ["run-1", "run-2"]
    (second,) = import_runs(place, tmp_path / "one", Request(run=2))
    assert second.points == both[1].points


def test_ranks_of_one_training_stay_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(by_turns(3_700, 3_800))
    assert len(runs(tmp_path / "a.txt")) == 1


def test_a_run_that_begins_where_the_one_before_it_ended_kept_its_weights(tmp_path: Path) -> None:
    def rows(start: float, end: float) -> str:
        losses = [end + (start - end) * 0.9**n + 0.001 * (n % 3) for n in range(80)]
        return "".join(f"epoch 0, step {10 * n}: loss {loss:.5f}\n" for n, loss in enumerate(losses))

    for name, second in (("goes-on", rows(0.051, 0.05)), ("again", rows(2.0, 0.05))):
        (tmp_path / f"{name}.log").write_text(rows(2.0, 0.05) + second)
        run = steadyrun.import_log(tmp_path / f"{name}.log", tmp_path / name, number=2)
        assert run.manifest["imported"].get("continues", False) is (name == "goes-on")
        assert steadyrun.check(tmp_path / name).verdict == ("cannot-tell" if name == "goes-on" else "healthy")
