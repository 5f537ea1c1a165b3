"""Real logs from public projects, where they lie beside the project: every one imports, with the numbers in it.

The numbers were read off the files by hand: points, first and last step, first and last value of each role.
"""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import steadyrun
from steadyrun.importers.log_files import places

pytestmark = pytest.mark.long
FOLDER = Path(__file__).parents[2].parent / "shared" / "reallogs"

if not FOLDER.is_dir():
    pytest.skip("the folder shared/reallogs is not beside the project", allow_module_level=True)

Ends = tuple[int, tuple[int, float], tuple[int, float]]  # points, first (step, value), last (step, value)
NAN = float("nan")

EXPECTED: dict[str, tuple[str, dict[str, Ends]]] = {
    "bigscience-13b-spike/tr1-13B.megatron.log": ("megatron", {
        "loss": (10, (29020, 2.775923), (43680, 2.635663)),
        "lr/0": (10, (29020, 9.85e-05), (43680, 9.135e-05)),
        "loss_scale": (10, (29020, 32768.0), (43680, 131072.0)),
        "grad_norm": (1, (43680, 17224.723), (43680, 17224.723)),
    }),
    "bloom176b-first-spike/tr11-176B-ml.megatron.log": ("megatron", {
        "val_loss": (1, (45000, 2.327091), (45000, 2.327091)),
        "grad_norm": (13, (12695, 0.174), (45000, 0.139)),
        "loss": (13, (12695, 2.463556), (45000, 2.113567)),
    }),
    "deepspeed-chat-rm-opt350m/opt-350m_globalBatchSize-64.log": ("deepspeed", {
        "lr/0": (184, (10, 5e-05), (1840, 1.4574440845649407e-08)),
        "skipped": (184, (10, 1.0), (1840, 0.0)),
    }),
    "deepspeed-chat-sft-opt1.3b/opt-1.3b-globalBatchSize128.log": ("deepspeed", {
        "lr/0": (736, (10, 9.649992967150629e-06), (7360, 8.490116182110961e-09)),
        "skipped": (736, (10, 0.6), (7360, 0.0)),
    }),
    "hf-eagle-star-gradspike/trainer_state.json": ("trainer_state", {
        "loss": (2000, (20, 24.79317626953125), (40000, 3.755987548828125)),
        "grad_norm": (2000, (20, 4.8393846636618925), (40000, 3.8961894218180566)),
        "lr/0": (2000, (20, 1e-4), (40000, 1e-4)),
    }),
    "hf-mistral-translator/trainer_state.json": ("trainer_state", {
        "loss": (250, (10, 2.4977), (2500, 0.2955)),
        "lr/0": (250, (10, 5.773672055427253e-07), (2500, 4.4770786153394526e-05)),
    }),
    "hf-multihorizon-overfit/trainer_state.json": ("trainer_state", {
        "loss": (30, (401, 1.1074), (12030, 0.0549)),
        "val_loss": (31, (0, 5.741583347320557), (12030, 2.7486727237701416)),
    }),
    "lightning-aos-valspike/version_2_metrics.csv": ("csv", {
        "loss": (218, (49, 0.005968024488538504), (10899, 8.943605280364864e-06)),
        "val_loss": (100, (108, 0.0022457363083958626), (10899, 8.010788405954372e-06)),
    }),
    "lightning-pinn-plateau/version_25_metrics.csv": ("csv", {"loss": (160, (49, 134.74288940429688), (7999, 7.012631416320801))}),
    "lightning-pinn-spike/version_18_metrics.csv": ("csv", {"loss": (1260, (49, 0.14763501286506653), (62999, 0.044393014162778854))}),
    "lightning-pinn-spike/version_5_metrics.csv": ("csv", {"loss": (126, (49, 2.9135789985187115), (6299, 0.5109022013208642))}),
    "llmc-gpt2-124m-mainlog/main.log": ("llm.c-main", {
        "loss": (19552, (0, 11.0116), (19551, 3.2813)),
        "val_loss": (80, (0, 11.0095), (19552, 3.2731)),
        "grad_norm": (19552, (0, 14.96), (19551, 0.23)),
        "lr/0": (19552, (0, 1e-06), (19551, 0.0)),
    }),
    "llmc-hector-nan-from-step0/gpt2_train.11672255_nan900.log": ("llm.c", {
        "loss": (902, (1, NAN), (902, NAN)),
        "val_loss": (4, (0, NAN), (750, NAN)),
    }),
    "llmc-hector-nan-from-step0/gpt2_train.11679031_nan16k.log": ("llm.c", {
        "loss": (16256, (1, NAN), (16256, NAN)),
        "val_loss": (66, (0, NAN), (16250, NAN)),
    }),
    "megatron-gpt3-15b-golden/golden_values_gpt3_15b_h100.json": ("golden", {"loss": (10173, (1, 12.95636), (50860, 2.07335))}),
    "mng-optimizers-4x/8bfe4e35-c3fc-4b70-a984-3be937b71ff3.txt": ("modded-nanogpt", {
        "loss": (5100, (1, 15.9932), (5100, 3.2774)),
        "val_loss": (42, (0, 16.0012), (5100, 3.2858)),
    }),
    "mng-seeds-7x1750/seed_3151f69a.txt": ("modded-nanogpt", {
        "loss": (1750, (1, 10.8258), (1750, 3.2751)),
        "val_loss": (15, (0, 10.8258), (1750, 3.2745)),
    }),
    "nanogpt-char-overfit/output_kt2awly2_severe.log": ("nanogpt", {
        "loss": (501, (0, 6.0659), (5000, 0.1636)),
        "val_loss": (21, (0, 6.0586), (5000, 4.9221)),
    }),
    "nanogpt-healthy-bpc/output_vgpqdf1r.log": ("nanogpt", {
        "loss": (501, (0, 12.5435), (5000, 1.5822)),
        "val_loss": (21, (0, 12.5218), (5000, 1.5617)),
    }),
    "parameter-golf-baseline/lowerlr_train.log": ("modded-nanogpt", {
        "loss": (298, (1, 6.937), (14400, 2.0489)),
        "val_loss": (74, (0, 6.9357), (14421, 2.0571)),
    }),
    "parameter-golf-baseline/train.log": ("modded-nanogpt", {
        "loss": (285, (1, 6.9408), (13750, 1.991)),
        "val_loss": (70, (0, 6.937), (13780, 2.0606)),
    }),
    "yolo-close-mosaic-jump/results.csv": ("yolo", {
        "loss": (100, (1, 9.3468), (100, 7.1486)),
        "val_loss": (100, (1, 9.0057), (100, 7.7566)),
        "lr/0": (100, (1, 0.00025497), (100, 1.5303e-05)),
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_log(name: str, tmp_path: Path) -> None:
    form, roles = EXPECTED[name]
    run = steadyrun.import_log(FOLDER / name, tmp_path / "run")
    about: dict[str, Any] = run.manifest["imported"]
    assert (about["format"], about["step_unit"]) == (form, "epoch" if form == "yolo" else "step")
    assert len(run.events("resume")) == 0
    for series, (points, first, last) in roles.items():
        found = run.series(series)
        assert (len(found), found.steps[0], found.steps[-1]) == (points, first[0], last[0]), series
        assert [found.values[0], found.values[-1]] == pytest.approx([first[1], last[1]], nan_ok=True), series


def test_none_is_left_out() -> None:
    """Every file that is a log is found by looking through the folder; those of trackers need their extras."""
    found = {place.path.relative_to(FOLDER).as_posix() for place in places(FOLDER) if place.path.suffix != ".wandb"}
    logs = {
        path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*") if path.suffix in {".log", ".txt", ".csv"}
    }
    states = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.json") if "summary" not in path.name}
    assert found == logs | states


@pytest.mark.parametrize("place", places(FOLDER), ids=lambda place: f"{place.path.parent.name}/{place.path.name}")
def test_every_log_can_be_looked_at(place: Any) -> None:
    from steadyrun.importers.import_log import import_place

    if place.path.suffix == ".wandb":
        pytest.skip("read with wandb: see tests/frameworks")
    assert {each.name for each in import_place(place, None, {}, {}).series} & {"loss", "val_loss", "lr/0"}
