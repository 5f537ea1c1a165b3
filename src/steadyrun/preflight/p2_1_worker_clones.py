"""P2.1: do the loader's workers draw different random numbers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.loader_trials import drawn_by_two_workers, streams, torch_loader

    if streams(bench.task.loader):
        return _one_stream(bench, bench.task.loader.num_workers, limit)  # type: ignore[union-attr]
    loader = torch_loader(bench.task.loader)
    if loader.num_workers < 2:
        raise NotApplicable(f"the loader has {counted(loader.num_workers, 'worker')}; two are needed to draw the same")
    count = int(limit["draws"])
    first, second = drawn_by_two_workers(loader, count)
    if first == second and len(set(first)) > 1 and _chance(first) > limit["chance"]:  # few variants: draw more often
        count *= 6
        first, second = drawn_by_two_workers(loader, count)
    if len(set(first)) < 2 and len(set(second)) < 2:
        raise NotApplicable(
            f"an item of the dataset is the same all {count} times: the dataset draws nothing at random"
        )
    measured = {"draws": float(count), "different": float(len(set(first)))}
    facts = f"Two workers each fetched one item {count} times. The first drew {counted(len(set(first)), 'variant')}"
    if first == second and _chance(first) <= limit["chance"]:
        return Finding("clones", f"{facts}, the second exactly the same.", measured)
    again = drawn_by_two_workers(loader, count)
    if not loader.persistent_workers and again == (first, second) and _chance(first) <= limit["chance"]:
        return Finding("every-epoch-the-same", f"{facts}; restarted workers draw the same again.", measured)
    return Finding("pass", f"{facts}, the second others.", measured)


def _one_stream(bench: Bench, workers: int, limit: Limits) -> Finding:
    """The finding for a stream: if each worker yields all of it, every batch comes once from each worker."""
    from steadyrun.preflight.labelled_examples import hashes

    if workers < 2:
        raise NotApplicable(
            f"the loader of the stream (IterableDataset) has {counted(workers, 'worker')}, so nothing is split"
        )
    digests = [batch.tobytes() for batch in hashes(bench.batches, None)]
    rounds = [digests[start : start + workers] for start in range(0, len(digests) - workers + 1, workers)]
    if len(rounds) < limit["rounds"]:
        raise NotApplicable(f"{len(digests)} batches of {workers} workers are too few to compare")
    same = sum(len(set(batches)) == 1 for batches in rounds)
    different = len({batches[0] for batches in rounds})
    measured = {"rounds": float(len(rounds)), "same": float(same)}
    facts = f"In {same} of {len(rounds)} rounds the {workers} workers yield the same batch"
    if same == len(rounds) and different >= limit["rounds"]:
        return Finding("whole-stream", f"{facts}, with {different} different batches over the rounds.", measured)
    return Finding("pass", f"{facts}.", measured)


def _chance(drawn: list[str]) -> float:
    """The probability that an independent worker draws the same, from how often two draws of one worker agree."""
    pairs = len(drawn) * (len(drawn) - 1) / 2
    same = sum(drawn.count(digest) * (drawn.count(digest) - 1) / 2 for digest in set(drawn))
    return float(max(same, 1.0) / pairs) ** len(drawn)


QUESTION = Question(
    code="P2.1",
    name="random numbers of loader workers",
    asks="Do the loader's workers draw different random numbers, and split a stream between them?",
    why="Every worker gets a copy of the dataset's own generator, or the fixed seed of a worker_init_fn: all workers "
    "make the same augmentations, again in every epoch.",
    needs=("a DataLoader with workers",),
    panel=None,
    thresholds=(
        Threshold(
            name="draws",
            value=8,
            unit="items",
            meaning="items that each worker fetches",
            seed="",
            decision="eight different items agree by chance once in 10^11; few variants are fetched 48 times",
        ),
        Threshold(
            name="rounds",
            value=3,
            unit="rounds",
            meaning="rounds of one batch per worker needed to judge a stream",
            seed="",
            decision="whole batches do not agree in three rounds by chance",
        ),
        Threshold(
            name="chance",
            value=1e-6,
            unit="probability",
            meaning="probability that independent workers draw the same",
            seed="",
            decision="estimated from how often two draws of one worker agree",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="workers draw different random numbers"),
        Outcome(
            name="every-epoch-the-same",
            answer=NOTE,
            meaning="restarted workers repeat their random draws in every epoch",
            fix="Seed from torch.initial_seed() in worker_init_fn: it differs in every epoch.",
        ),
        Outcome(
            name="whole-stream",
            answer=FAULT,
            meaning="every worker yields the whole stream, so examples repeat",
            fix="Split the stream in __iter__: itertools.islice(examples, info.id, None, info.num_workers) with "
            "info = torch.utils.data.get_worker_info().",
            explains=("P1.7", "C4.2"),
        ),
        Outcome(
            name="clones",
            answer=FAULT,
            meaning="workers draw the same random numbers",
            fix="Draw from torch, numpy.random or random, which torch seeds per worker, or seed the dataset's own "
            "generator from torch.initial_seed() in worker_init_fn.",
        ),
    ),
    find=find,
    tried=True,
)
