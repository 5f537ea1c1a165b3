"""Tables of numbers without names, and files whose last line has no end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from imported import looked, points

from steadyrun.errors import LogError
from steadyrun.importers.log_files import places

ROWS = [(40 - row + 0.5, row % 3 + 0.25) for row in range(30)]
TWO = "".join(f"{a},{b}\n" for a, b in ROWS)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("loss.csv", TWO, ["loss", "column_2"]),
        ("train_loss_history.csv", TWO, ["loss", "column_2"]),
        ("val-loss.csv", TWO, ["val_loss", "column_2"]),
        ("numbers.csv", TWO, ["column_1", "column_2"]),
        ("loss.csv", "".join(f"{row},{a}\n" for row, (a, _) in enumerate(ROWS)), ["loss"]),
        ("numbers.tsv", TWO.replace(",", "\t"), ["column_1", "column_2"]),
        ("loss.txt", "".join(f"{a}\n" for a, _ in ROWS), ["loss"]),
        ("loss.csv", "x1\n" + "".join(f"{a}\n" for a, _ in ROWS), ["loss"]),
        ("loss.csv", "x1,x2\n" + "".join(f"{row},{a} (tracked)\n" for row, (a, _) in enumerate(ROWS)), ["loss"]),
        ("loss.txt", "".join(f"tf.Tensor({a}, shape=(), dtype=float32)\n" for a, _ in ROWS), ["loss"]),
        ("val_loss.txt", "".join(f"tensor({a}, device='cuda:0')\n" for a, _ in ROWS), ["val_loss"]),
        ("episode_rewards.txt", "".join(f"{a}\n" for a, _ in ROWS), ["episode_rewards"]),
        ("acc.csv", "".join(f"{a}\n" for a, _ in ROWS), ["acc"]),
    ],
)
def test_a_table_without_names(name: str, text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    read = points(tmp_path / name)
    assert sorted(read) == sorted(found)
    assert read[found[0]] == [(row, a) for row, (a, _) in enumerate(ROWS)]
    assert any(line.startswith("no names of columns: they are called") for line in looked(tmp_path / name).odd)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("loss.csv", "loss\n" + "".join(f"{a}\n" for a, _ in ROWS), "loss"),
        ("val_loss.json", json.dumps([a for a, _ in ROWS]), "val_loss"),
        ("train_loss.txt", json.dumps([a for a, _ in ROWS]), "loss"),
        ("rewards.csv", "episode,own\n" + "".join(f"{row},{a}\n" for row, (a, _) in enumerate(ROWS)), "score"),
        ("rewards.csv", "episode,reward\n" + "".join(f"{row},{int(a)}\n" for row, (a, _) in enumerate(ROWS)), "reward"),
        ("0.monitor.csv", "r,l,t\n" + "".join(f"{a},{b},{a / 9}\n" for a, b in ROWS), "score"),
    ],
)
def test_a_file_says_what_its_only_series_is(name: str, text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert points(tmp_path / name)[found] == [
        (row, int(a) if found == "reward" else a) for row, (a, _) in enumerate(ROWS)
    ]


FALLS, RISES = [9 / (row + 1) for row in range(20)], [row / 20 for row in range(20)]


@pytest.mark.parametrize(
    "names", [("train", "val"), ("cost", "val_cost"), ("train_error", "test_error"), ("MAE", "val_MAE")]
)
def test_a_name_that_may_be_a_loss_is_one_if_it_comes_down(names: tuple[str, str], tmp_path: Path) -> None:
    for file, values in (("down.csv", FALLS), ("up.csv", RISES)):
        rows = "".join(f"{epoch},{value},{value}\n" for epoch, value in enumerate(values))
        (tmp_path / file).write_text(f"epoch,{names[0]},{names[1]}\n{rows}")
    assert set(points(tmp_path / "down.csv")) == {"loss", "val_loss"}
    assert set(points(tmp_path / "up.csv")) == set(names)


def test_a_letter_beside_its_terms_is_the_loss(tmp_path: Path) -> None:
    rows = "".join(f"{step},{value},{value / 2},{value / 2}\n" for step, value in enumerate(FALLS))
    (tmp_path / "a.csv").write_text("step,L,L_crf,L_selection\n" + rows)
    assert set(points(tmp_path / "a.csv")) == {"loss", "L_crf", "L_selection"}
    (tmp_path / "b.csv").write_text("step,L,acc,time\n" + rows)
    assert "loss" not in points(tmp_path / "b.csv")


def test_a_column_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text(TWO)
    (told,) = (line for line in looked(tmp_path / "numbers.csv").odd if "no names" in line)
    assert "--map loss=column_1" in told


@pytest.mark.parametrize("text", ["1.5,2\n", "1.5,2\n1.5,x\n1.5,3\n1.5,2\n1.5,2\n", "2023,loss\n1,2\n3,4\n"])
def test_what_is_not_numbers_alone_needs_names(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(LogError):
        points(tmp_path / "a.csv")


def test_a_percentage_at_the_end_is_whole(tmp_path: Path) -> None:
    lines = "".join(f"Epoch {epoch}: loss 0.{90 - epoch} acc {epoch}.5%\n" for epoch in range(1, 20))
    (tmp_path / "a.log").write_text(lines.rstrip("\n"))
    assert points(tmp_path / "a.log")["acc"][-1] == (19, 19.5)


def test_a_page_that_shows_a_log_is_not_one(tmp_path: Path) -> None:
    rows = "".join(f"step {step}: loss {9 / (step + 1):.3f}\n" for step in range(30))
    (tmp_path / "notes.md").write_text("# How to train\n\nRun it. It prints:\n" + rows[:200] + "\nand so on.\n" * 30)
    (tmp_path / "run.md").write_text("# My run\n" + rows)
    assert [place.path.name for place in places(tmp_path)] == ["run.md"]
