"""One run directory is one training, and every rank finds the same one without asking the others."""

from pathlib import Path

import steadyrun
from steadyrun.integrations.callbacks import folder_of


def recorded(folder: Path, rank: int = 0) -> None:
    with steadyrun.record(folder, rank=rank) as run:
        run.log(loss=1.0)


def test_a_new_training_gets_a_number_and_one_that_goes_on_stays(tmp_path: Path) -> None:
    base = tmp_path / "run"
    assert folder_of(base, {}, goes_on=False) == folder_of(base, {}, goes_on=True) == base
    recorded(base)
    assert folder_of(base, {}, goes_on=False) == tmp_path / "run-2"
    assert folder_of(base, {}, goes_on=True) == base
    recorded(tmp_path / "run-2")
    assert folder_of(base, {}, goes_on=False) == tmp_path / "run-3"
    assert folder_of(base, {}, goes_on=True) == tmp_path / "run-2"
    assert folder_of(base, {"resume": False}, goes_on=False) == base


def test_a_name_is_one_folder_in_the_path(tmp_path: Path) -> None:
    options = {"name": "first", "every": 3}
    assert folder_of(tmp_path, options, goes_on=False) == tmp_path / "first"
    assert options == {"every": 3}


def test_a_rank_joins_the_run_that_the_first_has_begun(tmp_path: Path) -> None:
    recorded(tmp_path / "run")  # an earlier training of one process
    with steadyrun.record(tmp_path / "run-2", rank=0):
        assert folder_of(tmp_path / "run", {"rank": 1}, goes_on=False) == tmp_path / "run-2"
    assert folder_of(tmp_path / "run", {"rank": 1}, goes_on=False) == tmp_path / "run-3"
