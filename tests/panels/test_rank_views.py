"""A job of several processes on the dashboard, in `top` and in the list of runs, from files of synthetic ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steadyrun.cli.top_frame import Screen, frame
from steadyrun.live.run_row import detailed
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page
from steadyrun.panels.panel import Board
from steadyrun.store.discover import Root
from steadyrun.store.writer import RunWriter

STEPS = 120


def write_job(root: Path, world: int, absent: tuple[int, ...] = (), odd: int | None = None) -> Path:
    """A finished job; the loss of one rank may be far from the others."""
    steps = np.arange(STEPS)
    for rank in (rank for rank in range(world) if rank not in absent):
        writer = RunWriter(root, rank)
        writer.save_manifest(config={}, state="finished")
        writer.event("process", None, rank=rank, world=world, host=f"node-{rank // 8}", pid=1, started=0.0)
        loss = 5.0 * np.exp(-steps / 60) + 1 + 0.02 * np.sin(7 * steps + rank) + (1.0 if rank == odd else 0.0)
        writer.write("steps", steps, 1e9 + steps, {"loss": loss, "grad_norm": np.full(STEPS, 0.7)})
        writer.close()
    return root


def lines(board: Board, panel: int) -> dict[str, str]:
    return {line.name: line.role for line in board.panels[panel - 1].lines}


def test_a_band_over_the_ranks_and_the_odd_one_in_colour(tmp_path: Path) -> None:
    board = board_of(write_job(tmp_path / "run", 4, odd=2))
    assert lines(board, 1) == {"train, median of 4 ranks": "main", "rank 2": "odd"}
    (band,) = board.panels[0].bands
    assert band.kind == "ranks"
    assert np.all(band.high - band.low > 0.9)
    assert not board.panels[2].bands, "the gradient norms are equal"


def test_ranks_alike_have_no_odd_one(tmp_path: Path) -> None:
    assert lines(board_of(write_job(tmp_path / "run", 4)), 1) == {"train, median of 4 ranks": "main"}


def test_a_rank_without_files_is_named_first(tmp_path: Path) -> None:
    board = board_of(write_job(tmp_path / "run", 4, absent=(3,)))
    assert board.ranks is not None
    assert [(row.name, row.state) for row in board.ranks.rows][:2] == [("rank 3", "no files"), ("rank 0", "ended")]
    assert "rank 3" in page(board)
    shown = [line.plain.rstrip() for line in frame(board, Screen(80, 24))]
    assert shown[1].startswith("rank 3  no files")
    assert any(line.startswith("rank 0  ended") and f"step {STEPS - 1}" in line for line in shown)
    assert len(shown) == 24


def test_many_ranks_are_bounded(tmp_path: Path) -> None:
    few, many = (board_of(write_job(tmp_path / str(world), world)) for world in (2, 100))
    assert many.ranks is not None
    assert len(many.ranks.rows) == 16
    assert (many.ranks.others, many.ranks.rest) == (84, "84 ended")
    assert many.panels[0].bands[0].label == "ranks, 5% to 95%"
    assert len(page(many)) < len(page(few)) + 20_000
    shown = [line.plain.rstrip() for line in frame(many, Screen(80, 24))]
    assert sum(line.startswith("rank ") for line in shown) <= 8
    assert any("more ranks (84 ended)" in line for line in shown)


def test_one_process_has_no_ranks(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", 0)
    writer.save_manifest(config={}, state="finished")
    writer.write("steps", np.arange(50), np.arange(50.0), {"loss": np.linspace(3, 1, 50)})
    writer.close()
    board = board_of(tmp_path / "run")
    assert board.ranks is None
    assert lines(board, 1) == {"train": "main"}
    assert 'id="ranks"' not in page(board)
    assert "#rank-table" not in page(board)


@pytest.mark.parametrize("world", [1, 2])
def test_the_list_of_runs_counts_ranks(tmp_path: Path, world: int) -> None:
    write_job(tmp_path / "run", world)
    (place,) = Root(tmp_path).runs()
    assert detailed(place).ranks == world


def test_a_browser_shows_the_ranks(tmp_path: Path, show: Callable[..., Any]) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(board_of(write_job(tmp_path / "run", 4, absent=(3,), odd=1))), encoding="utf-8")
    tab = show(file)
    assert tab.page.locator("#ranks .rank").count() == 4
    assert tab.page.locator("#ranks .rank.fault").first.inner_text().startswith("rank 3")
    assert tab.page.locator("#rank-table tbody tr").count() == 4
    names = tab.page.evaluate("document.querySelector('#panel-1 .plot').data.map(trace => trace.name)")
    assert "rank 1" in names
    assert not tab.said
    assert not tab.outside
