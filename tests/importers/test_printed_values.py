"""Text as programs really print it: tensors, tables of their own, titles, other languages, and how a program ended."""
# ruff: noqa: E501, RUF001  (lines are as programs print them, in any language)

from __future__ import annotations

from pathlib import Path

import pytest
from imported import looked, points

import steadyrun
from steadyrun.errors import LogError
from steadyrun.importers.log_files import places
from steadyrun.importers.number_text import number, unwrapped

EPOCHS = range(1, 6)
FALLING = [(epoch, pytest.approx(2 / epoch, abs=1e-3)) for epoch in EPOCHS]
RISING = [(epoch, pytest.approx(epoch / 10, abs=1e-3)) for epoch in EPOCHS]
HIGHER = [(epoch, pytest.approx(3 / epoch, abs=1e-3)) for epoch in EPOCHS]


def printed(line: str) -> str:
    return "".join(line.format(e=epoch, l=2 / epoch, v=3 / epoch, a=epoch / 10) for epoch in EPOCHS)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("tf.Tensor(-215.1, shape=(), dtype=float32)", "-215.1"),
        ("loss: tensor(0.5, device='cuda:0', grad_fn=<NllLossBackward0>) lr 1", "loss: 0.5 lr 1"),
        ("tensor([[0.5]], requires_grad=True)", "0.5"),
        ("np.float64(1.2), numpy.float32(nan)", "1.2, nan"),
        ("Array(0.3, dtype=float32, weak_type=True)", "0.3"),
        ("<tf.Tensor: shape=(), dtype=float32, numpy=0.5>", "0.5"),
        ("tensor([0.5, 0.6])", "tensor([0.5, 0.6])"),
        ("Conv2d(3, 64, kernel_size=(3, 3))", "Conv2d(3, 64, kernel_size=(3, 3))"),
    ],
)
def test_numbers_without_their_types(text: str, plain: str) -> None:
    assert unwrapped(text) == plain


@pytest.mark.parametrize(("cell", "value"), [("tensor(0.5", 0.5), ("np.float64(1e-3)", 1e-3), ("4.5 (tracked)", 4.5)])
def test_cells_without_their_types(cell: str, value: float) -> None:
    assert number(cell) == value


