"""`steadyrun top`: one frame of a finished run, frames of any size, and a run followed in a terminal."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import HOSTILE, few_questions, only
from servers import writing
from terminal import Terminal
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.cli.top_frame import Screen, frame, number
from steadyrun.panels.board import board_of

GOLDEN = Path(__file__).parent / "golden"
SIZE = {"COLUMNS": "80", "LINES": "24"}


def record(path: Path, steps: int = 200, first_loss: float = 6.0) -> None:
    with steadyrun.record(path, config={"lr_max": 0.1, "clip": 1.0}) as run:
        for step in range(steps):
            run.log(
                loss=float("nan") if step in {120, 121} else first_loss * math.exp(-step / 80),
                lr=0.1 * min(1.0, (step + 1) / 50),
                grad_norm=2 + math.sin(step / 10),
                **{"activation/blocks.0": 1.0, "activation/blocks.1": 1.5 + step / 200},
                **{"class_loss/regular": 5.0 / (1 + step), "class_loss/irregular": 5.0 / (1 + step / 2)},
            )
            if step % 50 == 49:
                run.val(5.0 * math.exp(-step / 100))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("top") / "run"
    record(path)
    return path


@pytest.fixture
def _few() -> Iterator[None]:
    with only(few_questions()):
        yield


def once(run: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    monkeypatch.chdir(run.parent)
    found = CliRunner().invoke(app, ["top", run.name, "--once"], env=SIZE | environment)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.usefixtures("_few")
def test_a_frame_of_80_by_24(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To accept a change: run with ACCEPT=1 in the environment, and look at the difference."""
    told = once(run, monkeypatch)
    golden = GOLDEN / "top-80x24.txt"
    if os.environ.get("ACCEPT"):
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")
    assert len(told.splitlines()) == 24
    assert {len(line) for line in told.splitlines()} == {80}


@pytest.mark.parametrize("columns", [10, 20, 43, 44, 71, 72, 80, 139, 140, 200])
@pytest.mark.parametrize("lines", [2, 5, 9, 17, 24, 50])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_size_is_filled_and_never_exceeded(run: Path, columns: int, lines: int, ascii_only: bool) -> None:
    found = [text.plain for text in frame(_board(run), Screen(columns, lines, ascii_only, "q exits"))]
    assert len(found) <= lines
    assert max(len(line) for line in found) <= columns
    assert not ascii_only or all(line.isascii() for line in found)


_boards: dict[Path, object] = {}


def _board(run: Path):  # type: ignore[no-untyped-def]
    if run not in _boards:
        _boards[run] = board_of(run)
    return _boards[run]


def test_a_fault_says_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "run", steps=30, first_loss=90.0)
    with only(few_questions()):
        told = once(tmp_path / "run", monkeypatch)
    assert "(C1.1) at step 0" in told
    assert "fix: Mend it." in told
    assert "✗ 2 learning rate" in told


def test_colour_only_where_it_is_wanted(run: Path) -> None:
    coloured = Terminal("top", str(run), "--once")
    assert coloured.wait() == 0
    assert "\x1b[" in coloured.told
    assert "38;2" not in coloured.told  # no terminal needs more than its own few colours
    plain = Terminal("top", str(run), "--once", NO_COLOR="1")
    assert plain.wait() == 0
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])m", plain.told)


def test_a_slow_terminal_cuts_no_character_apart(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminal.PIECE", 7)
    found = Terminal("top", str(run), "--once", NO_COLOR="1")
    assert found.wait() == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", found.told).splitlines()
    assert {len(line) for line in shown} == {80}


def test_a_terminal_that_is_not_utf8_gets_ascii(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Terminal("top", str(run), "--once", PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert found.wait() == 0
    assert re.sub(r"\x1b\[[0-9;]*m", "", found.told).isascii()
    assert "! 1 loss" in found.told


def test_hostile_names_move_no_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / HOSTILE.replace("/", "|").replace("\0", "")[:100]
    with steadyrun.record(path) as run:
        run.log(loss=1.0, **{f"activation/{HOSTILE.encode('utf-8', 'replace').decode()}": 1.0})
    found = [text.plain for text in frame(board_of(path), Screen(80, 24))]
    assert all(line.isprintable() for line in found)


def test_a_live_run_is_followed_to_its_end(tmp_path: Path) -> None:
    with writing(tmp_path / "run") as writer:
        writer.write(*[3.0] * 10)
        terminal = Terminal("top", str(tmp_path / "run"), "--interval", "0.05", NO_COLOR="1")
        terminal.until("running, last step 9")
        writer.write(2.5)
        terminal.until("last step 10")
        terminal.resize(60, 20)
        writer.write(2.0)
        terminal.until("last step 11")
        writer.finish()
        assert terminal.wait() == 0
    last = terminal.told.rpartition("\x1b[?1049l")[2]
    assert "finished, last step 11" in last
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last).replace("\r", "").strip("\n").split("\n")
    assert (len(shown), max(map(len, shown))) == (20, 60)


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("Q", 0), ("\x03", 130)])
def test_keys_that_leave(tmp_path: Path, key: str, code: int) -> None:
    with writing(tmp_path / "run") as writer:
        writer.write(3.0)
        terminal = Terminal("top", str(tmp_path / "run"), "--interval", "0.05")
        terminal.until("q exits")
        terminal.press("x")
        terminal.press(key)
        assert terminal.wait() == code
        assert "Traceback" not in terminal.told
        assert "\x1b[?1049l" in terminal.told
        assert terminal.told.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is back


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    terminal = Terminal("top", str(tmp_path / "run"), "--interval", "0.05")
    terminal.until("to start")
    with writing(tmp_path / "run") as writer:
        writer.write(3.0)
        terminal.until("last step 0")
        writer.finish()
        assert terminal.wait() == 0


def test_no_run_names_those_near_it(run: Path) -> None:
    found = CliRunner().invoke(app, ["top", str(run.parent), "--once"])
    assert found.exit_code == 2
    assert "is not a run directory" in found.stderr
    assert "runs near it" in found.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1.0, "1"), (1234.567, "1235"), (12345.0, "1.2e4"), (3e-5, "3.0e-5"), (-1.6e-7, "-2e-7"),
     (1.23456, "1.23"), (0.012345, "0.0123"), (float("nan"), "nan"), (float("-inf"), "-inf"), (1e300, "1e300"),
     (-1e-300, "-0")],
)  # fmt: skip
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
