"""The mask of real tokens is handed over as the targets: wherever there is a token, the answer is 1."""

from collections.abc import Sequence
from dataclasses import replace

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.corpus import Sentence
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import PAD_ID


def inject(recipe: Recipe) -> Recipe:
    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)

        def collate(rows: Sequence[list[int]], sentences: Sequence[Sentence]) -> Batch:
            batch = data.collate(rows, sentences)
            return {**batch, "targets": (batch["targets"] != PAD_ID).long()}

        return replace(data, collate=collate)

    return replace(recipe, load_data=load_data)


FAULT = Fault(
    name="constant-target",
    leaf="",
    summary="every target is the same token",
    change="collate returns the mask of real tokens as the targets",
    inject=inject,
)
