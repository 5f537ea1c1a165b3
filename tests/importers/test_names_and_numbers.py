"""The general reader of printed lines: what is printed is what is read, in the words that programs use."""
# ruff: noqa: E501  (lines are as long as programs print them)

from __future__ import annotations

import math
import random
import string
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dialects import CASES

from steadyrun.importers.formats.dialects import names_and_numbers
from steadyrun.importers.formats.dialects.printed_names import count_word, metric_name
from steadyrun.importers.formats.dialects.printed_values import plain_values
from steadyrun.importers.log_rows import Anomalies, Log
from steadyrun.importers.series_roles import EPOCH_LENGTH

Rows = list[dict[str, float]]


def read(text: str, anomalies: Anomalies | None = None) -> Rows:
    lines: Iterable[tuple[int, str]] = enumerate(text.splitlines(), start=1)
    printed = plain_values(iter(lines), Path("train.log"))
    rows = names_and_numbers.DIALECT.rows(printed, anomalies or Anomalies(), Log(iter(())))
    return [dict(row) for row in rows]


SAID: dict[str, tuple[str, Rows]] = {
    "loss at": ("loss at 404 1.79\nloss at 405 1.78\n", [{"step": 404, "loss": 1.79}, {"step": 405, "loss": 1.78}]),
    "eval loss at step": ("Eval loss at step 2000: 6.18\n", [{"step": 2000, "Eval loss": 6.18}]),
    "a bar of the data's preparation": (
        "Map (num_proc=4):  50%|█████     | 1000/2000 [00:01<00:01, 900.00 examples/s]\nstep 3 loss 1.5\nstep 4 loss 1.4\n",
        [{"step": 3, "loss": 1.5}, {"step": 4, "loss": 1.4}],
    ),
    "loss is": ("step 3: total loss is 47.09\n", [{"step": 3, "total loss": 47.09}]),
    "loss after": ("loss after 100 steps: 2.3\n", [{"step": 100, "loss": 2.3}]),
    "loss of an epoch": ("Loss for epoch 3 is 0.5\n", [{"epoch": 3, "Loss": 0.5}]),
    "an aside": ("Training loss (for one batch) at step 200: 0.9\n", [{"step": 200, "Training loss": 0.9}]),
    "commas": ("epoch 1, phase train, step 10, loss_train, 0.838\n", [{"epoch": 1, "step": 10, "loss_train": 0.838}]),
    "BasicSR": (
        "[train..][epoch:  2, iter:  83,900, lr:(1.000e-04,)] [eta: 1 day, 4:00:00, time (data): 0.330 (0.001)] l_pix: 1.2e-2 \n" * 2,
        [{"epoch": 2, "step": 83_900, "lr": 1e-4, "time (data)": 0.33, "l_pix": 0.012}] * 2,
    ),
    "epochs of known length": (
        "Epoch[001/100], Step[0000/0196], Avg Loss: 1.1\nEpoch[001/100], Step[0100/0196], Avg Loss: 1.0\nEpoch[002/100], Step[0000/0196], Avg Loss: 0.9\n",
        [{"epoch": 1, "step": 0, "Avg Loss": 1.1}, {"epoch": 1, "step": 100, "Avg Loss": 1.0}, {"epoch": 2, "step": 0, "steps_per_epoch": 196, "Avg Loss": 0.9}],
    ),
    "steps that count on beside epochs": (
        "".join(f"epoch {step // 10} iter {step}/90000 loss {9 - step / 10}\n" for step in (5, 15, 25, 35)),
        [{"epoch": step // 10, "step": step, "loss": 9 - step / 10} for step in (5, 15, 25, 35)],
    ),
    "CycleGAN": (
        "".join(f"(epoch: 1, iters: {n}, time: 0.480, data: 0.199) D_A: 0.280 G_A: 0.843 cycle_A: 2.123 idt_A: 0.505 \n" for n in (100, 200)),
        [{"epoch": 1, "step": n, "time": 0.48, "data": 0.199, "D_A": 0.28, "G_A": 0.843, "cycle_A": 2.123, "idt_A": 0.505} for n in (100, 200)],
    ),
    "StarGAN": (
        "Elapsed [0:00:03], Iteration [10/200000], D/loss_real: -0.0123, D/loss_gp: 0.4, G/loss_rec: 0.5\n",
        [{"step": 10, "D/loss_real": -0.0123, "D/loss_gp": 0.4, "G/loss_rec": 0.5}],
    ),
    "generator and discriminator": (
        "Iteration: 0000007, Generator Learning Rate: 0.0002000,Generator Loss : 0.526, Discriminator Loss : 2.209\n",
        [{"step": 7, "Generator Learning Rate": 0.0002, "Generator Loss": 0.526, "Discriminator Loss": 2.209}],
    ),
    "DCGAN": (
        "[0/25][10/1583]\tLoss_D: 1.5\tLoss_G: 5.2\tD(x): 0.6\tD(G(z)): 0.5 / 0.02\n" * 2,
        [{"epoch": 0, "step": 10, "Loss_D": 1.5, "Loss_G": 5.2, "D(x)": 0.6, "D(G(z))": 0.5}] * 2,
    ),
    "GANs in Keras": ("13 [D loss: 0.62, acc.: 65.62%] [G loss: 0.91]\n", [{"step": 13, "D loss": 0.62, "acc.": 65.62, "G loss": 0.91}]),
    "DDPG": (
        "Episode: 1, Reward: -120.5, Noise: 0.30\nEpisode: 2, Reward: -100.5, Noise: 0.29\n",
        [{"step": 1, "Reward": -120.5, "Noise": 0.3}, {"step": 2, "Reward": -100.5, "Noise": 0.29}],
    ),
    "TD3": (
        "Total T: 250 Episode Num: 1 Episode T: 250 Reward: 12.500\nTotal T: 500 Episode Num: 2 Episode T: 250 Reward: 13.500\n",
        [{"step": 250, "Episode T": 250, "Reward": 12.5}, {"step": 500, "Episode T": 250, "Reward": 13.5}],
    ),
    "CleanRL": ("global_step=32, episodic_return=[1.]\nglobal_step=64, episodic_return=[2.5]\n", [{"step": 32, "episodic_return": 1.0}, {"step": 64, "episodic_return": 2.5}]),
    "phases of an epoch": (
        "Epoch 1/5\ntrain: loss=0.9, acc=0.5\nvalid: loss=0.8, acc=0.6\n",
        [{"epoch": 1, "loss": 0.9, "acc": 0.5}, {"epoch": 1, "val_loss": 0.8, "val_acc": 0.6}],
    ),
    "nnU-Net, first version": (
        "2020-01-01 10:00:00.123456: \nepoch:  3\n2020-01-01 10:05:00.123456: train loss : -0.6543\n2020-01-01 10:05:30.123456: validation loss: -0.7012\n2020-01-01 10:05:30.123456: This epoch took 310.12 s\n",
        [{"epoch": 3, "train loss": -0.6543}, {"epoch": 3, "validation loss": -0.7012}],
    ),
    "bars of training and validation": (
        "Train Epoch 1: 100%|██████████| 2/2 [00:08<00:00,  8.77s/it, loss=1.5]\nVal Epoch 1:  50%|█████     | 1/2 [00:08<02:29,  8.77s/it, loss=2.9]\nVal Epoch 1: 100%|██████████| 2/2 [00:08<00:00,  8.77s/it, loss=2.5]\n",
        [{"epoch": 1, "step": 2, "loss": 1.5}, {"epoch": 1, "val_loss": 2.5}],
    ),
    "actor and critic": ("Step: 1000 | Actor loss: -0.32 | Critic loss: 0.55\n", [{"step": 1000, "Actor loss": -0.32, "Critic loss": 0.55}]),
    "verl": (
        "(TaskRunner pid=625502) step:1 - actor/pg_loss:0.0 - actor/lr:3e-05 - training/global_step:1 - critic/score/mean:0.25\n"
        "(TaskRunner pid=625502) step:2 - actor/pg_loss:0.1 - actor/lr:3e-05 - training/global_step:2 - critic/score/mean:0.5\n",
        [{"step": 1, "actor/pg_loss": 0.0, "actor/lr": 3e-05, "critic/score/mean": 0.25}, {"step": 2, "actor/pg_loss": 0.1, "actor/lr": 3e-05, "critic/score/mean": 0.5}],
    ),
    "torchtune": ("Step 5 | loss:1.62 lr:2e-05 tokens_per_second_per_gpu:512.5 \n" * 2, [{"step": 5, "loss": 1.62, "lr": 2e-05, "tokens_per_second_per_gpu": 512.5}] * 2),
    "word language model": (
        "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.30 | loss  7.61 | ppl  2010.12\n| end of epoch   1 | time: 40.12s | valid loss  5.61 | valid ppl   273.12\n",
        [{"epoch": 1, "step": 200, "lr": 20.0, "loss": 7.61, "ppl": 2010.12}, {"epoch": 1, "valid loss": 5.61, "valid ppl": 273.12}],
    ),
    "flair": (
        "2021-01-01 10:00:00,000 epoch 1 - iter 5/50 - loss 2.81 - samples/sec: 300.10 - lr: 0.1\n2021-01-01 10:00:01,000 DEV : loss 0.53\n",
        [{"epoch": 1, "step": 5, "loss": 2.81, "lr": 0.1}, {"dev_loss": 0.53}],
    ),
    "loguru": ("2024-01-01 10:00:00.000 | INFO     | __main__:train:120 - Step 10 | loss=3.2\n", [{"step": 10, "loss": 3.2}]),
    "tensors": ("epoch: 2 loss: tensor(2.5, device='cuda:0', grad_fn=<NllLossBackward0>)\n", [{"epoch": 2, "loss": 2.5}]),
    "NaN of old compilers": ("step 1 loss: 1.#QNAN\nstep 2 loss: -1.#IND\n", [{"step": 1, "loss": math.nan}, {"step": 2, "loss": math.nan}]),
    "correct of all": (
        "Train Epoch: 1 [0/600 (0%)] Loss: 2.5\nTest set: Average loss: 0.5, Accuracy: 90/120 (75%)\n",
        [{"epoch": 1, "step": 0, "steps_per_epoch": 600, "Loss": 2.5}, {"test_Average loss": 0.5, "test_Accuracy": 0.75}],
    ),
    "a title and its epoch": (
        "[ Train | 001/100 ] loss = 1.9, acc = 0.2\n[ Valid | 001/100 ] loss = 1.6, acc = 0.3\n[ Train | 002/100 ] loss = 1.4, acc = 0.4\n[ Valid | 002/100 ] loss = 1.5, acc = 0.4\n",
        [{"epoch": 1, "loss": 1.9, "acc": 0.2}, {"epoch": 1, "val_loss": 1.6, "val_acc": 0.3}, {"epoch": 2, "loss": 1.4, "acc": 0.4}, {"epoch": 2, "val_loss": 1.5, "val_acc": 0.4}],
    ),
    "ranges of steps": ("Average train loss for iteration 1-50: 0.9\nAverage train loss for iteration 51-100: 0.8\n", [{"step": 50, "Average train loss": 0.9}, {"step": 100, "Average train loss": 0.8}]),
    "a duration called cost": ("epoch 3, loss: 0.5, cost: 0.25 min, acc: 0.9\n", [{"epoch": 3, "loss": 0.5, "acc": 0.9}]),
    "steps of an episode": ("Episode 7/300 | Reward: 2.5 | Steps: 148\n", [{"step": 7, "Reward": 2.5}]),
    "a place in parentheses": ("Validation Loss (Epoch 2): 1.5\n", [{"epoch": 2, "Validation Loss": 1.5}]),
    "a picture in front of a name": ("Epoch 4: loss 1.5\n[2025-01-02 10:00:00] \U0001f4ca Validation Loss: 1.25\n", [{"epoch": 4, "loss": 1.5}, {"Validation Loss": 1.25}]),
    "batches below an epoch": (
        "".join(f"Epoch {n}/9\nbatch = 405\ntrain Loss: {2 - n} Acc: 0.5\n" for n in (0, 1)),
        [{"epoch": n, "step": 405, "train Loss": 2 - n, "Acc": 0.5} for n in (0, 1)],
    ),
    "a heading of another epoch": (
        "End of epoch 0 / 9\n[epoch: 1/9, iter: 0/40] loss: 1.5\nValidation accuracy: 0.3\n",
        [{"epoch": 1, "step": 0, "loss": 1.5}, {"epoch": 1, "Validation accuracy": 0.3}],
    ),
    "metrics below a title in the line": (
        "".join(f"Epoch {n}\n- Train metrics: recall: 0.5; purity: 0.4; loss: 2.5\n- Eval metrics: recall: 0.3; purity: 0.2; loss: 2.75\n" for n in (1, 2, 3)),
        [row for n in (1, 2, 3) for row in ({"epoch": n, "recall": 0.5, "purity": 0.4, "loss": 2.5}, {"epoch": n, "val_recall": 0.3, "val_purity": 0.2, "val_loss": 2.75})],
    ),
    "loss so far": ("Epoch 0, Step 25, avg loss so far is 0.5\n", [{"epoch": 0, "step": 25, "avg loss": 0.5}]),
    "counts with their ends in JSON": (
        'stats: {"_type": "train_epoch", "epoch": "3/200", "loss": 0.5}\nstats: {"_type": "val_epoch", "epoch": "3/200", "top1_acc": 61.5}\n',
        [{"epoch": 3, "loss": 0.5}, {"epoch": 3, "top1_acc": 61.5}],
    ),
    "markdown": ("- **Epoch 1**: loss: 0.5\n- **Epoch 2**: loss: 0.4\n", [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.4}]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_lines_say(name: str) -> None:
    text, expected = SAID[name]
    assert any(names_and_numbers.DIALECT.pattern.search(line) for line in text.splitlines())
    found = read(text)
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert {key: row.get(key) for key in wanted} == pytest.approx(wanted, nan_ok=True)
        assert {key for key in row if key not in wanted} <= {"epoch", EPOCH_LENGTH}


LOG = "".join(f"Epoch {n} | step {n} | loss {3 / n:.3f}\n" for n in (1, 2, 3))


@pytest.mark.parametrize(
    "dump",
    [
        "Namespace(lr=0.1, loss_weight=0.5, epochs=3, resume=None)\n",
        "lr: 0.001\nbatch_size: 32\nepochs: 10\naux_loss_weight: 0.5\n",
        "{'lr': 0.01, 'weight_decay': 0.1, 'use_amp': True, 'resume': None}\n",
        "TrainConfig(run_name='a', model=ModelConfig(d_model=768, auxiliary_loss_multiplier=0.0001))\n",
        "Training for 100 epochs with lr 0.1\nTotal steps: 10000\nwarmup_steps = 10\n",
    ],
)
def test_settings_are_not_series(dump: str) -> None:
    for text in (dump + LOG, LOG + dump.replace("\n", "\n" + LOG, 1)):
        assert {name for row in read(text) for name in row} <= {"epoch", "step", "loss", "lr"}
    assert {name for row in read(dump + LOG) for name in row} == {"epoch", "step", "loss"}


def test_what_is_not_a_series() -> None:
    text = (
        "[train.py:120] step {0} loss 2.{0}\n"
        "saved ./out/model-Epoch-{0}-Loss-0.47.pth (1.{0} GB)\n"
        "/lib/python3/site-packages/torch/optim/lr_scheduler.py:136: UserWarning: see 1.{0}.0\n"
        "number of nan iterations: {0}\n"
        "Loading shards:  50%|█████     | {0}/9 [00:01<00:01]\nLoading checkpoint shards:   0% Completed | {0}/9 [00:00<?, ?it/s]\n"
    )
    rows = read("".join(text.format(n) for n in range(1, 9)))
    assert {name for row in rows for name in row} <= {"step", "loss", "nan iterations"}
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 9))


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[Rank {}] ", "rank {}: ", "[default{}]:"])
def test_the_first_rank_is_read(prefix: str) -> None:
    lines = [f"{prefix.format(rank)}step {step} loss: {rank}.{step}\n" for step in (1, 2, 3) for rank in (1, 0, 2)]
    anomalies = Anomalies()
    assert read("".join(lines), anomalies) == [{"step": step, "loss": 1 + step / 10} for step in (1, 2, 3)]
    assert anomalies.lines() == ["6 times: lines of further ranks (first: line 2): left out, rank 1 is read"]


@pytest.mark.parametrize(
    "name", ["train.py", "GB)", "Namespace(lr", "a b c d e f", "x" * 200, "cuda", "./out/a.pth", ""]
)
def test_names_that_nobody_gives_to_metrics(name: str) -> None:
    assert metric_name(name, separated=True) is None


@pytest.mark.parametrize(
    "phrase", ["Total steps", "number of epochs", "best epoch", "steps per epoch", "max_steps", "loss"]
)
def test_counts_of_something_else(phrase: str) -> None:
    assert count_word(phrase) is None


WORDS = [
    "loss",
    "train_loss",
    "val/acc",
    "grad_norm",
    "D_A",
    "l_pix",
    "kl.term",
    "reward_mean",
    "Generator Loss",
    "top1",
]
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.4f}"),
    st.floats(1e-12, 1e12).map(lambda value: f"{value:.3e}"),
    st.sampled_from(["nan", "inf", "-inf", "NaN", "0", "1,234.5"]),
)


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True),
    st.sampled_from([": ", "=", ":", " : ", " = ", ":   "]),
    st.sampled_from([" ", ", ", " | ", "  ", "\t", "; ", " - "]),
    st.sampled_from(["step {} ", "Epoch 3, step: {}, ", "[{}/100000] ", "iter {}/100000: ", "2024-01-01 10:00:00,123 INFO step={} | "]),
    st.lists(st.lists(NUMBERS, min_size=6, max_size=6), min_size=2, max_size=6),
)  # fmt: skip
@settings(max_examples=300)
def test_what_is_printed_is_what_is_read(
    names: list[str], equals: str, gap: str, front: str, numbers: list[list[str]]
) -> None:
    lines = [
        front.format(step) + gap.join(f"{name}{equals}{number}" for name, number in zip(names, row, strict=False))
        for step, row in enumerate(numbers, start=1)
    ]
    found = read("\n".join(lines) + "\n")
    assert [row["step"] for row in found] == list(range(1, len(numbers) + 1))
    for row, printed in zip(found, numbers, strict=True):
        wanted = [float(number.replace(",", "")) for number in printed[: len(names)]]
        assert [row.get(name) for name in names] == pytest.approx(wanted, nan_ok=True), lines


MUTANTS = 100_000
PIECES = [
    *string.printable,
    "\0",
    "nan",
    "loss",
    "Epoch ",
    "[1/2]",
    "\x1b[1m",
    "1e400",
    "9" * 50,
    " | ",
    "é",
    "━",
    "{'",
    '":',
    "%",
]


@pytest.mark.slow  # a hundred thousand texts
def test_mutants_are_read_without_a_traceback() -> None:
    chance = random.Random(22)
    seeds = [text for text, _, _ in CASES.values()] + [text for text, _ in SAID.values()]
    for _ in range(MUTANTS):
        held = list(chance.choice(seeds)[:400])
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(held) + 1)
            held[at : at + chance.randint(0, 4)] = chance.choice(PIECES)
        for row in read("".join(held)):
            assert all(isinstance(value, float) for value in row.values())
