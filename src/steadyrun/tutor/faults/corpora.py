"""Faults of the data: its records, their order, and the held-out part."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID


def _inject_corrupt_batch(recipe: Recipe) -> Recipe:
    """Broken records that repeat one token fill one batch late in the run."""

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


CORRUPT_BATCH = Fault(
    name="corrupt-batch",
    leaf="A5.4",
    summary="one batch late in the run repeats a single rare token",
    change="load_data adds rows that repeat one token, and batch_order puts them into one batch",
    inject=_inject_corrupt_batch,
    steps=600,
)


REPEATS = 100


def _inject_duplicate_batch(recipe: Recipe) -> Recipe:
    """The loader repeats the batch in its buffer while the next one is not ready."""

    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        middle = config.steps * config.accumulation // 2
        for number, indices in enumerate(recipe.batch_order(data, config)):
            for _ in range(1 + REPEATS if number == middle else 1):
                yield indices

    return replace(recipe, batch_order=batch_order)


DUPLICATE_BATCH = Fault(
    name="duplicate-batch",
    leaf="D2.3",
    summary=f"halfway through the run one batch repeats {REPEATS} times",
    change="batch_order repeats the batch at half of the steps",
    inject=_inject_duplicate_batch,
    steps=600,
)


VERB = "write"


def _inject_rare_token_spike(recipe: Recipe) -> Recipe:
    """All sentences of one irregular verb come in one batch late in the run, as from a shard that was not shuffled.

    Their tokens are rare in the corpus (`ten`, of "written", occurs five times), and no earlier batch contains them.
    The program does not clip gradients.
    """

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


def _remedy_rare_token_spike(recipe: Recipe) -> Recipe:
    """Use batches without a repeated rare token, with every sentence from the first epoch on, and a clip."""

    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        from steadyrun.data import (
            StratifiedBatchSampler,
        )  # imported here, because exported scripts copy only the tutor's files

        sampler = StratifiedBatchSampler(data.train, config.batch_size, seed=config.seed, drop_last=True)
        while True:
            yield from sampler

    return replace(recipe, batch_order=batch_order)


RARE_TOKEN_SPIKE = Fault(
    name="rare-token-spike",
    leaf="",
    summary="one batch late in the run has only unseen words, and gradients are not clipped",
    change=f"batch_order holds back the sentences with {VERB!r} and puts them into one batch; clip is None",
    inject=_inject_rare_token_spike,
    note="D2.3",
    steps=1200,
    remedy=_remedy_rare_token_spike,
)


NOISE = 0.05


@dataclass(frozen=True)
class NoisyData(Data):
    """Training data in which a few tokens are replaced by others."""

    rng: Random = field(default_factory=Random)

    def train_batch(self, indices: Sequence[int]) -> Batch:
        for i in indices:
            row = self.train[i]
            for place in range(1, len(row) - 1):
                if self.rng.random() < NOISE:
                    row[place] = self.rng.randrange(EOS_ID + 1, self.tokenizer.get_vocab_size())
        return super().train_batch(indices)


def _inject_upward_drift(recipe: Recipe) -> Recipe:
    """Token noise is written into the corpus instead of the batch, so sentences degrade with every epoch."""

    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        known = {each.name: getattr(data, each.name) for each in fields(data)}
        return NoisyData(**known, rng=Random(config.seed))

    return replace(recipe, load_data=load_data)


UPWARD_DRIFT = Fault(
    name="upward-drift",
    leaf="D4.4",
    summary="the corpus degrades with every epoch, and the loss rises slowly",
    change="train_batch replaces tokens in the stored rows instead of in copies",
    inject=_inject_upward_drift,
    steps=800,
)


def _inject_leak(recipe: Recipe) -> Recipe:
    """The training set is the whole corpus, including the validation sentences."""

    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        return replace(data, train=data.train + data.val, train_sentences=data.train_sentences + data.val_sentences)

    return replace(recipe, load_data=load_data)


LEAK = Fault(
    name="leak",
    leaf="C4.2",
    summary="the training set contains the validation sentences",
    change="load_data puts all sentences into the training set, and some also into validation",
    inject=_inject_leak,
)


def _inject_overfit(recipe: Recipe) -> Recipe:
    """A leftover debugging slice limits training to two batches of sentences."""

    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)
        few = slice(2 * config.batch_size)
        return replace(data, train=data.train[few], train_sentences=data.train_sentences[few])

    return replace(recipe, load_data=load_data)


OVERFIT = Fault(
    name="overfit",
    leaf="C4.2",
    summary="the model memorises a few sentences",
    change="load_data keeps only the first two batches of training sentences",
    inject=_inject_overfit,
    steps=600,
)
