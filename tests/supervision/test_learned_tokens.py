"""Which tokens are learned: counted on batches of a small chat format, by hand and by `steadyrun.look`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import steadyrun
from steadyrun.errors import UsageError
from steadyrun.program.supervision import SpecialTokens, learned_tokens, roles_of, token_batch
from steadyrun.report.learned_text import html_examples, learned_text

WORDS = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<|im_start|>",
    "user\n",
    "assistant\n",
    "<|im_end|>",
    *(f" w{n}" for n in range(40)),
]
PAD, EOS, BOS, START, USER, ASSISTANT, END = range(7)
IGNORED = -100


class Words:
    """A tokenizer of whole words."""

    pad_token_id, eos_token_id, bos_token_id = PAD, EOS, BOS

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [WORDS[each] for each in ids]


def chat(length: int = 5, *, end: int = EOS, start: tuple[int, ...] = (BOS,)) -> tuple[list[int], list[int]]:
    """Tokens of one exchange, and labels that mask the prompt."""
    prompt = [*start, START, USER, *range(10, 10 + length), END, START, ASSISTANT]
    answer = [*range(20, 20 + length), end]
    return prompt + answer, [IGNORED] * len(prompt) + answer


def batch(rows: list[tuple[list[int], list[int]]], width: int | None = None) -> dict[str, torch.Tensor]:
    most = width or max(len(ids) for ids, _ in rows)
    ids = [(ids + [PAD] * most)[:most] for ids, _ in rows]
    labels = [(labels + [IGNORED] * most)[:most] for _, labels in rows]
    mask = [([1] * len(ids) + [0] * most)[:most] for ids, _ in rows]
    return {
        "input_ids": torch.tensor(ids),
        "labels": torch.tensor(labels),
        "attention_mask": torch.tensor(mask),
    }


def findings(batches: list[Any], tokenizer: Any = None) -> dict[str, str]:
    looked = steadyrun.look(batches, tokenizer or Words())
    return {code: grade for code, grade, _, _ in looked.findings}


GOOD = [chat(3 + number % 4) for number in range(16)]


def test_answers_alone_are_learned() -> None:
    looked = steadyrun.look([batch(GOOD)], Words())
    assert looked.findings == ()
    assert looked.exit_code == 0
    assert looked.counts["roles"]["user"]["learned"] == 0
    assert looked.counts["ends"] == looked.counts["learned_ends"] == 16
    assert "assistant: 100%" not in looked.summary[0]
    first = str(looked).splitlines()[-3:]
    assert any("[[ w13" in line for line in str(looked).splitlines()), first
    assert "w13" in looked._repr_html_()


def flipped(row: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    ids, labels = row
    return ids, [token if label == IGNORED else IGNORED for token, label in zip(ids, labels, strict=True)]


def everything(row: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    return row[0], row[0]


def without_end(row: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    return row[0], [*row[1][:-1], IGNORED]


def nothing(row: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    return row[0], [IGNORED] * len(row[0])


@pytest.mark.parametrize(
    ("rows", "width", "code", "grade"),
    [
        ([flipped(row) for row in GOOD], None, "M1.1", "suspect"),
        ([nothing(row) for row in GOOD], None, "M1.1", "fault"),
        ([*GOOD[:10], *map(nothing, GOOD[10:])], None, "M1.1", "suspect"),
        ([everything(row) for row in GOOD], None, "M1.2", "note"),
        ([*GOOD[:8], *map(everything, GOOD[8:])], None, "M1.2", "suspect"),
        ([without_end(row) for row in GOOD], None, "M1.3", "suspect"),
        ([chat(5, end=29) for _ in range(16)], None, "M1.3", "suspect"),
        ([chat(5) for _ in range(16)], 11, "M1.3", "suspect"),
        ([chat(5, start=(BOS, BOS)) for _ in range(16)], None, "M1.4", "suspect"),
    ],
)
def test_what_is_wrong_is_found(rows: list[Any], width: int | None, code: str, grade: str) -> None:
    assert findings([batch(rows, width)]).get(code) == grade


def test_padding_that_is_learned() -> None:
    given = batch(GOOD)
    given["labels"] = torch.where(given["attention_mask"] == 0, given["input_ids"], given["labels"])
    given["labels"][given["attention_mask"] == 0] = PAD
    assert findings([given])["M1.3"] == "suspect"


def test_padding_that_is_also_the_end() -> None:
    class Same(Words):
        pad_token_id = EOS

    rows = [(ids, labels) for ids, labels in GOOD]
    given = batch(rows)
    ids = torch.where(given["attention_mask"] == 0, EOS, given["input_ids"])
    masked = torch.where(ids == EOS, IGNORED, given["labels"])  # the usual collator: every such id is padding
    assert findings([{"input_ids": ids, "labels": masked}], Same())["M1.3"] == "suspect"
    assert findings([{"input_ids": ids, "labels": given["labels"]}], Same()) == {}


def test_packed_texts() -> None:
    row = [*GOOD[0][0], *GOOD[1][0]]
    labels = [*GOOD[0][1], *GOOD[1][1]]
    positions = [*range(len(GOOD[0][0])), *range(len(GOOD[1][0]))]
    packed = {"input_ids": torch.tensor([row] * 8), "labels": torch.tensor([labels] * 8)}
    assert findings([packed])["M1.4"] == "suspect"
    mask = torch.ones(8, 1, len(row), len(row))
    assert findings([{**packed, "attention_mask": mask}]) == {}  # pairs of tokens that may see each other
    assert findings([{**packed, "position_ids": torch.tensor([positions] * 8)}]) == {}


def test_a_template_of_another_model() -> None:
    class Splits(Words):
        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return ["<|im_" if each == START else "start|>user\n" if each == USER else WORDS[each] for each in ids]

    assert findings([batch(GOOD)], Splits())["M1.4"] == "suspect"


def test_labels_may_be_the_next_tokens() -> None:
    ids = torch.randint(10, 40, (8, 12))
    looked = steadyrun.look([(ids[:, :-1], ids[:, 1:])])
    assert (looked.counts["tokens"], looked.counts["learned"]) == (8 * 12, 8 * 11)  # the last label is one more token
    rows = [chat(3) for _ in range(8)]
    whole, labels = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
    assert findings([(whole[:, :-1], labels[:, 1:])]) == {}


def test_a_tokenizer_without_a_text_is_an_error() -> None:
    with pytest.raises(steadyrun.UsageError, match="decode"):
        steadyrun.look([batch(GOOD)], object())


def test_other_batches_are_refused() -> None:
    with pytest.raises(steadyrun.UsageError, match="input_ids"):
        steadyrun.look([{"image": torch.zeros(2, 3)}])
    with pytest.raises(steadyrun.UsageError, match="no batch"):
        steadyrun.look([])


@given(st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=1, max_size=6), st.data())
def test_any_mask_is_counted_exactly(rows: list[list[int]], data: st.DataObject) -> None:
    ids = np.array(rows)
    mask = np.array(
        data.draw(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=len(rows), max_size=len(rows)))
    )
    learned = learned_tokens(ids, np.where(mask, ids, IGNORED))
    assert learned is not None
    assert np.array_equal(learned[:, 1:], mask[:, 1:])
    assert not learned[:, 0].any()


@given(st.lists(st.text(max_size=6), max_size=12))
def test_roles_never_raise(pieces: list[str]) -> None:
    assert len(roles_of(pieces)) == len(pieces)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_anything_else_is_not_a_batch(given: Any) -> None:
    assert token_batch(given, SpecialTokens()) is None


def test_a_run_records_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(len(WORDS), 16), torch.nn.Linear(16, len(WORDS)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    given = batch([flipped(row) for row in GOOD])
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, tokenizer=None, capture=False, monitor=False)
        for _ in range(4):
            logits = model(given["input_ids"])[:, :-1]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given["labels"][:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=given)
    facts = steadyrun.open_run(tmp_path / "run").manifest["supervision"]
    assert facts["examples"] == 64
    assert facts["roles"] == {}  # no tokenizer was given
    assert "shown" not in facts


@pytest.mark.parametrize("capture", [True, False])
def test_examples_are_shown_in_report_and_dashboard(tmp_path: Path, capture: bool) -> None:
    model = torch.nn.Embedding(len(WORDS), len(WORDS))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, tokenizer=Words(), capture=capture, monitor=False)
        for _ in range(2):
            given = batch(GOOD[:2])
            loss = torch.nn.functional.cross_entropy(model(given["input_ids"]).transpose(1, 2), given["labels"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=given)
    report = steadyrun.check(tmp_path / "run")
    steadyrun.dashboard(tmp_path / "run").save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    verbose = str(replace(report, verbose=True))
    learned = [[part.text for part in example if part.learned] for example in report.learned_text]
    assert learned == ([[" w13 w14 w15<eos>"], [" w13 w14 w15 w16<eos>"], [" w13 w14 w15<eos>"]] if capture else [])
    assert ("[[ w13 w14 w15<eos>]]" in verbose) is capture
    assert ('<span class="learned" title="assistant"> w13' in page) is capture
    assert ("what is learned of three examples" in report._repr_html_()) is capture
    assert "w13" not in str(report)  # in brief: the verdict


@pytest.mark.parametrize("shown", [7, [7], [[["text"]]], [[[1, 2, 3]]], [[["<b>x</b>" * 9999, True, "user"]] * 9] * 9])
def test_text_of_a_manifest_is_data(shown: object) -> None:
    examples = learned_text({"supervision": {"shown": shown}})
    assert len(examples) <= 3
    assert all(len(part.text) <= 4000 for example in examples for part in example)
    assert "<b>" not in html_examples(examples)


PROGRAM = """
import torch
from test_learned_tokens import GOOD, Words, batch, flipped

