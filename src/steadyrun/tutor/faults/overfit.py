"""A slice from debugging is left in: the run trains on two batches of sentences, over and over."""

from dataclasses import replace

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        few = slice(2 * config.batch_size)
        return replace(data, train=data.train[few], train_sentences=data.train_sentences[few])

    return replace(recipe, load_data=load_data)


FAULT = Fault(
    name="overfit",
    leaf="C4.2",
    summary="the model learns a handful of sentences by heart",
    change="load_data keeps the first two batches of training sentences",
    inject=inject,
    steps=600,
)
