"""All sentences of one irregular verb come together, in one batch late in the run, and at no other time."""

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

    return replace(recipe, batch_order=batch_order)


FAULT = Fault(
    name="rare-token-spike",
    leaf="",
    summary="one batch late in the run is made of words that were never seen before",
    change=f"batch_order keeps the sentences with {VERB!r} back and puts them into a single batch",
    inject=inject,
    note="D2.3",
    steps=600,
)
