"""A pocket of broken records in the corpus, one token over and over, fills one batch late in the run."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID


def inject(recipe: Recipe) -> Recipe:
    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        broken = [BOS_ID, *[_rarest(data)] * (config.context - 1), EOS_ID]
        size = config.batch_size
        return replace(
            data, train=data.train + [broken] * size, train_sentences=data.train_sentences + data.train_sentences[:size]
        )

    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        whole = len(data.train) - config.batch_size
        sound = replace(data, train=data.train[:whole], train_sentences=data.train_sentences[:whole])
        late = 3 * config.steps * config.accumulation // 4
        for number, indices in enumerate(recipe.batch_order(sound, config)):
            if number == late:
                yield list(range(whole, len(data.train)))
            yield indices

    return replace(recipe, load_data=load_data, batch_order=batch_order)


def _rarest(data: Data) -> int:
    counts = Counter(token for row in data.train for token in row)
    return min(counts, key=lambda token: (counts[token], token))


FAULT = Fault(
    name="corrupt-batch",
    leaf="A5.4",
    summary="one batch late in the run is made of a single token, a rare one",
    change="load_data adds rows that repeat one token, and batch_order hands them out together",
    inject=inject,
    steps=600,
)
