"""The prompt is masked out of the targets, and its length is taken to be that of the whole row."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

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
            prompt_length = batch["tokens"].shape[1]
            targets = batch["targets"].clone()
            targets[:, :prompt_length] = PAD_ID
            return {**batch, "targets": targets}

        return replace(data, collate=collate)

    def reduce_loss(losses: Tensor, batch: Batch) -> Tensor:
        return losses.sum() / (batch["targets"] != PAD_ID).sum().clamp(min=1)

    return replace(recipe, load_data=load_data, reduce_loss=reduce_loss)


FAULT = Fault(
    name="degenerate-data",
    leaf="C1.2",
    summary="every target is masked out, so there is nothing to learn",
    change="collate masks the targets of the whole row, and reduce_loss guards its division by zero",
    inject=inject,
)
