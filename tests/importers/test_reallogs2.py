"""Every public log of the second collection, if it lies beside the project: runs, series, points, first and last values.

Points, first and last values were counted in the files without the importer (regular expressions, json, csv, TensorBoard's
own reader). Steps that are counted through epochs are the importer's: the files have none.
"""

# ruff: noqa: E501
from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import steadyrun
from steadyrun.importers.convert import Request
from steadyrun.importers.import_log import import_runs
from steadyrun.importers.log_files import places

pytestmark = pytest.mark.long
FOLDER = Path(__file__).parents[2].parent / "shared" / "reallogs2"

if not FOLDER.is_dir():
    pytest.skip("the folder shared/reallogs2 is not beside the project", allow_module_level=True)

Ends = tuple[int, tuple[int, float], tuple[int, float]]  # points, first (step, value), last (step, value)

EXPECTED: dict[str, list[dict[str, Ends]]] = {  # a dictionary for each run
    "chainer-began/log": [{"loss_gen": (99, (100, 0.00934961), (9900, 0.0499665)), "loss_dis": (99, (100, 0.317026), (9900, 0.10267))}],
    "cyclegan-samcw/loss_log.txt": [{"D_A": (6497, (100, 0.28), (641700, 0.0)), "G_A": (6497, (100, 0.843), (641700, 1.009))}],
    "cyclegan-samcw/loss_unet_log.txt": [
        {"D_A": (3898, (2996, 0.003), (387730, 0.0)), "G_A": (3898, (2996, 1.027), (387730, 0.989))},
        {"D_A": (3716, (100, 0.24), (366700, 0.003)), "G_A": (3716, (100, 0.449), (366700, 0.926))},
    ],
    "dreamer-fetchreach": [{"sim/train/return": (50, (100, -50.0), (5000, -50.0))}],
    "dreamer-fetchreach/metrics.jsonl": [{"train/return": (86, (50, -48.0), (4300, -48.0))}],
    "jde/log_train.txt": [{"loss": (150, (0, 158.0), (4945, -13.9)), "box": (150, (0, 0.227), (4945, 0.00712))}],
    "kospeech/log_train.txt": [{"loss": (1170, (1, 0.00023), (116900, 0.00036)), "val_loss": (1170, (1, 0.00622), (116900, 0.00258))}],
    "lf-grpo360/trainer_log.jsonl": [{"loss": (202, (1, 0.6491), (202, 0.4962)), "lr/0": (202, (1, 9.80392e-10), (202, 1.98039e-07))}],
    "lf-nsllm/trainer_log.jsonl": [{"loss": (435, (5, 2.3475), (2175, 1.9787)), "lr/0": (435, (5, 1.83486e-06), (2175, 4.61113e-10))}],
    "lightning-sparserecon/version_12_metrics.csv": [{"loss": (435, (47, 0.0824898), (20879, 0.112654)), "train_loss_epoch": (435, (47, 0.0481787), (20879, 0.0349709))}],
    "lightning-sparserecon/version_14_metrics.csv": [{"loss": (447, (47, 0.0230368), (21455, 0.0156989)), "train_loss_epoch": (447, (47, 0.0433979), (21455, 0.0391056))}],
    "mri-unet/1-train_7_epochs.md": [{"loss": (145, (10, 0.833), (1450, 0.116)), "val_loss": (7, (200, 0.764748), (1450, 0.357482))}],
    "mri-unet/2-train_10_epochs.md": [{"loss": (104, (10, 0.838), (1040, 0.171)), "val_loss": (10, (100, 0.659033), (1040, 0.202281))}],
    "olmo-150m/train.log": [{"loss": (37, (10, 9.064), (370, 4.83)), "grad_norm": (37, (10, 1.608), (370, 0.3512))}],
    "olmo-1b-reproduce/train_20251211_002555.log": [{"loss": (2003, (1, 11.33), (2003, 3.674)), "grad_norm": (2003, (1, 11.55), (2003, 0.7145))}],
    "paddle-cait/log_train.txt": [{"loss": (100, (100, 1.0238), (19504, 0.2982)), "Avg Loss": (200, (0, 0.9829), (19504, 0.2957)), "lr/0": (100, (0, 3.3e-05), (19308, 0.0))}],
    "ssd-houyz/log_train.txt": [{"loss": (3160, (10000, 3.7949), (41590, 2.6336))}],
    "stargan-pitch/log_train.txt": [{"Generator Loss": (14746, (0, 0.765), (14745, 0.742)), "Discriminator Loss": (14746, (0, 2.141), (14745, 0.727)), "domain_classifier_loss": (14746, (0, 1.374), (14745, 0.0))}],
    "verl-train/train.out": [{"actor/pg_loss": (21, (1, 0.0), (21, 0.0)), "critic/score/mean": (21, (1, 0.0), (21, 0.0)), "grad_norm": (21, (1, 0.00972104), (21, 0.00444439))}],
}  # fmt: skip


def test_none_is_left_out() -> None:
    """Every file of the collection is found by looking through the folder; the event file as its folder."""
    found = {place.path.relative_to(FOLDER).as_posix() for place in places(FOLDER)}
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*")}
    assert {name.split(":")[0] for name in EXPECTED} == found
    assert found == {name for name in files if "tfevents" not in name} | {"dreamer-fetchreach"}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_public_log(name: str, tmp_path: Path) -> None:
    if name == "dreamer-fetchreach" and importlib.util.find_spec("tensorboard") is None:
        pytest.skip("the extra tensorboard is not installed")
    place = next(place for place in places(FOLDER) if place.path == FOLDER / name)
    runs = import_runs(place, tmp_path / "run", Request())
    assert [run.attempts for run in runs] == [1] * len(EXPECTED[name])
    for run, expected in zip(runs, EXPECTED[name], strict=True):
        assert run.path is not None
        view = steadyrun.open_run(run.path)
        for series, (points, first, last) in expected.items():
            found = view.series(series)
            assert (len(found), found.steps[0], found.steps[-1]) == (points, first[0], last[0]), series
            assert [found.values[0], found.values[-1]] == pytest.approx([first[1], last[1]], rel=1e-4, abs=1e-9), series
