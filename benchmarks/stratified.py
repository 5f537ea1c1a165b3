"""How the time of an epoch of `StratifiedBatchSampler` grows with the corpus; each corpus is four times the one before.

Sentences of twenty tokens drawn by Zipf's law from a vocabulary that grows with the corpus, as it does in text: most
sentences then hold rare tokens.

    python benchmarks/stratified.py
"""

from __future__ import annotations

import json
import time

import numpy as np

from steadyrun.data import StratifiedBatchSampler

BATCH = 32


def corpus(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, size=(count, 20)), 20 * count)
    return list(words)


def _seconds(sampler: StratifiedBatchSampler) -> float:
    began = time.process_time()
    list(sampler)
    return time.process_time() - began


def main() -> None:
    before = None
    for count in (5_000, 20_000, 80_000):
        examples = corpus(count)
        began = time.process_time()
        sampler = StratifiedBatchSampler(examples, BATCH)
        built = time.process_time()
        epoch = min(_seconds(sampler) for _ in range(3))
        found = {
            "examples": count,
            "with_rare_tokens": round(sum(bool(held) for held in sampler._rare) / count, 2),
            "build_s": round(built - began, 3),
            "epoch_s": round(epoch, 3),
            "times_the_one_before": round(epoch / before, 2) if before else None,
            "violations": len(sampler.violations),
        }
        print(json.dumps(found))
        before = epoch


if __name__ == "__main__":
    main()
