"""Several losses in one log: what is summed, what is kept apart, and that every format follows one rule."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import looked

import steadyrun
from steadyrun.errors import LogError
from steadyrun.importers.loss_parts import FALLS, NONE, OPPOSED, REWARD, SUM, losses_of
from steadyrun.importers.series_roles import roles_of

YOLO = ("train/box_loss", "train/cls_loss", "train/dfl_loss")


def found(*names: str) -> tuple[dict[str, tuple[str, ...]], str]:
    losses = losses_of(names, roles_of(names))
    return dict(losses.sums), losses.objective


@pytest.mark.parametrize(("names", "parts"), [
    (YOLO, YOLO),
    (("recon_loss", "kl_loss"), ("recon_loss", "kl_loss")),
    (("recon", "kl"), ("recon", "kl")),
    (("loss_ce", "loss_dice"), ("loss_ce", "loss_dice")),
    (("mse_loss", "mae_loss", "kl_loss"), ("mse_loss", "kl_loss")),  # the same error in two units is one part
    (("box_loss_step", "box_loss_epoch", "cls_loss_step", "cls_loss_epoch"), ("box_loss_step", "cls_loss_step")),
    (("LOSS TOK2VEC", "LOSS NER"), ("LOSS TOK2VEC", "LOSS NER")),
    (("pixel_loss", "edge_loss", "loss_scale", "best_loss"), ("pixel_loss", "edge_loss")),
    (("hard_loss", "full_loss", "full_loss_num"), ("hard_loss", "full_loss")),  # a number of examples
    (("kl_rec", "l1_rec", "psnr_rec"), ("kl_rec", "l1_rec")),  # a score
])  # fmt: skip
def test_parts_are_summed(names: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert found("step", *names) == ({"loss": parts}, SUM)


@pytest.mark.parametrize("names", [
    ("loss", *YOLO),
    ("total_loss", "loss_cls", "loss_box_reg"),
    ("lm loss", "load_balancing_loss", "z_loss"),
    ("loss", "nll_loss"),
    ("train/ce_loss", "z_loss"),
    ("train_loss", "val_loss"),
    ("det loss", "bbox loss", "all_loss"),
    ("copper_loss", "air_loss", "mean_loss"),
])  # fmt: skip
def test_a_logged_total_is_the_loss(names: tuple[str, ...]) -> None:
    assert found("step", *names) == ({}, FALLS)


def test_parts_beside_a_total_that_is_not_called_a_loss() -> None:
    assert found("step", "Rec", "KL", "Total") == ({"loss": ("Total",)}, FALLS)
    assert found("step", "recon_loss", "kl_loss", "total time") == ({"loss": ("recon_loss", "kl_loss")}, SUM)


def test_validation_follows_training() -> None:
    held_out = tuple(name.replace("train", "val") for name in YOLO)
    assert found(*YOLO, *held_out)[0] == {"loss": YOLO, "val_loss": held_out}
    assert found("a_loss", "b_loss", "val_a_loss", "val_b_loss")[0] == {
        "loss": ("a_loss", "b_loss"),
        "val_loss": ("val_a_loss", "val_b_loss"),
    }
    assert "val_loss" not in found("loss", "eval_wiki_loss", "eval_c4_loss")[0]  # two sets, not two parts


@pytest.mark.parametrize("names", [
    ("Generator Loss", "Discriminator Loss"),
    ("loss_G", "loss_D"),
    ("g_loss", "d_loss", "cycle_loss"),
    ("errD", "errG"),
    ("D_A", "G_A", "cycle_A", "idt_A"),
    ("G_GAN", "G_L1", "D_real", "D_fake"),
    ("loss_gen", "loss_dis"),
    ("D/loss_real", "D/loss_fake", "G/loss_fake", "G/loss_rec"),
    ("critic_loss", "generator_loss"),
])  # fmt: skip
def test_players_against_each_other_have_no_total(names: tuple[str, ...]) -> None:
    losses = losses_of(("step", *names, "lr"), roles_of(("step", *names, "lr")))
    assert (losses.names, dict(losses.sums), losses.objective) == (names, {}, OPPOSED)
    assert "loss" not in roles_of(names)


@pytest.mark.parametrize(("names", "objective"), [
    (("actor_loss", "critic_loss"), REWARD),
    (("policy_loss", "value_loss", "entropy"), REWARD),
    (("train/return", "episodes"), REWARD),
    (("loss", "reward", "kl"), REWARD),
    (("loss", "rewards/chosen", "rewards/rejected"), FALLS),  # DPO: the loss is an ordinary one
    (("accuracy", "speed"), NONE),
    (("kl_loss", "accuracy"), NONE),  # a term of a loss that was not logged
    (("ctc_loss", "wer"), FALLS),
    (("d", "g"), NONE),
])  # fmt: skip
def test_what_the_objective_is(names: tuple[str, ...], objective: str) -> None:
    sums, known = found("step", *names)
    assert known == objective
    assert all(len(parts) == 1 for parts in sums.values())


ROWS = [
    {"step": float(step), **{name: 3.0 - step / 10 + place for place, name in enumerate(YOLO)}} for step in range(9)
]


def written(folder: Path, form: str) -> Path:
    path = folder / f"run.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif form == "csv":
        path.write_text("\n".join([",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in ROWS)]) + "\n")
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif form == "json":
        path.write_text(json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]}))
    else:
        lines = (" ".join(f"{name}: {value}" for name, value in row.items()) for row in ROWS)
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "parquet", "log"])
def test_one_rule_for_every_format(form: str, tmp_path: Path) -> None:
    run = steadyrun.import_log(written(tmp_path, form), tmp_path / "run")
    assert run.series("loss").values.tolist() == pytest.approx([12.0 - 3 * step / 10 for step in range(9)])
    about = run.manifest["imported"]
    assert (about["losses"][0], sorted(about["losses"][1:]), about["objective"]) == ("loss", sorted(YOLO), "sum")
    assert sorted(about["roles"]["loss"].split(" + ")) == sorted(YOLO)


def test_a_log_without_a_loss_is_imported_as_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "rewards.csv"
    path.write_text("step,reward,length\n" + "".join(f"{step},{step * 0.5},200\n" for step in range(10)))
    run = steadyrun.import_log(path, tmp_path / "run")
    assert set(run.names()) >= {"reward", "length"}
    assert (run.manifest["imported"]["losses"], run.manifest["imported"]["objective"]) == ([], "reward")
    assert looked(path).odd == []


def test_players_keep_their_names(tmp_path: Path) -> None:
    path = tmp_path / "gan.csv"
    path.write_text("step,loss_G,loss_D\n" + "".join(f"{step},{1 + step},{2 - step / 9}\n" for step in range(9)))
    run = steadyrun.import_log(path, tmp_path / "run")
    assert sorted(run.names()) == ["loss_D", "loss_G"]
    assert run.manifest["imported"]["losses"] == ["loss_G", "loss_D"]
    assert "losses of players against each other" in looked(path).odd[0]
    given = steadyrun.import_log(path, tmp_path / "mapped", mapping={"loss": "loss_G"})
    assert given.series("loss").values[0] == 1.0


def test_a_table_in_a_folder_is_taken_for_a_log_only_if_it_counts(tmp_path: Path) -> None:
    from steadyrun.importers.import_log import import_place
    from steadyrun.importers.log_files import places

    (tmp_path / "data.csv").write_text("age,height\n" + "".join(f"{age},1.5\n" for age in range(30)))
    (tmp_path / "run.csv").write_text("step,loss\n1,2\n2,1\n")
    data, run = places(tmp_path)
    assert import_place(run, None, {}, {}).points == 2
    with pytest.raises(LogError, match="--map loss=NAME"):
        import_place(data, None, {}, {})
    assert looked(tmp_path / "data.csv").unit == "point"  # given by itself, it is what the user says it is


def test_a_discriminator_has_an_opponent_whatever_it_is_called() -> None:
    assert found("Loss Discriminator", "Loss Encoder", "Loss Decoder") == ({}, OPPOSED)
    assert found("Loss Encoder", "Loss Decoder")[1] == SUM
