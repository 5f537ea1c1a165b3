"""Loaders whose workers are clones, samplers that repeat themselves, validation that is augmented; and healthy ones."""

import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
from programs_data import classify, mlp, points, task
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, Subset, TensorDataset

import steadyrun
from steadyrun.questions.form import Answer
from steadyrun.report.preflight import run


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def answer(made: steadyrun.Task, code: str) -> Answer:
    return run(made, only=[code]).walk.path[0].answer


def outcome_of(made: steadyrun.Task, code: str) -> tuple[str, str]:
    probe_answer = answer(made, code)
    return probe_answer.kind, probe_answer.outcome


class Noisy(Dataset[Any]):
    """Items with noise on them, from one of several generators."""

    def __init__(self, source: str = "torch", count: int = 64, transform: Any = None) -> None:
        self.x, self.source, self.transform = torch.randn(count, 10), source, transform
        self.y = self.x[:, :4].argmax(1)
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + self._noise(), self.y[index]

    def _noise(self) -> Any:
        if self.transform is not None:
            return self.transform()
        draws = {
            "torch": lambda: torch.randn(10),
            "numpy": lambda: torch.tensor(np.random.randn(10), dtype=torch.float32),
            "own": lambda: torch.tensor(self.own.normal(size=10), dtype=torch.float32),
            "coin": lambda: float(self.own.integers(2)),
            "none": lambda: 0.0,
        }
        return draws[self.source]()


def fixed_seed(_worker: int) -> None:
    np.random.seed(0)


def seed_of_worker(worker: int) -> None:
    np.random.seed(worker)


def reseed_the_dataset(_worker: int) -> None:
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.own = np.random.default_rng(info.seed)


def loading(dataset: Any, workers: int = 2, **more: Any) -> steadyrun.Task:
    return task(mlp(), classify, DataLoader(dataset, 8, num_workers=workers, **more))


# -- P2.1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "seeding"), [("own", None), ("coin", None), ("numpy", fixed_seed)], ids=["own", "coin", "fixed-seed"]
)
def test_workers_that_are_clones(source: str, seeding: Any) -> None:
    made = loading(Noisy(source), worker_init_fn=seeding)
    probe_answer = answer(made, "P2.1")
    assert probe_answer.outcome == "clones"
    assert "the second exactly the same" in probe_answer.message
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("source", ["torch", "numpy"])
def test_workers_that_draw_for_themselves(source: str) -> None:
    dataset = Noisy(source)
    assert outcome_of(loading(dataset), "P2.1") == ("pass", "pass")
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    assert outcome_of(loading(dataset, shuffle=True, generator=generator), "P2.1") == ("pass", "pass")
    assert torch.equal(generator.get_state(), before)


def test_a_generator_that_worker_init_fn_seeds_is_healthy() -> None:
    assert outcome_of(loading(Noisy("own"), worker_init_fn=reseed_the_dataset), "P2.1") == ("pass", "pass")


def test_draws_that_begin_anew_with_every_epoch_are_a_note() -> None:
    assert outcome_of(loading(Noisy("numpy"), worker_init_fn=seed_of_worker), "P2.1") == (
        "note",
        "every-epoch-the-same",
    )


class Lines(IterableDataset[Any]):
    """A stream, shared out among the workers or not."""

    def __init__(self, shared_out: bool) -> None:
        self.x, self.shared_out = torch.randn(64, 10), shared_out

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        step = info.num_workers if info is not None and self.shared_out else 1
        start = info.id if info is not None and self.shared_out else 0
        for x in self.x[start::step]:
            yield x, x[:4].argmax()


def test_a_stream_that_every_worker_gives_whole() -> None:
    probe_answer = answer(loading(Lines(shared_out=False)), "P2.1")
    assert probe_answer.outcome == "whole-stream"
    assert "In 8 of 8 rounds the 2 workers yield the same batch" in probe_answer.message
    assert outcome_of(loading(Lines(shared_out=True)), "P2.1") == ("pass", "pass")
    assert outcome_of(loading(Lines(shared_out=False), workers=0), "P2.1")[0] == "not-applicable"


def test_loaders_of_which_it_is_not_asked() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from zip(torch.randn(32, 10), torch.randint(0, 4, (32,)), strict=True)

    assert outcome_of(loading(Noisy("none")), "P2.1")[0] == "not-applicable"
    assert outcome_of(loading(Noisy("own"), workers=0), "P2.1")[0] == "not-applicable"
    assert outcome_of(loading(Stream()), "P2.1") == ("pass", "pass")
    assert outcome_of(task(mlp(), classify, points()), "P2.1")[0] == "not-applicable"


def test_an_item_that_raises_in_a_worker() -> None:
    class Broken(Noisy):
        fetched: tuple[int, ...] = ()

        def __getitem__(self, index: int) -> Any:
            if index in self.fetched:
                raise OSError("gone")
            self.fetched += (index,)
            return super().__getitem__(index)

    made = loading(Broken())
    assert outcome_of(made, "P2.1")[0] == "cannot-tell"
    assert not multiprocessing.active_children()


