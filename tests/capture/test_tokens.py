"""What was in the batch of an incident."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from incident_programs import rnn

import steadyrun
from steadyrun.capture.batch_tokens import TokenCounts, describe, poisson_tail
from steadyrun.program.packing import pack
from steadyrun.replay.incident import choose
from steadyrun.replay.window import TokenLosses


class Words:
    """A tokenizer as transformers has them: a length, and decode."""

    def __len__(self) -> int:
        return 41

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{token}" for token in ids)


def test_a_token_never_seen_before_is_named(tmp_path: Path) -> None:
    def spoil(step: int, part: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tokens = part["tokens"] % 20  # half of the vocabulary, until …
        if step == 120:
            tokens = tokens.clone()
            tokens[:, 3:6] = 33
        return {"tokens": tokens, "targets": tokens}

    loop = rnn(spoil=spoil, watch={"tokenizer": Words()})
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        original(run, step)
        if step == 120:
            run.incident("odd")

    loop.one = one  # type: ignore[method-assign]
    facts = choose(loop.run(tmp_path / "run", 125), 120).batch_facts
    (first, *others) = facts["unusual_tokens"]
    assert (first["text"], first["in_batch"], first["before"]) == ("w33", 18, 0)
    assert not others
    assert "w33 w33 w33" in facts["text"][0]
    assert facts["batch_index"] == 120


def test_counts_leave_out_what_is_no_token() -> None:
    counts = TokenCounts(Words())
    counts.add(pack(torch.tensor([[1, 1, -100, 40, 99]])))
    assert counts.before()[1] == 2
    assert sum(counts.before()) == 3


def test_the_tokens_of_the_batch_itself_do_not_count_as_seen() -> None:
    counts = TokenCounts(Words())
    counts.add(pack(torch.full((4, 50), 2)))
    batch = torch.full((2, 5), 7)
    counts.add(pack(batch))
    described = describe(pack({"ids": batch}), counts, counts.before(), own=1)
    assert described["unusual_tokens"][0]["before"] == 0


@given(st.integers(0, 30), st.floats(0.01, 20))
def test_the_chance_of_so_many(count: int, expected: float) -> None:
    """Against the sum written out."""
    naive = 1 - sum(math.exp(-expected) * expected**k / math.factorial(k) for k in range(count))
    assert poisson_tail(count, expected) == pytest.approx(max(0.0, naive), abs=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_per_token_of_a_loss_that_is_reduced(reduction: str) -> None:
    logits, targets = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 1, 2, 3, 4, -100])
    with TokenLosses() as losses:
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction=reduction)
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    assert losses.losses() == expected.tolist()
    assert torch.equal(loss, torch.nn.functional.cross_entropy(logits, targets, reduction=reduction))


def test_losses_per_token_of_modules_and_others() -> None:
    x, y = torch.randn(4, 3), torch.rand(4, 3)
    with TokenLosses() as losses:
        torch.nn.BCEWithLogitsLoss(pos_weight=torch.ones(3))(x, y)
        torch.nn.functional.mse_loss(x, y)
    assert len(losses.losses() or []) == 24
    with TokenLosses() as nothing:
        (x - y).abs().mean()
    assert nothing.losses() is None


def test_given_losses_per_token_are_kept(tmp_path: Path) -> None:
    loop = rnn()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(loop.task.model, loop.task.optimizer, loss_fn=loop.task.loss_fn)
        run.step(1.0, batch=next(loop.batches), token_losses=[torch.arange(3.0), torch.ones(2, 2)])
        run.incident("look")
    assert choose(tmp_path / "run").batch_facts["token_losses"] == [0, 1, 2, 1, 1, 1, 1]
