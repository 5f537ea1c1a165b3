"""Token noise, meant for the batch, is written into the corpus: what has been served comes back a little worse."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import EOS_ID

NOISE = 0.05


@dataclass(frozen=True)
class NoisyData(Data):
    """Training batches in which a few tokens are replaced by others."""

    rng: Random = field(default_factory=Random)

    def train_batch(self, indices: Sequence[int]) -> Batch:
        for i in indices:
            row = self.train[i]
            for place in range(1, len(row) - 1):
                if self.rng.random() < NOISE:
                    row[place] = self.rng.randrange(EOS_ID + 1, self.tokenizer.get_vocab_size())
        return super().train_batch(indices)


def inject(recipe: Recipe) -> Recipe:
    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        known = {each.name: getattr(data, each.name) for each in fields(data)}
        return NoisyData(**known, rng=Random(config.seed))

    return replace(recipe, load_data=load_data)


FAULT = Fault(
    name="upward-drift",
    leaf="D4.4",
    summary="the corpus gets worse with every epoch, and the loss rises slowly",
    change="train_batch replaces tokens in the stored rows instead of in copies of them",
    inject=inject,
    steps=800,
)
