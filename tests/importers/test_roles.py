"""Which names get which role, and which get none."""
# ruff: noqa: E501  (lists of names)

from __future__ import annotations

import pytest

from steadyrun.importers.series_roles import ROLES, rank, roles_of
from steadyrun.store.series_catalogue import entry_for

KNOWN = {
    "loss": [
        "loss", "Loss", "train/loss", "Train/Loss", "trainLoss", "training_loss", "Loss/train", "train_loss_step",
        "loss/train/total", "metrics/train/LanguageCrossEntropy", "train/CrossEntropyLoss", "lm loss", "nll_loss",
        "reduced_train_loss", "train_inner/loss", "epoch_loss", "avg_loss", "train/cross_entropy", "total_loss",
        "loss_metrics/global_avg_loss", "train/total_loss", "Training Loss", "train-loss", "batch_loss", "running_loss",
        "Loss (avg)", "train loss/epoch", "Tr.Loss", "trn_loss", "trainloss", "CrossEntropy", "mean_squared_error", "MSELoss",
        "BCEWithLogitsLoss", "train_nll", "CE", "xent", "negative log likelihood", "loss_value", "Loss value", "nelbo",
        "perte", "Verlust", "pérdida", "perda_treino", "训练损失", "損失", "학습 손실", "训练损失值",
    ],
    "val_loss": [
        "val_loss", "valid_loss", "Validation Loss", "eval_loss", "eval/loss", "val/loss_epoch", "Loss/val", "dev_loss",
        "lm loss validation", "metrics/eval/LanguageCrossEntropy", "eval_g0_loss", "eval/c4_en/loss", "valid_nll_loss",
        "validation/CrossEntropyLoss", "val_Average loss", "test_loss", "loss/val_loss", "epoch_val_loss",
        "val_loss/dataloader_idx_0", "valid loss", "vloss", "valLoss", "dev loss", "testloss", "val_mse", "验证损失",
        "perte_validation", "검증 손실",
    ],
    "lr": [
        "lr", "learning_rate", "learning rate", "Learning-Rate", "train/learning_rate", "lr/pg0", "lr-AdamW", "lr-Adam/pg1",
        "lr-DecoupledAdamW/group0", "optim/learning_rate_group0", "optim0_lr0", "x/lr0", "current_lr", "optim/lr",
        "learning_rates", "学习率", "학습률",
    ],
    "grad_norm": [
        "grad_norm", "gradient_norm", "grad norm", "train/grad_norm", "gnorm", "train/global_grad_norm", "grad/norm/total",
        "optim/total_grad_norm", "l2_norm/grad/global", "grad_2.0_norm_total", "norm",
    ],
    "loss_scale": ["loss_scale", "loss-scale", "loss scale", "train/loss_scale", "amp_scaler"],
    "step": ["step", "global_step", "trainer/global_step", "iteration", "Step", "_step", "num_updates", "current_steps", "episode", "frame", "batch"],
    "epoch": ["epoch", "Epoch", "train/epoch", "轮次", "época"],
    "time": ["_timestamp", "Wall time", "time"],
}  # fmt: skip

NONE = [
    "reg_loss", "aux_loss", "val_loss_best", "best_val_loss", "train_loss_ema", "smoothed_loss", "accuracy", "train/acc",
    "loss_cls", "loss_rpn_bbox", "val/box_loss", "train/kl_loss", "loss_G", "d_loss", "CTCLoss", "lm loss validation ppl",
    "perplexity", "grad_norm/layer1", "weight_decay", "min_lr_ratio", "loss_metrics/global_max_loss", "l1_loss",
    "value_loss", "policy/entropy", "time_per_step", "steps_per_second", "samples_per_epoch", "val_loss_min", "num-zeros",
    "rewards/margins", "load_balancing_loss", "loss_weight", "entropy", "eval_best_loss", "norm_edit_dis", "mse_scale",
    "epoch_time", "eval/reg/loss", "val_aux_loss", "physics_loss", "weight_norm", "loss vs samples", "train_loss_std",
    "loss1", "mae", "error", "train", "L", "elbo",
]  # fmt: skip


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, names in KNOWN.items() for name in names])
def test_a_known_name(role: str, name: str) -> None:
    assert [each for each in ROLES if rank(each, name) is not None] == [role]


@pytest.mark.parametrize("name", NONE)
def test_a_name_without_a_role(name: str) -> None:
    assert [each for each in ROLES if rank(each, name) is not None] == []


@pytest.mark.parametrize(
    ("names", "role", "chosen"),
    [
        (["train_loss_epoch", "train_loss_step"], "loss", "train_loss_step"),
        (["avg_loss", "loss"], "loss", "loss"),
        (["epoch_loss", "batch_loss"], "loss", "batch_loss"),
        (["train/train_loss", "train/loss"], "loss", "train/loss"),
        (["nll_loss", "loss"], "loss", "loss"),
        (["test_loss", "val_loss"], "val_loss", "val_loss"),
        (["eval_wiki_loss", "eval_loss"], "val_loss", "eval_loss"),
        (["eval_b_loss", "eval_a_loss"], "val_loss", "eval_b_loss"),
        (["step", "global_step"], "step", "global_step"),
        (["_step", "trainer/global_step"], "step", "trainer/global_step"),
        (["lr/pg1", "lr/pg0"], "lr", "lr/pg0"),
        (["norm", "grad_norm"], "grad_norm", "grad_norm"),
    ],
)
def test_the_better_of_two(names: list[str], role: str, chosen: str) -> None:
    assert roles_of(names)[role] == chosen


def test_what_is_given_goes_first_and_is_taken_once() -> None:
    found = roles_of(["loss", "train/ce"], {"loss": "train/ce"})
    assert found == {"loss": "train/ce"}


def test_every_role_but_the_axes_is_a_series() -> None:
    for role in ROLES:
        if role not in {"step", "epoch", "time", "score"}:  # a score is a series of the user's own
            assert entry_for("lr/0" if role == "lr" else role) is not None


def test_the_entropy_of_a_policy_is_no_loss() -> None:
    names = ["step", "policy_loss", "value_loss", "entropy_loss"]
    assert set(roles_of(names)) == {"step"}


@pytest.mark.parametrize(("names", "loss"), [
    (["info/learner/default_policy/learner_stats/total_loss", "info/learner/default_policy/learner_stats/vf_loss"],
     "info/learner/default_policy/learner_stats/total_loss"),
    (["learner/a/total_loss", "learner/b/total_loss"], None),  # whose is it?
    (["learner/aux/loss"], None),
    (["worker/eval/loss"], None),
    (["actor/loss"], None),
    (["learner/a/total_loss", "loss"], "loss"),
])  # fmt: skip
def test_the_last_word_of_a_path_counts_if_it_is_the_only_one(names: list[str], loss: str | None) -> None:
    assert roles_of(names).get("loss") == loss
