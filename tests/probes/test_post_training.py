"""Numbers of post-training: noise schedules, weights of terms, rows of tokens, frozen bases, lookups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun
from steadyrun.probes.loss_graph import read
from steadyrun.probes.noising import mixing
from steadyrun.probes.score_table import place
from steadyrun.probes.soft_targets import soft_targets
from steadyrun.probes.targets import alignment
from steadyrun.probes.token_rows import row_sizes

TIMES = 100
BETA = torch.linspace(1e-3, 0.08, TIMES)
BAR = (1 - BETA).cumprod(0)


def noisy(width: int, weights: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Data with noise at drawn times, the noise, and the times."""
    drawn = torch.Generator().manual_seed(0)
    times = torch.randint(TIMES, (256,), generator=drawn)
    data, noise = torch.randn(256, width, generator=drawn), torch.randn(256, width, generator=drawn)
    kept, added = (each[:, None] for each in weights(times))
    return kept * data + added * noise, noise, times


@pytest.mark.parametrize("width", [2, 64])
def test_noise_that_stays_weak_is_measured_with_few_values_too(width: int) -> None:
    whole = mixing(*noisy(width, lambda t: (BAR[t].sqrt(), (1 - BAR[t]).sqrt())))
    forgotten = mixing(*noisy(width, lambda t: ((1 - BETA[t]).sqrt(), BETA[t].sqrt())))
    assert whole is not None
    assert forgotten is not None
    assert float(whole[0]) > 0.8
    assert float(forgotten[0]) < 0.4


def test_weights_that_add_up_to_one_are_told_from_their_squares() -> None:
    roots = mixing(*noisy(64, lambda t: (BAR[t].sqrt(), (1 - BAR[t]).sqrt())))
    plain = mixing(*noisy(64, lambda t: (BAR[t], 1 - BAR[t])))
    assert roots is not None
    assert plain is not None
    assert float(roots[1]) < 0.1 < float(roots[2])
    assert float(plain[2]) < 0.1 < float(plain[1])


def test_only_inputs_of_the_shape_of_the_noise_are_compared() -> None:
    assert mixing(torch.randn(32, 8), torch.randn(32, 4), None) is None


def test_the_place_of_a_target_among_its_row() -> None:
    scores = torch.arange(16.0).repeat(16, 1)
    assert float(place(scores, torch.full((16,), 15)) or 0) == 1
    assert float(place(torch.zeros(16, 16), torch.arange(16)) or 0) == pytest.approx(0.5)
    assert place(torch.zeros(16, 3), torch.zeros(16, dtype=torch.long)) is None


TABLE = nn.Embedding(12, 8)
HEAD = nn.Linear(8, 12)


def picked(tokens: Tensor, scores: slice, ids: slice) -> Tensor:
    logits = HEAD(TABLE(tokens)).log_softmax(-1)
    return -logits[:, scores].gather(-1, tokens[:, ids, None]).mean()


@pytest.mark.parametrize(
    ("scores", "ids", "shares"),
    [
        (slice(2, -1), slice(3, None), (0, 1, 0)),
        (slice(3, None), slice(3, None), (1, 0, 0)),
        (slice(None, -1), slice(1, None), (0, 1, 0)),
        (slice(1, -2), slice(3, None), (0, 0, 1)),
    ],
)
def test_labels_that_are_picked_by_hand_are_aligned_with_the_tokens(scores: slice, ids: slice, shares: Any) -> None:
    tokens = (torch.arange(8)[:, None] + torch.arange(9)) % 12
    found = alignment(read(picked(tokens, scores, ids)))
    assert found is not None
    assert tuple(found.tolist()) == shares


