"""P2.1: do the loader's workers draw different random numbers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.loader_trials import drawn_by_two_workers, streams, torch_loader

    if streams(bench.task.loader):
        return _one_stream(bench, bench.task.loader.num_workers, limit)  # type: ignore[union-attr]
    loader = torch_loader(bench.task.loader)
    if loader.num_workers < 2:
        raise NotApplicable(f"the loader has {loader.num_workers} workers: there are no two that could draw the same")
    count = int(limit["draws"])
    first, second = drawn_by_two_workers(loader, count)
    if first == second and len(set(first)) > 1 and _chance(first) > limit["chance"]:  # a coin or two: draw more often
        count *= 6
        first, second = drawn_by_two_workers(loader, count)
    if len(set(first)) < 2 and len(set(second)) < 2:
        raise NotApplicable(f"an item of the dataset is the same each of {count} times: nothing random is drawn")
    measured = {"draws": float(count), "different": float(len(set(first)))}
    facts = f"one item was drawn {count} times by each of two workers, {len(set(first))} different ones by the first"
    if first == second and _chance(first) <= limit["chance"]:
        return Finding("clones", f"{facts}; the second drew exactly the same.", measured)
    again = drawn_by_two_workers(loader, count)
    if not loader.persistent_workers and again == (first, second) and _chance(first) <= limit["chance"]:
        return Finding("every-epoch-the-same", f"{facts}; when workers are started again they draw the same.", measured)
    return Finding("pass", f"{facts}; the second drew others.", measured)


def _one_stream(bench: Bench, workers: int, limit: Limits) -> Finding:
    """Workers take turns: where each gives the whole stream, every batch comes once from each of them."""
    from steadyrun.preflight.labelled_examples import hashes

    if workers < 2:
        raise NotApplicable(f"a stream (IterableDataset) and {workers} workers: there are no two to share it")
    digests = [batch.tobytes() for batch in hashes(bench.batches, None)]
    rounds = [digests[start : start + workers] for start in range(0, len(digests) - workers + 1, workers)]
    if len(rounds) < limit["rounds"]:
        raise NotApplicable(f"{len(digests)} batches of {workers} workers are too few to compare")
    same = sum(len(set(batches)) == 1 for batches in rounds)
    different = len({batches[0] for batches in rounds})
    measured = {"rounds": float(len(rounds)), "same": float(same)}
    facts = f"in {same} of {len(rounds)} rounds the {workers} workers give the same batch"
    if same == len(rounds) and different >= limit["rounds"]:
        return Finding("whole-stream", f"{facts}; {different} of these are different.", measured)
    return Finding("pass", f"{facts}.", measured)


def _chance(drawn: list[str]) -> float:
    """The chance that another worker draws the same by itself: from how often two draws of one worker agree."""
    pairs = len(drawn) * (len(drawn) - 1) / 2
    same = sum(drawn.count(digest) * (drawn.count(digest) - 1) / 2 for digest in set(drawn))
    return float(max(same, 1.0) / pairs) ** len(drawn)


QUESTION = Question(
    code="P2.1",
    name="random numbers of workers",
    asks="Do the workers of the loader draw different random numbers, and share a stream among them?",
    why="A generator that the dataset holds, or a worker_init_fn with a fixed seed, is copied into every worker: all "
    "make the same augmentations, and again in every epoch.",
    needs=("a DataLoader with workers",),
    panel=None,
    thresholds=(
        Threshold(
            name="draws",
            value=8,
            unit="items",
            meaning="fetched by each worker",
            seed="",
            decision="eight different items agree by chance once in 10^11; an item that flips a coin is drawn 48 times",
        ),
        Threshold(
            name="rounds",
            value=3,
            unit="rounds",
            meaning="of one batch from each worker, all different from each other, before a stream is judged",
            seed="",
            decision="whole batches that agree example by example, three times in a row, are no chance",
        ),
        Threshold(
            name="chance",
            value=1e-6,
            unit="probability",
            meaning="of the same draws in workers that have nothing to do with each other",
            seed="",
            decision="estimated from how often two draws of one worker agree",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="workers draw different numbers"),
        Outcome(
            name="every-epoch-the-same",
            answer=NOTE,
            meaning="the draws begin anew with the workers: every epoch has the same augmentations, unless the "
            "loop seeds them",
            fix="Seed from torch.initial_seed() in worker_init_fn: it is another one in every epoch.",
        ),
        Outcome(
            name="whole-stream",
            answer=FAULT,
            meaning="every worker gives the whole stream: each example comes once per worker",
            fix="Give each worker its share in __iter__: itertools.islice(examples, info.id, None, "
            "info.num_workers) with "
            "info = torch.utils.data.get_worker_info().",
            explains=("P1.7", "C4.2"),
        ),
        Outcome(
            name="clones",
            answer=FAULT,
            meaning="workers draw the same random numbers",
            fix="Draw from torch, numpy.random or random, which torch seeds per worker; or seed the dataset's own "
            "generator in worker_init_fn from torch.initial_seed().",
        ),
    ),
    find=find,
    tried=True,
)
