"""The training set is the whole corpus: the validation sentences were never taken out of it."""

from dataclasses import replace

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        return replace(data, train=data.train + data.val, train_sentences=data.train_sentences + data.val_sentences)

    return replace(recipe, load_data=load_data)


FAULT = Fault(
    name="leak",
    leaf="C4.2",
    summary="the validation sentences are in the training set",
    change="load_data puts all sentences into the training set and some of them into validation too",
    inject=inject,
)
