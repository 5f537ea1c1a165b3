"""English verb sentences: 12 regular and 8 irregular verbs, five persons, five tenses.

Training and validation never share a (verb, person, tense) combination, so a validation sentence needs a form
that the model has to infer ("she studied") from forms it has seen ("they studied", "she walked").
"""

import random
from dataclasses import dataclass

TRAIN_PER_VERB = 12
VAL_PER_VERB = 3

SUBJECTS = {
    "1sg": ("I",),
    "2sg": ("you",),
    "3sg": ("he", "she", "Maria", "my brother", "the teacher"),
    "1pl": ("we",),
    "3pl": ("they", "my parents", "the students"),
}
PERSONS = tuple(SUBJECTS)

TIMES = {
    "present": ("every day", "every week", "on Mondays", "in the evening"),
    "past": ("yesterday", "last week", "two days ago"),
    "perfect": ("today", "this week", "this morning"),
    "future": ("tomorrow", "next week", "next month"),
    "continuous": ("right now", "at the moment"),
}
TENSES = tuple(TIMES)

# Verbs of state, not of habit: "every day she likes the song" is not English.
STATES = {"want", "like"}
STATE_TIMES = TIMES | {
    "present": ("these days", "at the moment"),
    "perfect": ("for a long time", "since last year"),
}

# lemma: (third person, past, participle)
IRREGULAR = {
    "be": ("is", "was", "been"),
    "have": ("has", "had", "had"),
    "do": ("does", "did", "done"),
    "go": ("goes", "went", "gone"),
    "come": ("comes", "came", "come"),
    "see": ("sees", "saw", "seen"),
    "eat": ("eats", "ate", "eaten"),
    "write": ("writes", "wrote", "written"),
}

COMPLEMENTS = {
    "work": ("at the office", "from home", "in a small shop", "in the garden"),
    "play": ("football", "the piano", "chess", "in the garden"),
    "walk": ("to school", "in the park", "to the station", "home slowly"),
    "talk": ("to the neighbours", "about the weather", "with friends", "on the phone"),
    "listen": ("to the radio", "to music", "to the news", "to an old song"),
    "watch": ("the news", "a good film", "football", "the birds in the park"),
    "study": ("English", "history", "for the exam", "at the library"),
    "finish": ("the homework early", "work late", "the report on time", "the exercise quickly"),
    "start": ("work early", "the lesson on time", "the day with coffee", "a new exercise"),
    "look": ("at the map", "for the keys", "out of the window", "at the old pictures"),
    "want": ("a new bike", "a bigger room", "a small dog", "a good job"),
    "like": ("the new song", "the hot soup", "the English class", "the old film"),
    "be": ("busy", "tired", "at home", "at the office"),
    "have": ("breakfast at home", "lunch with friends", "an English class", "a good time"),
    "do": ("the homework", "the shopping", "the dishes", "some exercise"),
    "go": ("to school", "to the market", "home by bus", "to the library"),
    "come": ("home early", "to class on time", "to work by bus", "to the park"),
    "see": ("the doctor", "a good film", "old friends", "the neighbours"),
    "eat": ("lunch at home", "an apple", "rice and fish", "dinner late"),
    "write": ("a letter", "a short story", "in English", "to old friends"),
}
VERBS = tuple(COMPLEMENTS)
NO_CONTINUOUS = STATES | {"be", "see"}


@dataclass(frozen=True)
class Sentence:
    """One sentence and the grammar it exercises."""

    text: str
    verb: str
    verb_class: str
    person: str
    tense: str


def verb_class(verb: str) -> str:
    """ "regular" or "irregular"."""
    return "irregular" if verb in IRREGULAR else "regular"


def third_person(verb: str) -> str:
    """The form after he, she or it in the present: works, studies, has."""
    if verb in IRREGULAR:
        return IRREGULAR[verb][0]
    if _ends_in_consonant_y(verb):
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("ch", "sh")) else "s")


def past(verb: str) -> str:
    """The simple past: walked, studied, went."""
    if verb in IRREGULAR:
        return IRREGULAR[verb][1]
    if _ends_in_consonant_y(verb):
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def participle(verb: str) -> str:
    """The form after "have": walked, written."""
    return IRREGULAR[verb][2] if verb in IRREGULAR else past(verb)


def gerund(verb: str) -> str:
    """The -ing form: working, writing."""
    drops_e = verb.endswith("e") and not verb.endswith("ee") and verb != "be"
    return (verb[:-1] if drops_e else verb) + "ing"


def conjugate(verb: str, person: str, tense: str) -> str:
    """The verb phrase, for example ("write", "3sg", "perfect") -> "has written"."""
    if tense == "present":
        return _present(verb, person)
    if tense == "past":
        return "were" if verb == "be" and person not in ("1sg", "3sg") else past(verb)
    if tense == "perfect":
        return f"{_present('have', person)} {participle(verb)}"
    if tense == "future":
        return f"will {verb}"
    return f"{_present('be', person)} {gerund(verb)}"


def generate(seed: int = 0) -> tuple[list[Sentence], list[Sentence]]:
    """The training and the validation sentences, the same for the same seed."""
    rng = random.Random(seed)
    train: list[Sentence] = []
    val: list[Sentence] = []
    for verb in VERBS:
        combinations = _combinations(verb, rng)[: TRAIN_PER_VERB + VAL_PER_VERB]
        sentences = [_sentence(verb, person, tense, rng) for person, tense in combinations]
        train += sentences[:TRAIN_PER_VERB]
        val += sentences[TRAIN_PER_VERB:]
    return train, val


def _ends_in_consonant_y(verb: str) -> bool:
    return verb.endswith("y") and verb[-2] not in "aeiou"


def _present(verb: str, person: str) -> str:
    if verb == "be" and person != "3sg":
        return "am" if person == "1sg" else "are"
    return third_person(verb) if person == "3sg" else verb


def _combinations(verb: str, rng: random.Random) -> list[tuple[str, str]]:
    """Every (person, tense) of a verb, cycling through the tenses.

    As many consecutive entries as there are tenses contain each tense once: training has every tense of the verb, and
    held-out sentences differ only in the person.
    """
    tenses = [tense for tense in TENSES if tense != "continuous" or verb not in NO_CONTINUOUS]
    rng.shuffle(tenses)
    persons = {tense: rng.sample(PERSONS, len(PERSONS)) for tense in tenses}
    return [(persons[tense][turn], tense) for turn in range(len(PERSONS)) for tense in tenses]


def _sentence(verb: str, person: str, tense: str, rng: random.Random) -> Sentence:
    subject = rng.choice(SUBJECTS[person])
    clause = f"{subject} {conjugate(verb, person, tense)} {rng.choice(COMPLEMENTS[verb])}"
    time = rng.choice((STATE_TIMES if verb in STATES else TIMES)[tense])
    text = f"{time}, {clause}." if rng.random() < 0.5 else f"{clause} {time}."
    return Sentence(text[0].upper() + text[1:], verb, verb_class(verb), person, tense)
