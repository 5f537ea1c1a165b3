"""Lines in the style of public training programs: what a person reads in them is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from imported import points
from public_forms import BY_EPOCH, FORMS, WITHIN, printed

import steadyrun
from steadyrun.importers.number_text import number


@pytest.mark.parametrize("name", FORMS)
def test_lines_of_public_programs(name: str, tmp_path: Path) -> None:
    form, expected = FORMS[name]
    (tmp_path / "train.log").write_text(printed(form), encoding="utf-8", newline="")
    found = points(tmp_path / "train.log")
    for series, (steps, values) in expected.items():
        if values:
            assert [value for _, value in found[series]] == pytest.approx(BY_EPOCH[values], rel=2e-3, abs=1e-4)
        if steps:
            assert [step for step, _ in found[series]] == WITHIN[steps]
        assert series in found


def read(folder: Path, text: str, name: str = "train.log") -> dict[str, list[tuple[int, float]]]:
    (folder / name).write_text(text, encoding="utf-8")
    return points(folder / name)


def test_a_count_joined_to_a_value(tmp_path: Path) -> None:
    text = "".join(f"{n}_{2 - n / 50}1\n" for n in range(1, 40))
    assert read(tmp_path, text, "val_loss.txt")["val_loss"][-1] == (39, pytest.approx(1.221))
    assert number("12_0.5") is None
    assert number("1_000") == 1000


@pytest.mark.parametrize(("last", "kept"), [("epoch == 30", True), ("epoch == 3", False)])
def test_a_last_count_is_whole_if_it_goes_on(last: str, kept: bool, tmp_path: Path) -> None:
    text = "".join(f"train_loss == {2 - n / 50:.4f} epoch == {n}\n" for n in range(1, 30)) + f"train_loss == 1.4 {last}"
    found = read(tmp_path, text)["loss"]
    assert (found[-1] == (30, pytest.approx(1.4))) is kept
    assert len(found) == 29 + kept


def test_one_line_of_numbers_is_a_curve(tmp_path: Path) -> None:
    text = ", ".join(f"{n / 7:.6f}" for n in range(100)) + "\n"
    assert len(read(tmp_path, text, "rewards.csv")["rewards"]) == 100


def test_a_number_in_each_line_without_a_name(tmp_path: Path) -> None:
    text = "".join(f"Epoch {e}\n" + "".join(f"{9 / (n + 1 + e):.5f}\n" for n in range(40)) for e in range(2))
    assert len(read(tmp_path, text, "train_log.txt")["value"]) == 80


def test_a_count_with_a_name_of_its_own(tmp_path: Path) -> None:
    text = "".join(f"after cycle={n} avg(utility)={200 + n / 9:.4f} avg(wins)=0.35\n" for n in range(30))
    assert [step for step, _ in read(tmp_path, text)["avg(utility)"]] == list(range(30))


def test_columns_without_a_name_that_count_are_no_score(tmp_path: Path) -> None:
    text = "".join(f"{n} {1000 * n} {n / 3 - n % 5:.3f}\n" for n in range(60))
    assert read(tmp_path, text, "rewards.txt")["score"][6] == (6, pytest.approx(1.0))


def test_a_bar_in_ascii_is_no_series(tmp_path: Path) -> None:
    bars = "".join(
        f"Base Episodes:  {n}%|##{n % 10}       | {50 * n}/5000 [00:01<00:37, 32.49it/s]\n" for n in range(1, 30)
    )
    rows = "".join(f"Ep {200 * n}  train_reward= {n / 9:.2f}  eval_score= {n / 3:.2f}\n" for n in range(1, 9))
    found = read(tmp_path, bars + rows)
    assert set(found) == {"train_reward", "eval_score"}
    assert [step for step, _ in found["eval_score"]] == [200 * n for n in range(1, 9)]


def test_a_bar_of_another_length_below_that_of_its_epoch_is_an_evaluation(tmp_path: Path) -> None:
    bar = "100%|████| {n}/{n} [00:05<00:00, 8.5it/s, loss={loss:.3f}]\n"
    text = "".join(f"Epoch [{e}/9]\n{bar.format(n=30, loss=2 / e)}{bar.format(n=8, loss=3 / e)}" for e in range(1, 10))
    found = read(tmp_path, text)
    assert [value for _, value in found["loss"]] == pytest.approx([2 / e for e in range(1, 10)], abs=1e-3)
    assert [value for _, value in found["val_loss"]] == pytest.approx([3 / e for e in range(1, 10)], abs=1e-3)


def test_data_named_between_commas(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch: {n}, Iter: 9/9, Loss: {2 / n:.3f}, Acc: 5\nEpoch: {n}, Valid, Loss: 1.{n}, Acc: 5\n"
        for n in range(1, 8)
    )
    found = read(tmp_path, text)
    assert [value for _, value in found["val_loss"]] == pytest.approx([1 + n / 10 for n in range(1, 8)])


def test_batches_from_zero_to_their_number_with_the_epoch_at_their_end(tmp_path: Path) -> None:
    text = "".join(
        "".join(f"TRAIN Batch {n:04}/0400, Loss {9 - e - n / 500:.3f}\n" for n in range(0, 500, 100))
        + f"TRAIN Epoch {e:02}/4, Mean Negative ELBO {9 - e}.5\nVALID Batch 0020/0020, Loss {8 - e}.1\n"
        + f"VALID Epoch {e:02}/4, Mean Negative ELBO {8 - e}.5\n"
        for e in range(4)
    )
    found = read(tmp_path, text)
    assert [step for step, _ in found["loss"]] == [401 * e + n for e in range(4) for n in range(0, 500, 100)]
    assert [value for _, value in found["val_loss"]] == pytest.approx([8.1, 7.1, 6.1, 5.1])


def test_losses_of_players_with_different_words(tmp_path: Path) -> None:
    text = "".join(f"iteration:{n};errorD:{0.7 / (n + 1):.6f};loss_G:{1.2 + n / 50:.4f}\n" for n in range(300))
    (tmp_path / "gan.log").write_text(text)
    steadyrun.import_log(tmp_path / "gan.log", tmp_path / "run")
    report = steadyrun.check(tmp_path / "run")
    assert report.headline.answer.outcome == "won"


def test_a_score_that_falls_beside_an_accuracy_is_the_loss(tmp_path: Path) -> None:
    rows = "".join(f"Score at iteration {n} is {2 / (1 + n / 30):.4f}\n" for n in range(0, 300, 10))
    table = "".join(f"Epoch {n} Accuracy: 0.6{n}\n" for n in range(3))
    assert len(read(tmp_path, rows + table)["loss"]) == 30
    assert "loss" not in read(tmp_path, rows, "game.log")


@pytest.mark.parametrize(
    ("last", "kind"), [("stack traceback:", "LuaError"), ("Stacktrace:", "JuliaError"), ("Execution halted", "RError")]
)
def test_programs_in_other_languages_that_fail(last: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("".join(f"step {n}: loss {2 / n:.3f}\n" for n in range(1, 40)) + f"{last}\n")
    assert steadyrun.import_log(tmp_path / "train.log", tmp_path / "run").manifest["failure"]["type"] == kind


def test_an_exception_that_python_ignores_ends_no_program(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in __del__\nAssertionError: no child process\n'
    rows = "".join(f"step {n}: loss {2 / n:.3f}\n" for n in range(1, 40))
    for before, failed in (("Exception ignored in: <bound method A.__del__ of <a.A object>>\n", False), ("", True)):
        (tmp_path / "train.log").write_text(rows + before + trace)
        run = steadyrun.import_log(tmp_path / "train.log", tmp_path / "run")
        assert ("failure" in run.manifest) is failed


def test_epochs_and_losses_in_polish(tmp_path: Path) -> None:
    text = "".join(f"Epoka {n} | Strata: {2 / n:.4f} | dokładność: 0.{n}\n" for n in range(1, 8))
    assert read(tmp_path, text)["loss"][-1] == (7, pytest.approx(0.2857))
