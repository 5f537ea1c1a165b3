"""What is read off the graph of a loss, for losses as people write them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from steadyrun.probes.comparisons import Compared
from steadyrun.probes.fit import FitProbe
from steadyrun.probes.gradient_reach import hidden_tensors
from steadyrun.probes.loss_graph import Labels, LossGraph, read
from steadyrun.probes.targets import alignment, alike, class_counts, contrasts, ends, entropy, padding_supervised

torch.manual_seed(0)
X, Y, T = torch.randn(6, 8), torch.randint(0, 10, (6,)), torch.randn(6)
WIDE, ONE = nn.Linear(8, 10), nn.Linear(8, 1)


def test_a_cross_entropy_shows_its_targets() -> None:
    graph = read(functional.cross_entropy(WIDE(X), Y, ignore_index=3, reduction="sum"))
    labels = graph.labels[0]
    assert torch.equal(labels.targets, Y)
    assert (labels.classes, labels.ignore_index, labels.reduction, labels.smoothing) == (10, 3, "sum", 0.0)
    assert {id(leaf) for leaf in graph.leaves} == {id(held) for held in WIDE.parameters()}
    assert not graph.squashed
    assert graph.broadcast is None


def test_one_over_pixels_keeps_their_shape() -> None:
    scores = nn.Conv2d(3, 5, 1)(torch.randn(2, 3, 4, 4))
    targets = torch.randint(0, 5, (2, 4, 4))
    assert torch.equal(read(functional.cross_entropy(scores, targets)).labels[0].targets, targets)


@pytest.mark.parametrize("smoothing", [0.05, 0.3, 0.9])
def test_label_smoothing_is_read_back(smoothing: float) -> None:
    loss = functional.cross_entropy(WIDE(X), Y, label_smoothing=smoothing)
    assert read(loss).labels[0].smoothing == pytest.approx(smoothing, abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "squashed"),
    [
        (lambda: functional.cross_entropy(WIDE(X).softmax(-1), Y), "softmax"),
        (lambda: functional.cross_entropy(WIDE(X).softmax(-1)[:, :8].reshape(6, 8), Y % 8), "softmax"),
        (lambda: -WIDE(X).softmax(-1).log_softmax(-1)[range(6), Y].mean(), "softmax"),
        (lambda: functional.cross_entropy(WIDE(X).log_softmax(-1).exp(), Y), "softmax"),
        (lambda: functional.cross_entropy(WIDE(X).exp(), Y), ""),
        (lambda: functional.binary_cross_entropy_with_logits(ONE(X).sigmoid()[:, 0], (T > 0).float()), "sigmoid"),
        (lambda: functional.cross_entropy(WIDE(X).log_softmax(-1), Y), ""),
        (lambda: functional.cross_entropy(WIDE(X).softmax(-1) @ torch.randn(10, 10), Y), ""),
        (lambda: functional.binary_cross_entropy(ONE(X).sigmoid()[:, 0], (T > 0).float()), ""),
        (lambda: functional.nll_loss(WIDE(X).log_softmax(-1), Y), ""),
    ],
)
def test_scores_that_are_squashed_twice(loss: object, squashed: str) -> None:
    assert read(loss()).squashed == squashed  # type: ignore[operator]


def test_probabilities_in_the_place_of_their_logarithms() -> None:
    assert read(functional.nll_loss(WIDE(X).softmax(-1), Y)).probabilities
    assert not read(functional.nll_loss(WIDE(X).log_softmax(-1), Y)).probabilities


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda: functional.mse_loss(ONE(X), T), True),
        (lambda: functional.smooth_l1_loss(ONE(X), T), True),
        (lambda: ((ONE(X) - T) ** 2).mean(), True),
        (lambda: (T - ONE(X)).abs().mean(), True),
        (lambda: functional.mse_loss(ONE(X)[:, 0], T), False),
        (lambda: ((ONE(X) - T[:, None]) ** 2).mean(), False),
        (lambda: ((ONE(X) - ONE(X).T) ** 2).mean(), False),  # all pairs, on purpose
        (lambda: ((WIDE(X) - 1) ** 2).mean(), False),
    ],
)
def test_predictions_broadcast_over_targets(loss: object, found: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (read(loss()).broadcast is not None) is found  # type: ignore[operator]


def test_a_compiled_part_is_opaque() -> None:
    class CompiledFunction(torch.autograd.Function):  # as torch.compile names what it makes
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, *grads: Tensor) -> Tensor:
            return grads[0] * 2

    assert read(WIDE(X).sum()).complete
    assert not read(CompiledFunction.apply(WIDE(X)).sum()).complete


def test_layers_in_lists_and_dictionaries_are_found() -> None:
    model = nn.Module()
    model.kept = nn.Linear(2, 2)
    model.several = [nn.Linear(2, 2), {"deep": nn.Linear(2, 1)}]
    model.tensor = torch.zeros(3, requires_grad=True)
    model.buffer = torch.zeros(3)
    names = {name for name, _ in hidden_tensors(model).values()}
    assert names == {
        "several[0].weight", "several[0].bias", "several[1]['deep'].weight", "several[1]['deep'].bias", "tensor"
    }  # fmt: skip


def test_tokens_and_targets_side_by_side() -> None:
    table, ids = nn.Embedding(20, 10), torch.randint(0, 20, (3, 9))
    scores = nn.Linear(10, 20)(table(ids))
    graph = read(functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    found = alignment(graph)
    assert found is not None
    assert found[1] == 1
    assert torch.all(found[[0, 2]] < 0.5)


ROWS = st.integers(2, 5)
TOKENS = st.integers(0, 5)


@settings(max_examples=60)
@given(st.data(), ROWS, st.integers(4, 9))
def test_alignment_is_what_a_loop_counts(data: st.DataObject, rows: int, width: int) -> None:
    draw = lambda count: data.draw(st.lists(TOKENS, min_size=count, max_size=count))  # noqa: E731
    ids = torch.tensor(draw(rows * width)).reshape(rows, width)
    targets = torch.tensor(draw(rows * width)).reshape(rows, width)
    graph = LossGraph(labels=[Labels(targets.flatten(), 6, 0, "mean")], tokens=[ids])
    found = alignment(graph)
    assert found is not None
    for offset in range(3):
        pairs = [
            (int(targets[r, t]), int(ids[r, t + offset]))
            for r in range(rows)
            for t in range(width - offset)
            if int(targets[r, t]) != 0
        ]
        share = sum(one == two for one, two in pairs) / max(1, len(pairs))
        assert float(found[offset]) == pytest.approx(share, abs=1e-6)


@settings(max_examples=60)
@given(st.lists(TOKENS, min_size=2, max_size=12))
def test_how_alike_two_targets_are_is_what_pairs_say(here: list[int]) -> None:
    counts = class_counts(Labels(torch.tensor(here), 6, -100, "mean"))
    assert counts is not None
    pairs = [(a, b) for i, a in enumerate(here) for j, b in enumerate(here) if i != j]
    assert float(alike(counts)) == pytest.approx(sum(a == b for a, b in pairs) / len(pairs), abs=1e-6)


def test_entropy_is_the_loss_of_guessing() -> None:
    counts = torch.tensor([3.0, 1.0, 0.0])
    shares = np.array([0.75, 0.25])
    assert float(entropy(counts)) == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-6)


def test_padding_and_ends_are_counted() -> None:
    ids = torch.tensor([[1, 2, 9, 0, 0], [3, 9, 0, 0, 0]])
    targets = torch.tensor([[2, 9, 0, 0, -100], [9, 0, 0, 0, -100]])
    labels = Labels(targets.flatten(), 10, -100, "mean")
    share = padding_supervised(labels, ids, 0)
    assert share is not None
    assert float(share) == pytest.approx(3 / 8)
    assert ends(labels, ids, 9).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("loss_fn", "kind"),
    [
        (functional.mse_loss, "squared"),
        (lambda p, t: ((p - t) ** 2).mean(), "squared"),
        (lambda p, t: (t - p).square().sum(), "squared"),
        (lambda p, t: 3 * (p - t).abs().mean() + p.square().mean(), "absolute"),
        (functional.smooth_l1_loss, "absolute"),
        (lambda p, t: functional.binary_cross_entropy(p.sigmoid(), t), "binary"),
        (functional.binary_cross_entropy_with_logits, "logits"),
    ],
)
def test_predictions_and_targets_are_read_back(loss_fn: Callable[..., Tensor], kind: str) -> None:
    layer, targets = nn.Linear(3, 2), torch.rand(5, 2)
    predictions = layer(torch.randn(5, 3))
    found = read(loss_fn(predictions, targets), [predictions]).compared
    assert found[0].kind == kind
    torch.testing.assert_close(found[0].targets, targets)
    expected = predictions.sigmoid() if kind == "binary" else predictions
    torch.testing.assert_close(found[0].predictions, expected.detach())


def test_what_both_sides_learn_is_no_target() -> None:
    first, second = nn.Linear(3, 2)(torch.randn(5, 3)), nn.Linear(3, 2)(torch.randn(5, 3))
    assert not read((first - second).square().mean(), [first, second]).compared
    assert not read(first.pow(3).mean(), [first]).compared


def test_a_fit_is_measured_against_the_mean_of_all_targets() -> None:
    probe, batches = FitProbe(), [torch.randn(6, 4) for _ in range(3)]
    for index, targets in enumerate(batches):
        measured = probe.measure([Compared("squared", torch.zeros(6, 4), targets)])["squared"]
        mean = torch.cat(batches[: index + 1]).mean(0)
        torch.testing.assert_close(measured[0], targets.square().mean())
        torch.testing.assert_close(measured[1], (targets - mean).square().mean())
    residual = probe.measure([Compared("absolute", torch.ones(6, 4), torch.zeros(6, 4))])["absolute"]
    assert residual.isnan().all()
    longer = probe.measure([Compared("squared", torch.zeros(2, 7), torch.ones(2, 7))])["squared"]
    assert torch.isfinite(longer).all()


def _pinball(error: Tensor) -> Tensor:
    """A quantile loss: errors above and below weigh differently."""
    levels = torch.linspace(0.1, 0.9, 6)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


@pytest.mark.parametrize(
    ("loss_fn", "found"),
    [
        (lambda chances, weights: -(weights * chances).mean(), True),
        (lambda chances, weights: 0.5 * torch.maximum(-weights * chances.exp(), -weights * chances.exp()).mean(), True),
        (lambda chances, weights: torch.stack([-c * w for c, w in zip(chances, weights, strict=True)]).sum(), True),
        (lambda chances, weights: -(weights.abs() * chances).mean(), False),
        (lambda chances, weights: -(weights.sign() * chances).mean(), False),
        (lambda chances, weights: -chances.mean() + weights.mean(), False),
        (lambda chances, weights: _pinball(weights - chances), False),
    ],
)
def test_advantages_have_both_signs(loss_fn: Callable[..., Tensor], found: bool) -> None:
    scores, actions = nn.Linear(3, 4)(torch.randn(6, 3)), torch.tensor([0, 1, 2, 3, 0, 1])
    chances = torch.distributions.Categorical(logits=scores).log_prob(actions)
    assert read(loss_fn(chances, torch.tensor([1.0, -2.0, 0.5, -0.1, 3.0, -1.0]))).advantages is found


def test_a_contrast_is_recognised() -> None:
    scores = nn.Linear(3, 6)(torch.randn(6, 3))
    assert contrasts(read(functional.cross_entropy(scores, torch.arange(6))).labels[0])
    assert contrasts(read(functional.cross_entropy(scores[:, :5], torch.zeros(6, dtype=torch.long))).labels[0])
    assert not contrasts(read(functional.cross_entropy(scores, torch.tensor([0, 1, 2, 3, 4, 4]))).labels[0])