LOGS = {
    "old torch": ("Epoch {e} loss: Variable containing:\n {l:.4f}\n[torch.FloatTensor of size 1]\n\n", {"loss": FALLING}),
    "mxnet": ("Epoch {e} loss \n[{l:.4f}]\n<NDArray 1 @cpu(0)>\n", {"loss": FALLING}),
    "paddle": ("Epoch {e} loss: Tensor(shape=[1], dtype=float32, place=Place(gpu:0), stop_gradient=False,\n       [{l:.8f}])\n", {"loss": FALLING}),
    "torch's tutorial": ("Epoch {e}/5\n----------\ntrain Loss: {l:.4f} Acc: {a:.4f}\nval Loss: {v:.4f} Acc: 0.5\n\n", {"loss": FALLING, "val_loss": HIGHER, "Acc": RISING}),
    "titles": ("EPOCH {e}\ntrain\n  loss = {l:.3f}\n  acc = {a}\nvalid\n  loss = {v:.3f}\n  acc = 0.5\n", {"loss": FALLING, "val_loss": HIGHER, "acc": RISING}),
    "darknet": ("{e}: 9.5, {l:.6f} avg loss, 0.001000 rate, 3.5 seconds, 64 images\n", {"loss": FALLING}),
    "two sets": ("Epoch {e} - Validation BLEU: BLEU-1 50.0, BLEU-4 {a}\nEpoch {e} - Dev BLEU: BLEU-1 40.0, BLEU-4 {l:.4f}\n", {"val_BLEU-4": RISING, "dev_BLEU-4": FALLING}),
    "a logger in front": ("INFO:root:Epoch {e} - Average Loss: {l:.4f}\nINFO:root:Evaluation Epoch {e} - Average Loss: {v:.4f}\n", {"loss": FALLING, "val_loss": HIGHER}),
    "Portuguese": ("Rodada {e}, Perda: {l:.4f}, Acuracia: {a}\n", {"loss": FALLING}),
    "Chinese": ("第{e}轮 训练损失：{l:.4f}，验证损失：{v:.4f}，准确率：{a}\n", {"loss": FALLING, "val_loss": HIGHER}),
    "Spanish": ("Época {e}/5 - pérdida: {l:.4f} - precisión: {a}\n", {"loss": FALLING, "accuracy": RISING}),
    "Korean": ("에폭 {e}: 손실 {l:.4f}, 정확도: {a}\n", {"loss": FALLING, "accuracy": RISING}),
    "brackets": ("[{e}] reward={a} len=10\n", {"reward": RISING}),
    "a round": ("Round {e}, average loss {l:.3f}\n", {"loss": FALLING}),
    "an index": ("i_episode: {e}, reward: {a}\n", {"reward": RISING}),
    "records": ("Epoch {e} loss: {l:.4f}\n  -> saved best (loss: 0.01)\n", {"loss": FALLING}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_lines(name: str, tmp_path: Path) -> None:
    line, expected = LOGS[name]
    (tmp_path / "train.log").write_text(printed(line))
    assert points(tmp_path / "train.log", *expected) == expected


TABLES = {
    "names with blanks": "Episode          Prey Reward      Total Reward\n" + printed("{e}                 {a}                  5\n"),
    "a mark behind a row": "=====\n Ep    Prey Reward  Acc%\n=====\n" + printed("  {e}  {a} 50.20% ★\n") + "done\n",
    "a logger in front": "2024-01-01 INFO Episode  Prey Reward\n" + printed("2024-01-01 INFO {e}  {a}\n"),
    "settings above": "lr : 0.1\nDevice : cuda\nepisode reward x\n".replace("reward x", "Prey_Reward") + printed("{e} {a}\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_with_names_of_their_own(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(TABLES[name])
    read = points(tmp_path / "train.log")
    assert read.get("Prey Reward") == RISING or read.get("Prey_Reward") == RISING


@pytest.mark.parametrize(
    "line", ["{e}, {l:.5f},{a}\n", "{e} {l:.5f} {a}\n", "[{e}, {l:.5f}, {a}]\n", "{e};{l:.5f};{a}\n"]
)
def test_rows_without_names(line: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(printed(line))
    assert points(tmp_path / "train.log") == {"column_2": FALLING, "column_3": RISING}
    assert any("--map loss=column_2" in odd for odd in looked(tmp_path / "train.log").odd)


@pytest.mark.parametrize(
    "text", ["1.5 2.5\n1.6 2.7\n9 8\n7 6\n3 4\n", "a b\n1 2\n3 4\n", "dog 1 2\ncat 2 3\ncow 3 4\n"]
)
def test_numbers_that_are_no_log(text: str, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text(text)
    with pytest.raises(LogError):
        points(tmp_path / "data.txt")


def test_bare_tensors_are_what_the_file_is_named_after(tmp_path: Path) -> None:
    text = "".join(f"tf.Tensor({2 / step:.4f}, shape=(), dtype=float32)\n" for step in range(1, 31))
    (tmp_path / "loss.txt").write_text(text + "reward: 68.00 at episode 10\n")
    assert [value for _, value in points(tmp_path / "loss.txt")["loss"]] == [
        round(2 / step, 4) for step in range(1, 31)
    ]


def test_the_result_of_an_evaluation_counts_behind_its_bar(tmp_path: Path) -> None:
    line = "Epoch {e} [Train]: 100%|██| 9/9 [00:01<00:00, 9it/s, loss=0.7]\nEpoch {e} [Val]: 100%|██| 3/3 [00:01<00:00, 9it/s, loss=9.9]\n  Train: loss={l:.4f}\n  Val:   loss={v:.4f}\n"
    (tmp_path / "train.log").write_text(printed(line))
    read = points(tmp_path / "train.log")
    assert [value for _, value in read["val_loss"]] == [value for _, value in HIGHER]
    assert [value for _, value in read["epoch_loss"]] == [value for _, value in FALLING]
    assert {value for _, value in read["loss"]} == {0.7}


def test_an_evaluation_after_the_training_is_not_its_last_epoch(tmp_path: Path) -> None:
    bars = printed("Epoch {e}/5\n300/300 [====] - 9s 3s/step - loss: {l:.4f} - val_loss: {v:.4f}\n")
    (tmp_path / "train.log").write_text(
        bars + "  1/363 [>...] - ETA: 5:37 - loss: 7.5\n363/363 [====] - 9s 3s/step - loss: 7.7\n"
    )
    assert points(tmp_path / "train.log", "loss", "val_loss") == {"loss": FALLING, "val_loss": HIGHER}


def test_the_best_before_the_first_result_is_not_a_value(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(printed("Epoch {e} loss: {l:.4f}\nbest val loss: inf\n"))
    assert all(value < 3 for series in points(tmp_path / "train.log").values() for _, value in series)


@pytest.mark.parametrize(("last", "kept"), [("val_acc: 0.5500", True), ("val_acc: 0.55", False), ("val_acc: 0", False)])
def test_a_last_line_is_whole_if_it_is_as_long_as_the_others(last: str, kept: bool, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        printed("Epoch {e} loss: {l:.4f} val_acc: {a:.4f}\n") + f"Epoch 6 loss: 0.3000 {last}"
    )
    assert (len(points(tmp_path / "train.log")["val_acc"]) == len(EPOCHS) + 1) is kept


# How a program ended.


TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 98, in <module>
    main()
    ~~~~^^
  File "/home/me/model.py", line 380, in build
    latents = lerp(latents)
UnboundLocalError: local variable 'latents' referenced before assignment
"""


def ending(text: str, folder: Path) -> steadyrun.Report:
    (folder / "train.log").write_text(text)
    steadyrun.import_log(folder / "train.log", folder / "run")
    return steadyrun.check(folder / "run")


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "2024-01-01 10:00:00 - ERROR - "])
def test_a_program_that_crashed_before_its_first_step(prefix: str, tmp_path: Path) -> None:
    lines = TRACEBACK.splitlines(keepends=True)
    text = "".join(prefix + line for line in lines) if prefix.startswith("[") else prefix + TRACEBACK
    report = ending("Loading 5 files\nusing device cuda:0\n" + text, tmp_path)
    assert report.verdict == "fault"
    assert report.headline is not None
    said = report.headline.answer
    assert said.outcome == "before-first-step"
    assert "UnboundLocalError: local variable 'latents'" in said.message
    assert "model.py:380 in build" in said.message


@pytest.mark.parametrize(
    ("behind", "kind"),
    [
        (TRACEBACK, "UnboundLocalError"),
        (TRACEBACK + "wandb: loss 0.1\nwandb: loss 0.2\nwandb: loss 0.3\n", "UnboundLocalError"),
        (
            TRACEBACK + TRACEBACK.replace("UnboundLocalError: ", "torch.distributed.ChildFailedError: "),
            "UnboundLocalError",
        ),
        ("Segmentation fault (core dumped)\n", "Segmentation fault"),
        ("run.sh: line 5: 1234 Killed                  python train.py\n", "Killed"),
        ("slurmstepd: error: *** JOB 12 ON n CANCELLED AT 2024 DUE TO TIME LIMIT ***\n", "TimeLimit"),
        (TRACEBACK + printed("Epoch 1{e} loss: {l:.4f}\n"), None),  # caught: the training went on
        ("Killed 5 enemies\n", None),
    ],
)
def test_a_log_says_how_its_program_ended(behind: str, kind: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(printed("Epoch {e} loss: {l:.4f}\n") + behind)
    run = steadyrun.import_log(tmp_path / "train.log", tmp_path / "run")
    assert run.manifest.get("failure", {}).get("type") == kind
    assert len(run.series("loss").values) >= len(EPOCHS)


@pytest.mark.parametrize(
    ("behind", "verdict"),
    [
        (TRACEBACK, "suspect"),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory.\n".join((TRACEBACK.rpartition("Unbound")[0], "")),
            "suspect",
        ),
        ("run.sh: line 5: 1234 Killed                  python train.py\n", "suspect"),
        (TRACEBACK.rpartition("Unbound")[0] + "KeyboardInterrupt\n", "healthy"),
        (TRACEBACK.rpartition("Unbound")[0] + "a.b.SignalException: Process 5 got signal: 15\n", "healthy"),
        ("slurmstepd: error: *** JOB 12 ON n CANCELLED AT 2024 DUE TO TIME LIMIT ***\n", "healthy"),
    ],
)
def test_a_crash_after_some_steps_is_a_suspect(behind: str, verdict: str, tmp_path: Path) -> None:
    lines = "".join(f"step {step} loss: {0.2 + 2 * 0.99**step:.4f}\n" for step in range(400))
    assert ending(lines + behind, tmp_path).verdict == verdict


def test_a_traceback_among_other_logs_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(printed("Epoch {e} loss: {l:.4f}\n"))
    (tmp_path / "a.err").write_text(TRACEBACK)
    assert [place.path.name for place in places(tmp_path)] == ["a.log"]
