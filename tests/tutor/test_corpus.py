"""The sentences are English, counted right, and held out properly."""

import subprocess
import sys

import pytest

from steadyrun.tutor.corpus import PERSONS, TENSES, VERBS, conjugate, generate, verb_class


@pytest.mark.parametrize(
    ("verb", "person", "tense", "phrase"),
    [
        ("work", "1sg", "present", "work"),
        ("work", "3sg", "present", "works"),
        ("play", "3sg", "present", "plays"),
        ("study", "3sg", "present", "studies"),
        ("watch", "3sg", "present", "watches"),
        ("finish", "3sg", "present", "finishes"),
        ("go", "3sg", "present", "goes"),
        ("do", "3sg", "present", "does"),
        ("have", "3sg", "present", "has"),
        ("write", "3sg", "present", "writes"),
        ("write", "3pl", "present", "write"),
        ("be", "1sg", "present", "am"),
        ("be", "2sg", "present", "are"),
        ("be", "3sg", "present", "is"),
        ("be", "1pl", "present", "are"),
        ("be", "1sg", "past", "was"),
        ("be", "2sg", "past", "were"),
        ("be", "3sg", "past", "was"),
        ("be", "3pl", "past", "were"),
        ("study", "3sg", "past", "studied"),
        ("play", "3sg", "past", "played"),
        ("like", "3pl", "past", "liked"),
        ("want", "1sg", "past", "wanted"),
        ("go", "1pl", "past", "went"),
        ("have", "2sg", "past", "had"),
        ("eat", "1sg", "past", "ate"),
        ("see", "3pl", "past", "saw"),
        ("come", "3sg", "perfect", "has come"),
        ("write", "1sg", "perfect", "have written"),
        ("be", "3sg", "perfect", "has been"),
        ("have", "3sg", "perfect", "has had"),
        ("like", "2sg", "perfect", "have liked"),
        ("be", "3sg", "future", "will be"),
        ("study", "3sg", "future", "will study"),
        ("write", "1sg", "continuous", "am writing"),
        ("study", "3sg", "continuous", "is studying"),
        ("come", "1pl", "continuous", "are coming"),
        ("have", "3pl", "continuous", "are having"),
    ],
)
def test_conjugation(verb: str, person: str, tense: str, phrase: str) -> None:
    assert conjugate(verb, person, tense) == phrase


def test_twelve_regular_and_eight_irregular_verbs() -> None:
    classes = [verb_class(verb) for verb in VERBS]
    assert classes.count("regular") == 12
    assert classes.count("irregular") == 8


@pytest.mark.parametrize("seed", range(5))
def test_counts_and_holding_out(seed: int) -> None:
    train, val = generate(seed)
    assert len(train) == 240
    assert len(val) == 60
    for verb in VERBS:
        assert sum(sentence.verb == verb for sentence in train) == 12
        assert sum(sentence.verb == verb for sentence in val) == 3
    seen = {(s.verb, s.person, s.tense) for s in train}
    assert not seen & {(s.verb, s.person, s.tense) for s in val}
    assert len({s.text for s in train + val}) == 300


@pytest.mark.parametrize("seed", range(5))
def test_what_is_held_out_differs_from_training_by_the_person_alone(seed: int) -> None:
    train, val = generate(seed)
    assert {(s.verb, s.tense) for s in val} <= {(s.verb, s.tense) for s in train}


def test_every_person_and_tense_occurs() -> None:
    train, _ = generate()
    assert {s.person for s in train} == set(PERSONS)
    assert {s.tense for s in train} == set(TENSES)


def test_sentences_are_sentences() -> None:
    train, val = generate()
    for sentence in train + val:
        assert sentence.text[0].isupper()
        assert sentence.text.endswith(".")
        assert "  " not in sentence.text
        assert conjugate(sentence.verb, sentence.person, sentence.tense) in sentence.text
        assert sentence.verb_class == verb_class(sentence.verb)


def test_verbs_of_state_are_not_continuous() -> None:
    train, val = generate()
    phrases = " ".join(sentence.text for sentence in train + val)
    for wrong in ("being", "wanting", "liking", "seeing"):
        assert wrong not in phrases


def test_the_seed_decides() -> None:
    assert generate(3) == generate(3)
    assert generate(3) != generate(4)


def test_the_corpus_needs_no_torch() -> None:
    code = "import sys, steadyrun.tutor.corpus; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
