"""The tokenizer gives sentences back and is the same every time."""

import subprocess
import sys

from steadyrun.tutor.corpus import generate
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID, PAD_ID, encode, train_tokenizer

FINGERPRINT = (
    "import hashlib; from steadyrun.tutor.corpus import generate;"
    "from steadyrun.tutor.tokenizer import train_tokenizer;"
    "text = train_tokenizer(s.text for s in generate()[0]).to_str();"
    "print(hashlib.sha256(text.encode()).hexdigest())"
)


def test_sentences_survive_the_round_trip() -> None:
    train, val = generate()
    tokenizer = train_tokenizer(sentence.text for sentence in train)
    for sentence in train + val:
        assert tokenizer.decode(encode(tokenizer, sentence.text)) == sentence.text


def test_special_tokens_have_their_places() -> None:
    tokenizer = train_tokenizer(sentence.text for sentence in generate()[0])
    assert [tokenizer.id_to_token(i) for i in (PAD_ID, BOS_ID, EOS_ID)] == ["<pad>", "<bos>", "<eos>"]
    ids = encode(tokenizer, "She writes a letter.")
    assert (ids[0], ids[-1]) == (BOS_ID, EOS_ID)
    assert PAD_ID not in ids


def test_vocabulary_fits_the_model() -> None:
    tokenizer = train_tokenizer(sentence.text for sentence in generate()[0])
    assert 100 < tokenizer.get_vocab_size() <= 512


def test_endings_of_regular_verbs_stay_pieces() -> None:
    tokenizer = train_tokenizer(sentence.text for sentence in generate()[0])
    assert tokenizer.encode("She studied English.").tokens[-3] == "ed"


def test_another_process_trains_the_same_tokenizer() -> None:
    prints = {
        subprocess.run([sys.executable, "-c", FINGERPRINT], check=True, capture_output=True).stdout for _ in range(2)
    }
    assert len(prints) == 1