def batches():
    return [batch(GOOD)], Words()

def wrong():
    return [batch([flipped(row) for row in GOOD])], Words()

def number():
    return 7
"""


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "steadyrun", "look"]

    def run(*given: str) -> subprocess.CompletedProcess[str]:
        path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        return subprocess.run([*words, *given], capture_output=True, text=True, cwd=tmp_path, check=False, env=here)

    good = run("program.py:batches", "--html", "page.html")
    assert (good.returncode, good.stderr.strip()) == (0, "wrote page.html")
    assert "assistant:" in good.stdout
    assert "example 3" in good.stdout
    wrong = run("program.py:wrong", "--json")
    assert wrong.returncode == 4
    assert json.loads(wrong.stdout)["findings"][0]["code"] == "M1.1"
    assert run("program.py:number").returncode == 2


def test_look_reads_the_rows_of_a_tokenized_dataset() -> None:
    rows = [
        {"input_ids": [BOS, 10, 11, EOS][: 3 + n % 2], "labels": [-100, -100, 11, EOS][: 3 + n % 2]} for n in range(10)
    ]
    found = steadyrun.look(rows, Words())
    assert (found.counts["examples"], found.counts["batches"]) == (10, 2)
    assert (found.counts["learned"], found.counts["learned_ends"]) == (15, 5)


def test_look_says_that_batches_of_rewards_have_no_labels() -> None:
    with pytest.raises(UsageError, match="has no labels"):
        steadyrun.look([[{"prompt": "w1"}]], Words())


def test_texts_that_end_with_another_token_have_no_end() -> None:
    ids = torch.tensor([[START, USER, 10 + n, END, START, ASSISTANT, 11 + n, 12 + n, END] for n in range(16)])
    labels = ids.clone()
    labels[:, :6] = IGNORED
    look = steadyrun.look([{"input_ids": ids, "labels": labels}], Words())
    assert any(code == "M1.3" and "end with the same token" in message for code, _, message, _ in look.findings)