# -- A5.1 -------------------------------------------------------------------------------------------


class ShuffledOnce(Sampler[int]):
    """Seeds its generator at the start of every epoch."""

    def __init__(self, count: int) -> None:
        self.count, self.shuffle = count, True

    def __iter__(self) -> Any:
        yield from torch.randperm(self.count, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return self.count


class OwnGenerator(ShuffledOnce):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.generator = np.random.default_rng(0)

    def __iter__(self) -> Any:
        yield from self.generator.permutation(self.count).tolist()


class CountsItsEpochs(ShuffledOnce):
    """Knows that an epoch is over when it has been read to its end."""

    epoch_number = 0

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(self.epoch_number)
        yield from torch.randperm(self.count, generator=generator).tolist()
        self.epoch_number += 1


def test_the_same_order_in_every_epoch() -> None:
    probe_answer = answer(loading(Noisy("none"), 0, sampler=ShuffledOnce(64)), "A5.1")
    assert probe_answer.outcome == "not-reshuffled"
    assert "all 64 indices agree" in probe_answer.message


def test_another_order_in_every_epoch() -> None:
    data = Noisy("none")
    own = OwnGenerator(64)
    before = own.generator.bit_generator.state
    seeded = torch.Generator().manual_seed(1)
    for more in (
        {"shuffle": True},
        {"sampler": RandomSampler(data, generator=seeded)},
        {"sampler": own},
        {"sampler": CountsItsEpochs(64)},
        {"sampler": torch.utils.data.WeightedRandomSampler(torch.ones(64), 64)},
    ):
        assert outcome_of(loading(data, 0, **more), "A5.1") == ("pass", "pass")
    assert own.generator.bit_generator.state == before
    assert torch.equal(seeded.get_state(), torch.Generator().manual_seed(1).get_state())
    assert outcome_of(loading(data, 0), "A5.1")[0] == "not-applicable"


def test_a_sampler_that_waits_for_the_loop() -> None:
    data = Noisy("none")
    sampler: Any = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
    assert outcome_of(loading(data, 0, sampler=sampler), "A5.1") == ("note", "waits-for-set-epoch")
    assert sampler.epoch == 0


# -- A5.3 -------------------------------------------------------------------------------------------


def validated(training: Any, validation: Any, **more: Any) -> steadyrun.Task:
    return task(mlp(), classify, DataLoader(training, 8), val_loader=DataLoader(validation, 8, **more))


def noise() -> Any:
    return torch.randn(10)


def test_validation_that_is_augmented_as_training_is() -> None:
    whole = Noisy("torch")
    probe_answer = answer(validated(Subset(whole, range(32)), Subset(whole, range(32, 64))), "A5.3")
    assert probe_answer.outcome == "changed"
    assert "share one dataset" in probe_answer.message
    probe_answer = answer(validated(Noisy(transform=noise), Noisy(transform=noise)), "A5.3")
    assert (probe_answer.kind, probe_answer.outcome) == ("fault", "changed")


def test_validation_that_draws_in_its_own_way_is_a_note() -> None:
    assert outcome_of(validated(Noisy("none"), Noisy("torch")), "A5.3") == ("note", "content-differs")
    assert outcome_of(validated(Noisy("none"), Noisy("none"), shuffle=True), "A5.3") == ("note", "drawn")


def test_noise_put_on_by_the_collator_is_no_shared_transform() -> None:
    def masking(items: Any) -> Any:
        x, y = torch.utils.data.default_collate(items)
        return x * (torch.rand_like(x) > 0.15), y

    whole = Noisy("none")
    made = validated(Subset(whole, range(32)), Subset(whole, range(32, 64)), collate_fn=masking)
    assert outcome_of(made, "A5.3") == ("note", "content-differs")


def test_validation_that_is_the_same() -> None:
    assert outcome_of(validated(Noisy("torch"), Noisy("none")), "A5.3") == ("pass", "pass")
    assert outcome_of(task(mlp(), classify, points(), val_loader=points()), "A5.3")[0] == "not-applicable"
    assert outcome_of(task(mlp(), classify, points(), val_loader=iter(points())), "A5.3")[0] == "cannot-tell"
    assert outcome_of(task(mlp(), classify, points()), "A5.3")[0] == "cannot-tell"


def test_generators_of_loaders_are_put_back() -> None:
    data = TensorDataset(torch.randn(64, 10), torch.randint(0, 4, (64,)))
    loader = DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(2))
    made = task(mlp(), classify, loader, val_loader=DataLoader(Noisy("own"), 8))
    own = made.val_loader.dataset.own  # type: ignore[union-attr]
    state, order = own.bit_generator.state, loader.generator.get_state()
    run(made)
    assert own.bit_generator.state == state
    assert torch.equal(loader.generator.get_state(), order)
