"""What training programs print, a few lines in the style of each, and what is read from them."""
# ruff: noqa: E501  (lines are as long as programs print them)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from imported import looked, points
from program_lines import PROGRAMS

import steadyrun

ROLES = ("loss", "val_loss", "lr/0", "grad_norm", "loss_scale", "skipped")

CASES: dict[str, tuple[str, str, dict[str, list[tuple[int, float]]]]] = {
    "transformers": (
        """
{'loss': 2.71, 'grad_norm': 1.5, 'learning_rate': 4e-05, 'epoch': 0.5}
{'eval_loss': 2.6, 'eval_runtime': 1.0, 'epoch': 1.0}
""",
        "huggingface",
        {"loss": [(0, 2.71)], "val_loss": [(0, 2.6)]},
    ),
    "dictionaries behind an epoch": (
        "".join(f"2025-01-01 10:00:0{n} - trainer - INFO - Epoch {n}: {{'loss': {3 - n}.5}}\n" for n in range(3)),
        "text",
        {"loss": [(0, 3.5), (1, 2.5), (2, 1.5)]},
    ),
    "groups of columns": (
        "        | --- VALID --- | --- TRAIN --- | --- |\n"
        "lr   iter  epoch | loss  top-1 | loss  top-1 | time |\n" + "-" * 40 + "\n"
        + "".join(f"0.1  {n}.0  {n}.0 | {4 - n}.5  80.1 | {3 - n}.5  70.1 |  0 hr 0{n} min\n" for n in range(3)),
        "groups",
        {"loss": [(0, 3.5), (1, 2.5), (2, 1.5)], "val_loss": [(0, 4.5), (1, 3.5), (2, 2.5)]},
    ),
    "Sockeye": (
        "".join(f"{n}\tepoch=0\tperplexity-train={9 - n}.5\tperplexity-val={9 - n}.9\n" for n in range(1, 6)),
        "text",
        {"perplexity-val": [(n, 9 - n + 0.9) for n in range(1, 6)]},
    ),
    "settings with a learning rate": (
        "".join(
            f"try {{'learning_rate': 0.00{n}, 'batch_size': 8}}\nEpoch {n}00 | Train=0.{9 - n} | Val=0.{8 - n}\n"
            for n in range(1, 7)
        ),
        "text",
        {
            "loss": [(100 * n, (9 - n) / 10) for n in range(1, 7)],
            "val_loss": [(100 * n, (8 - n) / 10) for n in range(1, 7)],
        },
    ),
    "Keras behind a date": (
        "".join(
            f"2021-06-13 03:57:51 UTC -- Epoch {n}/9\n"
            f"2/2 [==============================] - 1s 9ms/step - loss: {3 - n}.5 - val_loss: {4 - n}.5\n"
            for n in (1, 2)
        ),
        "keras",
        {"loss": [(1, 2.5), (2, 1.5)], "val_loss": [(1, 3.5), (2, 2.5)]},
    ),
    "transformers below a logger with bars of its own": (
        "INFO     | 2024-05-02 10:46:41 | trainers.common:on_begin:231 - start\n"
        "INFO     | 2024-05-02 10:46:42 | trainers.common:on_log:226 - {'loss': 2.71, 'learning_rate': 4e-05, 'epoch': 0.5}\n"
        "INFO     | 2024-05-02 10:46:43 | trainers.common:on_log:226 - {'loss': 2.5, 'learning_rate': 3e-05, 'epoch': 1.0}\n",
        "huggingface",
        {"loss": [(0, 2.71), (1, 2.5)]},
    ),
    "transformers with bars": (
        " 10%|█         | 10/100 [00:05<00:45,  2.00it/s]{'loss': 2.71, 'learning_rate': 4e-05, 'epoch': 0.1}\n"
        " 20%|██        | 20/100 [00:10<00:40,  2.00it/s]{'loss': 2.5, 'learning_rate': 3e-05, 'epoch': 0.2}\n"
        "\r 0%|          | 0/7 [00:00<?, ?it/s]\r100%|██████████| 7/7 [00:01<00:00]\x1b[A{'eval_loss': 2.4, 'epoch': 0.2}\n"
        "{'train_runtime': 12.0, 'train_loss': 9.9, 'epoch': 0.2}\n",
        "huggingface",
        {"loss": [(10, 2.71), (20, 2.5)], "val_loss": [(20, 2.4)], "lr/0": [(10, 4e-05), (20, 3e-05)]},
    ),
    "transformers 5": (
        "{'loss': '2.71', 'grad_norm': '1.5', 'learning_rate': '4e-05', 'epoch': '0.25'}\n"
        "{'loss': 'nan', 'grad_norm': 'nan', 'learning_rate': '3e-05', 'epoch': '0.5'}\n",
        "huggingface",
        {"loss": [(0, 2.71), (1, float("nan"))], "grad_norm": [(0, 1.5), (1, float("nan"))]},
    ),
    "Megatron-LM": (
        " iteration       10/     500 | consumed samples:          160 | elapsed time per iteration (ms): 312.5 | "
        "learning rate: 1.500E-05 | global batch size:    16 | lm loss: 9.5E+00 | loss scale: 65536.0 | grad norm: 2.300 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        " [2024-01-01 00:00:00] iteration       20/     500 | consumed samples:          320 | elapsed time per iteration "
        "(ms): 300.1 | throughput per GPU (TFLOP/s/GPU): 300.1 | learning rate: 3.000E-05 | global batch size:    16 | "
        "lm loss: 8.0E+00 | loss scale: 32768.0 | grad norm: 1.100 | number of skipped iterations:   5 | number of nan "
        "iterations:   0 |\n"
        " validation loss at iteration 20 | lm loss value: 8.1E+00 | lm loss PPL: 3.2E+03 | \n",
        "megatron",
        {"loss": [(10, 9.5), (20, 8.0)], "val_loss": [(20, 8.1)], "lr/0": [(10, 1.5e-05), (20, 3e-05)],
         "grad_norm": [(10, 2.3), (20, 1.1)], "loss_scale": [(10, 65536.0), (20, 32768.0)], "skipped": [(10, 0.0), (20, 0.5)]},
    ),
    "GPT-NeoX": (
        "  samples/sec: 21.1 | iteration       10/  320000 | elapsed time per iteration (ms): 900.1 | learning rate: 1.0E-06 "
        "| approx flops per GPU: 30.1TFLOPS | lm_loss: 1.1E+01 | loss scale: 4096.0 | number of skipped iterations:   0 |\n"
        "  samples/sec: 21.1 | iteration       20/  320000 | elapsed time per iteration (ms): 900.1 | learning rate: 2.0E-06 "
        "| approx flops per GPU: 30.1TFLOPS | lm_loss: 1.0E+01 | loss scale: 4096.0 | number of skipped iterations:   0 |\n"
        " validation results at iteration 20 | lm_loss value: 1.01E+01 | lm_loss_ppl value: 2.4E+04 | \n",
        "megatron",
        {"loss": [(10, 11.0), (20, 10.0)], "val_loss": [(20, 10.1)]},
    ),
    "DeepSpeed": (
        "[2023-04-14 06:33:19,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=2, lr=[1e-06, 1e-06], mom=[(0.9, 0.95)]\n"
        "steps: 10 loss: 2.5 iter time (s): 0.4 samples/sec: 19.0\n"
        "[2023-04-14 06:33:20,000] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
        "Attempted loss scale: 65536, reducing to 32768\n"
        "[2023-04-14 06:33:29,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=3, lr=[2e-06, 2e-06], mom=[(0.9, 0.95)]\n",
        "deepspeed",
        {"loss": [(10, 2.5)], "lr/0": [(10, 1e-06), (20, 2e-06)], "loss_scale": [(20, 32768.0)], "skipped": [(10, 0.2), (20, 0.1)]},
    ),
    "nanoGPT": (
        "step 0: train loss 4.28, val loss 4.27\niter 0: loss 4.26, time 3286.79ms, mfu -100.00%\n"
        "iter 10: loss 3.16, time 444.91ms, mfu 0.42%\nstep 10: train loss 3.1, val loss 3.2\n",
        "nanogpt",
        {"loss": [(0, 4.26), (10, 3.16)], "val_loss": [(0, 4.27), (10, 3.2)]},
    ),
    "build-nanogpt": (
        "0 val 10.95\n0 hella 0.2463\n0 train 10.955029\n1 train 10.65\n",
        "build-nanogpt",
        {"loss": [(0, 10.955029), (1, 10.65)], "val_loss": [(0, 10.95)]},
    ),
    "llm.c with CUDA": (
        "val loss 11.01\nstep    1/19560 | loss 11.009 (+nanz)| norm 15.3 (+nanz)| lr 8.57e-07 | 520.1 ms | 40.1% bf16 MFU | 1000 tok/s\n"
        "step    2/19560 | loss 10.9 (+1.1z)| norm 15.1 (-0.2z)| lr 1.7e-06 | 520.1 ms | 40.1% bf16 MFU | 1000 tok/s\n",
        "llm.c",
        {"loss": [(1, 11.009), (2, 10.9)], "val_loss": [(0, 11.01)], "grad_norm": [(1, 15.3), (2, 15.1)], "lr/0": [(1, 8.57e-07), (2, 1.7e-06)]},
    ),
    "llm.c on a CPU": (
        "val loss 5.325\nstep 0: train loss 5.356 (took 1234.5 ms)\nstep 1: train loss 4.301 (took 1200.1 ms)\nval loss 4.4\n",
        "llm.c",
        {"loss": [(0, 5.356), (1, 4.301)], "val_loss": [(0, 5.325), (1, 4.4)]},
    ),
    "train_gpt2.py": (
        "step    1/10 | train loss 5.27 | norm 30.0 | lr 1.00e-04 | (100.1 ms | 2000 tok/s)\n"
        "step    2/10 | train loss 4.1 | norm 20.0 | lr 1.00e-04 | (100.1 ms | 2000 tok/s)\n",
        "llm.c",
        {"loss": [(1, 5.27), (2, 4.1)], "grad_norm": [(1, 30.0), (2, 20.0)]},
    ),
    "llm.c main.log": (
        "s:0 tel:11.0\ns:0 trl:11.01 lr:0.0006 norm:15.3\ns:1 trl:10.9 lr:0.0006 norm:14.1\n",
        "llm.c-main",
        {"loss": [(0, 11.01), (1, 10.9)], "val_loss": [(0, 11.0)], "grad_norm": [(0, 15.3), (1, 14.1)]},
    ),
    "modded-nanogpt, early": (
        "step:0/5100 val_loss:16.0 train_time:77ms step_avg:nanms\nstep:1/5100 train_loss:15.9 train_time:200ms step_avg:nanms\n"
        "step:2/5100 train_loss:9.6 train_time:300ms step_avg:150.01ms\n",
        "modded-nanogpt",
        {"loss": [(1, 15.9), (2, 9.6)], "val_loss": [(0, 16.0)]},
    ),
    "modded-nanogpt, late": (
        "step:0/1750 val_loss:10.83 train_time:0ms step_avg:0.01ms\nstep:1/1750 train_time:67ms step_avg:66.9ms\n"
        "step:125/1750 val_loss:4.4 train_time:7000ms step_avg:56.0ms\n",
        "modded-nanogpt",
        {"val_loss": [(0, 10.83), (125, 4.4)]},
    ),
    "fairseq JSON": (
        '2021-03-03 10:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "9.1", "ppl": "500", "num_updates": "100", '
        '"lr": "1e-05", "gnorm": "2.1", "loss_scale": "128"}\n'
        '2021-03-03 10:01:00 | INFO | valid | {"epoch": 1, "valid_loss": "8.2", "valid_num_updates": "150"}\n'
        '2021-03-03 10:01:01 | INFO | train | {"epoch": 1, "train_loss": "8.9", "train_num_updates": "150"}\n',
        "fairseq",
        {"loss": [(100, 9.1)], "val_loss": [(150, 8.2)], "grad_norm": [(100, 2.1)], "lr/0": [(100, 1e-05)], "loss_scale": [(100, 128.0)]},
    ),
    "fairseq text": (
        "2020-10-10 10:00:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=9.1, nll_loss=8.9, ppl=500.1, wps=100, ups=1, "
        "num_updates=100, lr=1e-05, gnorm=2.1, loss_scale=128, wall=10\n"
        "| epoch 001:    200 / 1000 loss=8.1, nll_loss=7.9, ppl=300.1, wps=100, num_updates=200, lr=2e-05, gnorm=1.1, clip=0%, wall=20\n"
        "2020-10-10 10:01:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.7 | nll_loss 7.5 | ppl 200 | num_updates 250\n"
        "2020-10-10 10:01:01 | INFO | train | epoch 001 | loss 8.5 | nll_loss 8.2 | ppl 350 | num_updates 250 | lr 2.5e-05 | gnorm 1.4\n",
        "fairseq",
        {"loss": [(100, 9.1), (200, 8.1)], "val_loss": [(250, 7.7)], "grad_norm": [(100, 2.1), (200, 1.1)]},
    ),
    "Coqui": (
        "\x1b[1m   --> TIME: 2023-01-01 10:00:00 -- STEP: 24/377 -- GLOBAL_STEP: 50\x1b[0m\n     | > loss: 2.5  (2.9)\n"
        "     | > grad_norm: 1.5  (1.7)\n     | > current_lr: 0.0001 \n\n"
        "\x1b[1m > EVALUATION \x1b[0m\n\n  \x1b[1m--> EVAL PERFORMANCE\x1b[0m\n     | > avg_loss: 2.7 (+0)\n"
        "\x1b[1m   --> STEP: 74/377 -- GLOBAL_STEP: 100\x1b[0m\n     | > loss: 2.1  (2.6)\n     | > grad_norm: 1.2  (1.6)\n",
        "coqui",
        {"loss": [(50, 2.5), (100, 2.1)], "val_loss": [(50, 2.7)], "grad_norm": [(50, 1.5), (100, 1.2)], "lr/0": [(50, 0.0001)]},
    ),
    "Keras 2": (
        "Epoch 1/3\n  1/100 [..............................] - ETA: 10s - loss: 2.3 - accuracy: 0.1\r"
        " 50/100 [=============>................] - ETA: 5s - loss: 1.9 - accuracy: 0.3\x08\x08\x08\x08\x08\x08\x08\x08"
        "100/100 [==============================] - 5s 2ms/step - loss: 1.5 - accuracy: 0.5 - val_loss: 1.2 - val_accuracy: 0.6\n"
        "Epoch 2/3\n100/100 [==============================] - 5s 2ms/step - loss: 0.9 - accuracy: 0.7 - val_loss: 1.0 - val_accuracy: 0.6\n",
        "keras",
        {"loss": [(1, 1.5), (2, 0.9)], "val_loss": [(1, 1.2), (2, 1.0)]},
    ),
    "Keras 3": (
        "Epoch 1/2\n\x1b[1m1/3\x1b[0m \x1b[32m━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 700ms/step - accuracy: 0.1 - loss: 2.3"
        "\r\x1b[1m3/3\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 90ms/step - accuracy: 0.2 - loss: 2.1 "
        "- val_accuracy: 0.3 - val_loss: 2.0\nEpoch 2/2\n\x1b[1m3/3\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m "
        "9ms/step - accuracy: 0.4 - loss: 1.9 - val_accuracy: 0.4 - val_loss: 1.8\n",
        "keras",
        {"loss": [(1, 2.1), (2, 1.9)], "val_loss": [(1, 2.0), (2, 1.8)]},
    ),
    "XGBoost": (
        "[0]\ttrain-auc:0.6\ttrain-logloss:0.65\tvalid-auc:0.6\tvalid-logloss:0.66\n[10]\ttrain-auc:0.7\ttrain-logloss:0.5\tvalid-auc:0.6\tvalid-logloss:0.6\n",
        "boosting",
        {"loss": [(0, 0.65), (10, 0.5)], "val_loss": [(0, 0.66), (10, 0.6)]},
    ),
    "LightGBM": (
        "[LightGBM] [Info] Start training from score 0.1\n[10]\ttraining's binary_logloss: 0.5\tvalid_1's binary_logloss: 0.6\n"
        "[20]\ttraining's binary_logloss: 0.4\tvalid_1's binary_logloss: 0.55\n",
        "boosting",
        {"loss": [(10, 0.5), (20, 0.4)], "val_loss": [(10, 0.6), (20, 0.55)]},
    ),
    "CatBoost": (
        "0:\tlearn: 0.6844\ttest: 0.6851\tbest: 0.6851 (0)\ttotal: 50ms\tremaining: 50s\n1:\tlearn: 0.67\ttest: 0.68\tbest: 0.68 (1)\ttotal: 60ms\tremaining: 49s\n",
        "boosting",
        {"loss": [(0, 0.6844), (1, 0.67)], "val_loss": [(0, 0.6851), (1, 0.68)]},
    ),
    "fastai": (
        "epoch     train_loss  valid_loss  accuracy  time    \n0         1.5         1.2         0.5       00:12     \n1         1.1         1.0         0.6       00:12     \n",
        "table",
        {"loss": [(0, 1.5), (1, 1.1)], "val_loss": [(0, 1.2), (1, 1.0)]},
    ),
    "spaCy": (
        "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE \n---  ------  ------------  --------  ------  ------  ------  ------\n"
        "  0       0          0.00     33.50    0.00    0.00    0.00    0.00\n  1     200        102.30    900.5   40.00   41.00   39.00    0.40\n",
        "table",
        {"loss": [(0, 33.5), (200, 1002.8)]},
    ),
    **PROGRAMS,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lines_of(name: str, tmp_path: Path) -> None:
    text, form, expected = CASES[name]
    path = tmp_path / "train.log"
    before = "" if text.startswith("\0") else "some words before\n"
    path.write_text(before + text.lstrip("\n"), encoding="utf-8", newline="")
    assert looked(path).format == form
    found = points(path, *dict.fromkeys((*ROLES, *expected)))
    for series, values in expected.items():
        assert [step for step, _ in found[series]] == [step for step, _ in values], series
        assert [value for _, value in found[series]] == pytest.approx([value for _, value in values], nan_ok=True), (
            series
        )


def test_a_stray_line_of_another_program_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("val loss 9.9\n" + "".join(f"step={step} loss={9 / (step + 1)} lr=0.1\n" for step in range(200)))
    assert looked(path).format == "text"
    assert len(points(path, "loss")["loss"]) == 200


def test_settings_are_no_headings(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("Total steps: 10000\ninitial loss: 9.5\n" + "".join(f"step {n} loss: {9 / n}\n" for n in (1, 2, 3)))
    assert [step for step, _ in points(path, "loss")["loss"]] == [1, 2, 3]


def test_megatron_prints_zero_where_every_loss_was_nan(tmp_path: Path) -> None:
    entry = " iteration {step}/ 500 | lm loss: {loss}E+00 | number of skipped iterations: 0 | number of nan iterations: {nan} |\n"
    said = [(10, 2.5, 0), (20, 2.4, 3), (30, 0.0, 10), (40, 0.0, 10)]
    (tmp_path / "log.txt").write_text("".join(entry.format(step=step, loss=loss, nan=nan) for step, loss, nan in said))
    run = steadyrun.import_log(tmp_path / "log.txt", tmp_path / "run")
    loss = run.series("loss").values
    assert loss[:2].tolist() == [2.5, 2.4]
    assert np.isnan(loss[2:]).all()
    assert "3 times: iterations with a NaN loss" in run.manifest["imported"]["odd"][0]
    assert steadyrun.check(tmp_path / "run").leaf.question.code == "D1.3"
