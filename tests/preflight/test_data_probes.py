"""Bugs in ids, labels, shifts, padding and order, each in a real program, and what is near them and healthy."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from programs_data import (
    ROWS,
    VOCAB,
    Recurrent,
    Shifting,
    TinyGPT,
    classify,
    mlp,
    points,
    scores,
    shifted,
    task,
    texts,
    with_padding,
)
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from steadyrun.questions.form import Answer
from steadyrun.report.preflight import run


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def answer(made: steadyrun.Task, code: str, **more: Any) -> Answer:
    """What one probe says; no other probe may fail on the way."""
    return run(made, only=[code], **more).walk.path[0].answer


def outcome_of(made: steadyrun.Task, code: str, **more: Any) -> tuple[str, str]:
    probe_answer = answer(made, code, **more)
    return probe_answer.kind, probe_answer.outcome


# -- P1.1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.parametrize("bad", [VOCAB, -1])
def test_an_id_without_a_row(index: int, bad: int) -> None:
    batches = shifted()
    batches[index] = (batches[index][0].clone(), batches[index][1])
    batches[index][0][2, 3] = bad
    probe_answer = answer(task(TinyGPT(), scores, batches), "P1.1")
    assert probe_answer.outcome == "beyond-the-table"
    assert (
        f"Batch {index} (batch[0]) looks up id {bad} in tokens.weight, which has {VOCAB} rows" in probe_answer.message
    )
    assert "Ids without a row: 1 of 96." in probe_answer.message


def test_a_text_longer_than_the_table_of_positions() -> None:
    batches = [*shifted(), *((t[:, :-1], t[:, 1:]) for t in texts(1, width=66))]
    probe_answer = answer(task(TinyGPT(), scores, batches), "P1.1")
    assert probe_answer.outcome == "beyond-the-table"
    assert "Batch 6 looks up id 64 in positions.weight, which has 64 rows" in probe_answer.message


def test_a_bad_batch_does_not_hide_the_rest() -> None:
    batches = shifted()
    batches[0][0][0, 0] = VOCAB
    report = run(task(TinyGPT(), scores, batches))
    assert [asked.question.code for asked in report.walk.path if asked.answer.kind == "fault"] == ["P1.1"]
    assert not [asked for asked in report.walk.path if asked.answer.outcome == "failed"]
    assert {a.question.code: a.answer.kind for a in report.walk.path}["C1.1"] == "pass"


def test_an_id_that_is_never_looked_up_is_none() -> None:
    """The last column is a target only, and masked there."""

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        y = t[:, 1:].masked_fill(t[:, 1:] >= VOCAB, -100)
        return functional.cross_entropy(model(t[:, :-1]).flatten(0, 1), y.flatten())

    batches = texts()
    for t in batches[1:]:
        t[:, -1] = 10**6
    for code in ("P1.1", "P1.2"):
        assert outcome_of(task(TinyGPT(), loss_fn, batches), code) == ("pass", "pass")


# -- P1.2 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 4])
@pytest.mark.parametrize("bad", [4, -1, 255])
def test_a_label_that_is_no_class(index: int, bad: int) -> None:
    batches = points()
    batches[index][1][5] = bad
    probe_answer = answer(task(mlp(), classify, batches), "P1.2")
    assert probe_answer.outcome == "no-such-class"
    assert f"Batch {index} has label {bad}, the model scores 4 classes" in probe_answer.message


@pytest.mark.parametrize("index", [0, 2])
def test_a_batch_without_a_label_that_counts(index: int) -> None:
    batches = shifted()
    batches[index] = (batches[index][0], torch.full_like(batches[index][1], -100))
    probe_answer = answer(task(TinyGPT(), scores, batches), "A3.7")
    assert probe_answer.outcome == "nothing-to-learn"
    assert f"All 96 labels of batch {index} are -100" in probe_answer.message


def test_ignored_labels_that_are_guarded_or_summed_are_healthy() -> None:
    batches = shifted()
    batches[2] = (batches[2][0], torch.full_like(batches[2][1], -100))

    def guarded(model: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        total = functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        return total / (y != -100).sum().clamp(min=1)

    for code in ("P1.2", "A3.7"):
        assert outcome_of(task(TinyGPT(), guarded, batches), code) == ("pass", "pass")


def test_labels_that_are_all_alike_are_a_note() -> None:
    batches = [(x, torch.full_like(y, 2)) for x, y in points(8)]
    assert outcome_of(task(mlp(), classify, batches), "P1.2") == ("note", "one-class")


# -- A3.3 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{"causal": True}, {}], ids=["declared", "seen"])
def test_no_shift(config: dict[str, Any]) -> None:
    probe_answer = answer(task(TinyGPT(dropout=0.1), scores, [(t, t) for t in texts()], config=config), "A3.3")
    assert probe_answer.outcome == "not-shifted"
    assert "100% are the same token as the input" in probe_answer.message


def test_no_shift_in_a_recurrent_model() -> None:
    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        return functional.cross_entropy(model(t).flatten(0, 1), t.flatten())

    class BatchFirst(Recurrent):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids.t()).transpose(0, 1)

    assert answer(task(BatchFirst(), loss_fn, texts()), "A3.3").outcome == "not-shifted"


def test_shifted_twice() -> None:
    batches = [{"input_ids": t[:, :-1], "labels": t[:, 1:]} for t in texts()]
    made = task(Shifting(TinyGPT()), lambda model, batch: model(**batch).loss, batches)
    probe_answer = answer(made, "A3.3")
    assert probe_answer.outcome == "shifted-twice"
    assert "100% the one after the next" in probe_answer.message


def test_runs_of_one_token_prove_no_shift() -> None:
    batches = [(torch.full((ROWS, 12), 3), torch.full((ROWS, 12), 3)) for _ in range(4)]
    assert outcome_of(task(TinyGPT(), scores, batches, config={"causal": True}), "A3.3") == ("pass", "pass")


def test_a_model_that_corrects_texts_is_healthy() -> None:
    batches = []
    for t in texts():
        wrong = torch.rand(t.shape) < 0.02
        batches.append((torch.where(wrong, torch.randint(2, VOCAB, t.shape), t), t))
    assert outcome_of(task(TinyGPT(), scores, batches), "A3.3")[0] != "fault"


# -- A3.4 and A3.5 ----------------------------------------------------------------------------------


def test_padding_that_counts() -> None:
    batches = [(t[:, :-1], t[:, 1:]) for t in with_padding()]
    probe_answer = answer(task(TinyGPT(), scores, batches, config={"pad_id": 0}), "A3.4")
    assert probe_answer.outcome == "supervised"
    assert "padding predicted from padding (id 0)" in probe_answer.message
    assert outcome_of(task(TinyGPT(), scores, batches), "A3.4") == ("note", "constant-tails")


def test_padding_on_the_left_that_counts() -> None:
    batches = [(t.flip(1)[:, :-1], t.flip(1)[:, 1:]) for t in with_padding()]
    assert answer(task(TinyGPT(), scores, batches, config={"pad_id": 0}), "A3.4").outcome == "supervised"


class Padding:
    """A tokenizer whose padding is its end of text."""

    pad_token_id = eos_token_id = 1

    def __init__(self, size: int = VOCAB) -> None:
        self.size = size

    def get_vocab(self) -> dict[str, int]:
        return {f"t{token}": token for token in range(self.size)}


def test_ends_that_are_masked_with_the_padding() -> None:
    batches = with_padding(eos=1, pad=1)

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        y = t[:, 1:].masked_fill(t[:, 1:] == 1, -100)
        return functional.cross_entropy(model(t[:, :-1]).flatten(0, 1), y.flatten())

    probe_answer = answer(task(TinyGPT(), loss_fn, batches, tokenizer=Padding()), "A3.5")
    assert probe_answer.outcome == "never-asked"
    assert "masking the padding also masks the ends" in probe_answer.message


def test_ends_that_are_learned_and_ends_of_prompts() -> None:
    batches = with_padding()

    def loss_fn(model: nn.Module, t: Tensor) -> Tensor:
        return functional.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten(), ignore_index=0)

    assert outcome_of(task(TinyGPT(), loss_fn, batches, config={"eos_id": 1}), "A3.5") == ("pass", "pass")

    def answers_only(model: nn.Module, t: Tensor) -> Tensor:
        """Everything up to the end of the prompt is masked; the answers are cut off before their end."""
        y = t[:, 1:].clone()
        y[:, :6] = -100
        return functional.cross_entropy(model(t[:, :-1]).flatten(0, 1), y.flatten())

    prompts = texts()
    for t in prompts:
        t[:, 5] = 1
    made = task(TinyGPT(), answers_only, prompts, config={"eos_id": 1})
    assert outcome_of(made, "A3.5") == ("not-applicable", "not-applicable")


# -- A3.6 -------------------------------------------------------------------------------------------


def test_data_sorted_by_class() -> None:
    x, y = torch.randn(320, 10), torch.arange(320) // 80
    probe_answer = answer(task(mlp(), classify, DataLoader(TensorDataset(x, y), 16)), "A3.6")
    assert probe_answer.outcome == "sorted"
    assert "The 320 labels form 4 runs for 4 classes" in probe_answer.message
    shuffled = DataLoader(TensorDataset(x, y), 16, shuffle=True)
    assert outcome_of(task(mlp(), classify, shuffled), "A3.6") == ("pass", "pass")


def test_batches_of_few_classes_on_purpose_are_at_most_a_note() -> None:
    batches = [(torch.randn(8, 10), torch.tensor([a] * 4 + [b] * 4)) for a, b in ((0, 1), (2, 3), (1, 2), (3, 0)) * 4]
    assert outcome_of(task(mlp(), classify, batches), "A3.6") == ("note", "uneven")
    alternating = [(torch.randn(8, 10), torch.full((8,), index % 2)) for index in range(16)]
    assert outcome_of(task(mlp(), classify, alternating), "A3.6")[0] != "fault"


@settings(max_examples=40)
@given(st.integers(2, 12), st.integers(2, 32), st.integers(4, 24), st.floats(0.05, 20), st.integers(0, 2**31))
def test_shuffled_classes_are_never_called_sorted(kinds: int, rows: int, count: int, even: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    drawn = generator.choice(kinds, (count, rows), p=generator.dirichlet(np.full(kinds, even)))
    batches = [(torch.randn(rows, 10), torch.from_numpy(labels)) for labels in drawn]
    assert answer(task(mlp(12), classify, batches), "A3.6").kind != "fault"


# -- P1.7 and C4.2 ----------------------------------------------------------------------------------


class Apart:
    """Shuffles inputs and labels, each with a permutation of its own."""

    def __init__(self, joined: bool = False) -> None:
        self.x, self.joined = torch.randn(128, 10), joined
        self.y = self.x[:, :4].argmax(1)

    def __iter__(self) -> Any:
        order = torch.randperm(128)
        labels = order if self.joined else torch.randperm(128)
        yield from zip(self.x[order].split(16), self.y[labels].split(16), strict=True)


def test_labels_shuffled_apart_from_their_inputs() -> None:
    probe_answer = answer(task(mlp(), classify, Apart()), "P1.7")
    assert probe_answer.outcome == "labels-change"
    assert "of 128 bit-identical inputs have another class in a second pass" in probe_answer.message
    assert outcome_of(task(mlp(), classify, Apart(joined=True)), "P1.7") == ("pass", "pass")


def test_the_answer_of_one_annotator_each_time_is_healthy() -> None:
    class Asked(Apart):
        def __iter__(self) -> Any:
            other = torch.rand(128) < 0.4
            labels = torch.where(other, (self.y + 1) % 4, self.y)
            yield from zip(self.x.split(16), labels.split(16), strict=True)

    assert answer(task(mlp(), classify, Asked()), "P1.7").kind != "fault"


def test_chance_in_a_small_world_is_no_contradiction() -> None:
    class Coin:
        def __iter__(self) -> Any:
            for _ in range(8):
                x = torch.randint(0, 2, (16, 10)).float() * torch.tensor([1.0, 1.0] + [0.0] * 8)
                yield x, torch.randint(0, 4, (16,))

    assert answer(task(mlp(), classify, Coin()), "P1.7").kind != "fault"


def test_many_duplicates_are_a_note_and_a_repeated_list_is_not() -> None:
    x = torch.randn(4, 10).repeat(4, 1)
    batches = [(x[torch.randperm(16)], torch.zeros(16, dtype=torch.long)) for _ in range(6)]
    assert outcome_of(task(mlp(), classify, batches), "P1.7") == ("note", "duplicates")
    assert outcome_of(task(mlp(), classify, points(2) * 4), "P1.7") == ("pass", "pass")


def test_validation_that_is_trained_on() -> None:
    batches = points(8)
    probe_answer = answer(task(mlp(), classify, batches, val_loader=[*batches[:2], *points(2)]), "C4.2")
    assert probe_answer.outcome == "leak"
    assert "32 of 64 validation examples (50%)" in probe_answer.message
    assert outcome_of(task(mlp(), classify, batches, val_loader=points(4)), "C4.2") == ("pass", "pass")
    few = [*points(8), (torch.cat([batches[0][0][:1], torch.randn(15, 10)]), batches[0][1])]
    assert outcome_of(task(mlp(), classify, batches, val_loader=few), "C4.2")[0] != "fault"
    assert outcome_of(task(mlp(), classify, batches), "C4.2")[0] == "cannot-tell"


# -- P1.9 -------------------------------------------------------------------------------------------


def test_a_tokenizer_larger_than_the_table() -> None:
    probe_answer = answer(task(TinyGPT(), scores, shifted(), tokenizer=Padding(VOCAB + 2)), "P1.9")
    assert probe_answer.outcome == "larger-than-the-table"
    assert "largest id is 33 ('t33'), but tokens.weight has 32 rows" in probe_answer.message
    assert outcome_of(task(TinyGPT(), scores, shifted(), tokenizer=Padding(VOCAB - 5)), "P1.9") == ("pass", "pass")
    assert outcome_of(task(TinyGPT(), scores, shifted(), tokenizer=object()), "P1.9")[0] == "cannot-tell"


def test_another_tokenizer_than_in_the_run_that_is_continued(tmp_path: Path) -> None:
    made = task(TinyGPT(), scores, shifted(), tokenizer=Padding(VOCAB))
    with steadyrun.record(tmp_path / "run") as recorded:
        recorded.watch(made.model, made.optimizer, tokenizer=Padding(VOCAB))
    assert answer(made, "P1.9", resumed=tmp_path / "run").kind == "pass"
    manifest = tmp_path / "run" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["tokenizer"]["fingerprint"] = re.sub(".", "0", content["tokenizer"]["fingerprint"])
    manifest.write_text(json.dumps(content))
    probe_answer = answer(made, "P1.9", resumed=tmp_path / "run")
    assert probe_answer.outcome == "another-tokenizer"
    assert "00000000" in probe_answer.message


def test_texts_in_columns() -> None:
    same = [(t.t(), t.t()) for t in texts()]
    assert answer(task(Recurrent(), scores, same, config={"causal": True}), "A3.3").outcome == "not-shifted"
    padded = [(t[:, :-1].t(), t[:, 1:].t()) for t in with_padding()]
    assert answer(task(Recurrent(), scores, padded, config={"pad_id": 0}), "A3.4").outcome == "supervised"


def test_an_empty_list_is_the_same_as_no_validation() -> None:
    assert (
        answer(task(mlp(), classify, points(3), val_loader=[]), "C4.2").kind
        == answer(task(mlp(), classify, points(3)), "C4.2").kind
    )