def test_a_weight_of_both_signs_shows_its_negative_part() -> None:
    model = nn.Linear(4, 1)
    output = model(torch.randn(10, 4))[:, 0]
    weights = torch.tensor([1.0] * 8 + [-1.0] * 2)
    loss = ((output - torch.randn(10)) ** 2 * weights).mean()
    graph = read(loss, [output])
    loss.backward()
    total, against = graph.compared[0].weight
    assert torch.isnan(total)
    assert float(against) == pytest.approx(0.2)


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_the_weight_of_a_divergence_is_that_in_the_loss(weight: float) -> None:
    scores, teacher = nn.Linear(4, 5)(torch.randn(6, 4)), torch.randn(6, 5)
    divergence = functional.kl_div(scores.log_softmax(1), teacher.softmax(1), reduction="batchmean")
    loss = weight * divergence + scores.square().mean()
    graph = read(loss)
    loss.backward()
    assert graph.divergence is not None
    assert (float(graph.divergence_weight[0]) == 0) == (weight == 0)
    assert soft_targets([]) is None


class Adapted(nn.Module):
    """Tables of tokens beside a layer with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(40, 8), nn.Linear(8, 40, bias=False)
        self.requires_grad_(False)
        self.lora_A, self.lora_B = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.zeros(8, 2))
        with torch.no_grad():
            self.embed.weight[7], self.head.weight[7] = 0.01, 0.01

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.embed(ids)
        return self.head(hidden + hidden @ self.lora_A.T @ self.lora_B.T)  # type: ignore[no-any-return]


def test_rows_of_untrained_tokens_are_small_if_the_tables_are_frozen() -> None:
    model = Adapted()
    sizes = row_sizes(model)
    assert sizes is not None
    assert int(np.argmin(sizes)) == 7
    assert sizes[7] < 0.4
    model.head.requires_grad_(True)
    assert row_sizes(model) is None
    assert row_sizes(nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 40))) is None  # no adapter


def train(folder: Path, *, merges: bool) -> steadyrun.Report:
    torch.manual_seed(0)
    model = Adapted()
    optimizer = torch.optim.AdamW([model.lora_A, model.lora_B], lr=1e-2)
    config = {"init": "pretrained", "eos_id": 1}
    with steadyrun.record(folder, config=config, every={"blocks": 10}) as run:
        run.watch(model, optimizer, tokenizer=None)
        for step in range(60):
            ids = torch.randint(2, 40, (8, 6), generator=torch.Generator().manual_seed(step))
            ids[:, 3] = 7
            loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if merges and step % 20 == 19:
                with torch.no_grad():
                    model.embed.weight += model.embed.weight @ model.lora_A.T @ model.lora_B.T
            run.step(loss, batch={"input_ids": ids, "labels": ids})
    return steadyrun.check(folder)


@pytest.mark.parametrize("merges", [False, True])
def test_a_base_that_adapters_are_merged_into_moves(tmp_path: Path, merges: bool) -> None:
    found = {asked.question.code: asked.answer.outcome for asked in train(tmp_path / "run", merges=merges).walk.path}
    assert found["L1.4"] == ("moves" if merges else "frozen")
    assert found["L1.1"] == "new-words"


class Timed(nn.Module):
    """A denoiser with a table of times."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__()
        self.forgets = forgets
        self.time, self.body = nn.Embedding(TIMES, 8), nn.Linear(24, 16)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        hidden: Tensor = self.body(torch.cat([x, self.time(t * 0 if self.forgets else t)], dim=1))
        return hidden


@pytest.mark.parametrize("forgets", [False, True])
def test_a_table_of_which_one_row_is_used_is_noticed(tmp_path: Path, forgets: bool) -> None:
    torch.manual_seed(0)
    model = Timed(forgets=forgets)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    config = {"prediction_type": "epsilon"}
    with steadyrun.record(tmp_path / "run", config=config, every={"objective": 5}) as run:
        run.watch(model, optimizer)
        for _ in range(40):
            times = torch.randint(TIMES, (64,))
            data, noise = torch.randn(64, 16), torch.randn(64, 16)
            kept, added = BAR[times].sqrt()[:, None], (1 - BAR[times]).sqrt()[:, None]
            loss = functional.mse_loss(model(kept * data + added * noise, times), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss)
    found = {asked.question.code: asked.answer.outcome for asked in steadyrun.check(tmp_path / "run").walk.path}
    assert found["A4.3"] == ("one-row" if forgets else "pass")
    assert found["G3.5"] == "noise"
