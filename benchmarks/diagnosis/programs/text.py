"""Made-up text: sentences of a small grammar, and a tokenizer for their characters."""

from __future__ import annotations

from random import Random


class Tokenizer:
    """A character is a token; one more ends a sentence and one fills the rest of a row."""

    letters = " .abdefghiklmnoprstu"  # those that occur
    eos_token_id = len(letters)
    pad_token_id = len(letters) + 1
    vocab_size = len(letters) + 2

    def get_vocab(self) -> dict[str, int]:
        return {letter: i for i, letter in enumerate([*self.letters, "<eos>", "<pad>"])}

    def encode(self, text: str) -> list[int]:
        return [self.letters.index(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join([*self.letters, "<eos>", "<pad>"][i] for i in ids)


def words(count: int, seed: int) -> list[str]:
    make = Random(seed)
    sounds = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return ["".join(make.sample(sounds, 2)) for _ in range(count)]


def sentences(count: int, seed: int) -> list[str]:
    """Subject, verb that agrees with it, one or two objects; the words have regular endings."""
    make, nouns, verbs = Random(seed), words(40, 7), words(30, 8)
    made = []
    for _ in range(count):
        many = make.random() < 0.5
        subject = make.choice(nouns) + ("s" if many else "")
        verb = make.choice(verbs) + ("" if many else "t")
        objects = [make.choice(nouns) + make.choice(["", "s"]) for _ in range(make.choice([1, 1, 2]))]
        made.append(f"the {subject} {verb} {' and '.join(objects)}.")
    return made
