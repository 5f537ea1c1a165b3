"""All sentences of one irregular verb come together, in one batch late in the run, and at no other time.

As from a shard that was not mixed in. Tokens that these sentences have are rare in the corpus (`ten`, of "written",
occurs five times in it), and no batch before has shown them. Nothing is clipped, as in many a first script.
"""

from collections.abc import Iterator
from dataclasses import replace

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.recipe import Fault, Recipe

VERB = "write"


def inject(recipe: Recipe) -> Recipe:
    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        rare = [i for i, sentence in enumerate(data.train_sentences) if sentence.verb == VERB]
        others = [i for i, sentence in enumerate(data.train_sentences) if sentence.verb != VERB]
        common = replace(
            data, train=[data.train[i] for i in others], train_sentences=[data.train_sentences[i] for i in others]
        )
        late = 3 * config.steps * config.accumulation // 4
        for number, indices in enumerate(recipe.batch_order(common, config)):
            if number == late:
                yield rare[: config.batch_size]
            yield [others[i] for i in indices]

    return replace(recipe, config=replace(recipe.config, clip=None), batch_order=batch_order)


def remedy(recipe: Recipe) -> Recipe:
    """No batch holds a rare token twice, so every sentence has its turn from the first epoch on; and a clip."""

    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        from steadyrun.data import StratifiedBatchSampler  # here: scripts of incidents take the tutor's files alone

        sampler = StratifiedBatchSampler(data.train, config.batch_size, seed=config.seed, drop_last=True)
        while True:
            yield from sampler

    return replace(recipe, batch_order=batch_order)


FAULT = Fault(
    name="rare-token-spike",
    leaf="",
    summary="one batch late in the run is made of words that were never seen before, and nothing is clipped",
    change=f"batch_order keeps the sentences with {VERB!r} back and puts them into a single batch; clip is None",
    inject=inject,
    note="D2.3",
    steps=1200,
    remedy=remedy,
)
