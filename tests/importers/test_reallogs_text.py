"""Printed logs of public projects, if they lie beside the project: names, points and ends as they stand in the files.

The numbers were read off the files by hand. Which series is the loss is asked elsewhere: here it is what a reader reads.
"""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path

import pytest

from steadyrun.importers.log_files import places
from steadyrun.importers.log_rows import Anomalies

FOLDER = Path(__file__).parents[2].parent / "shared" / "reallogs2"

if not FOLDER.is_dir():
    pytest.skip("the folder shared/reallogs2 is not beside the project", allow_module_level=True)

Ends = tuple[int, tuple[float, float], tuple[float, float]]  # points, first (step, value), last (step, value)

EXPECTED: dict[str, tuple[str, dict[str, Ends]]] = {
    "cyclegan-samcw/loss_log.txt": ("text", {
        "D_A": (6497, (100, 0.28), (1850, 0.0)),
        "G_A": (6497, (100, 0.843), (1850, 1.009)),
        "idt_B": (6497, (100, 0.984), (1850, 0.102)),
        "epoch": (6497, (100, 1), (1850, 176)),
    }),
    "cyclegan-samcw/loss_unet_log.txt": ("text", {"D_A": (7614, (2996, 0.003), (284, 0.0))}),
    "jde/log_train.txt": ("table", {"total": (150, (0, 158), (160, -13.9)), "box": (150, (0, 0.227), (160, 0.00712))}),
    "kospeech/log_train.txt": ("text", {
        "Train loss": (1170, (1, 0.00023), (116900, 0.00036)),
        "Valid loss": (1170, (1, 0.00622), (116900, 0.00258)),
    }),
    "mri-unet/1-train_7_epochs.md": ("text", {"loss_train": (145, (10, 0.833), (1450, 0.116))}),
    "mri-unet/2-train_10_epochs.md": ("text", {"loss_train": (104, (10, 0.838), (1040, 0.171))}),
    "olmo-150m/train.log": ("text", {
        "train/CrossEntropyLoss": (37, (10, 9.064), (370, 4.83)),
        "optim/total_grad_norm": (37, (10, 1.608), (370, 0.3512)),
    }),
    "olmo-1b-reproduce/train_20251211_002555.log": ("text", {
        "train/CrossEntropyLoss": (2003, (1, 11.33), (2003, 3.674)),
        "optim/total_grad_norm": (2003, (1, 11.55), (2003, 0.7145)),
    }),
    "paddle-cait/log_train.txt": ("text", {"Avg Loss": (200, (0, 0.9829), (100, 0.2957))}),
    "ssd-houyz/log_train.txt": ("text", {"Loss": (3160, (10000, 3.7949), (41590, 2.6336))}),
    "stargan-pitch/log_train.txt": ("text", {
        "Generator Loss": (14746, (0, 0.765), (14745, 0.742)),
        "Discriminator Loss": (14746, (0, 2.141), (14745, 0.727)),
        "Generator Learning Rate": (14746, (0, 0.0002), (14745, 0.0000776)),
        "domain_classifier_loss": (14746, (0, 1.374), (14745, 0.0)),
    }),
    "verl-train/train.out": ("text", {
        "actor/pg_loss": (21, (1, 0.0), (21, 0.0)),
        "actor/entropy": (21, (1, 0.463403582572937), (21, 11.6326904296875)),
        "actor/grad_norm": (21, (1, 0.009721037931740284), (21, 0.0044443947263062)),
        "critic/score/mean": (21, (1, 0.0), (21, 0.0)),
    }),
}  # fmt: skip
EPOCHS = {  # validations that name their epoch alone
    "mri-unet/1-train_7_epochs.md": ("val_loss", (7, (1, 0.7647483065014794), (7, 0.35748244183404104))),
    "mri-unet/2-train_10_epochs.md": ("val_loss", (10, (1, 0.6590334177017212), (10, 0.2022806785323403))),
    "paddle-cait/log_train.txt": ("Train Loss", (100, (1, 1.0238), (100, 0.2982))),
}
SETTINGS = {"lr", "learning_rate", "batch_size", "d_model", "seed", "timer", "weight_decay"}


def rows(name: str, form: str) -> list[dict[str, float]]:
    (place,) = places(FOLDER / name)
    assert place.format.name == form
    found: list[dict[str, float]] = []
    for pack in place.format.read(place.path, place.key, Anomalies()).rows:
        columns = {name: column.to_pylist() for name, column in pack.columns.items()}
        found += [
            {name: column[at] for name, column in columns.items() if column[at] is not None} for at in range(pack.count)
        ]
    return found


def ends(found: list[dict[str, float]], axis: str, name: str) -> Ends:
    points = [(row[axis], row[name]) for row in found if name in row and axis in row]
    return len(points), points[0], points[-1]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_printed_log(name: str) -> None:
    form, series = EXPECTED[name]
    found = rows(name, form)
    assert {series_name: ends(found, "step", series_name) for series_name in series} == series
    if name in EPOCHS:
        series_name, expected = EPOCHS[name]
        assert ends(found, "epoch", series_name) == expected
    assert not {each for row in found for each in row if ".py" in each}


@pytest.mark.parametrize(
    "name", ["olmo-150m/train.log", "olmo-1b-reproduce/train_20251211_002555.log", "verl-train/train.out"]
)
def test_settings_are_left_out(name: str) -> None:
    assert not {each for row in rows(name, "text") for each in row} & SETTINGS
