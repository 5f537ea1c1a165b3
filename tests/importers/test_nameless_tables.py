"""Tables of numbers without names, and files whose last line has no end."""

from __future__ import annotations

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
    ],
)
def test_a_table_without_names(name: str, text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    read = points(tmp_path / name)
    assert sorted(read) == sorted(found)
    assert read[found[0]] == [(row, a) for row, (a, _) in enumerate(ROWS)]
    assert any(line.startswith("no names of columns: they are called") for line in looked(tmp_path / name).odd)


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
