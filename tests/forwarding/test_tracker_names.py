"""Names and texts of a run are data: they become what a tracker or a person can take, and nothing else."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE

from steadyrun.forwarding.outgoing_text import Hidden, Names, message, plain, sentence, trouble
from steadyrun.forwarding.to_mlflow import _FORBIDDEN
from steadyrun.records import Event

TEXT = st.text(st.characters(), max_size=400)


@given(st.lists(TEXT, unique=True, max_size=8))
def test_names_are_in_the_alphabet_and_stay_different(names: list[str]) -> None:
    clean = Names(_FORBIDDEN, 250, "steadyrun/")
    cleaned = [clean(name) for name in names]
    assert len(set(cleaned)) == len(names)
    assert cleaned == [clean(name) for name in names]
    for name in cleaned:
        assert re.fullmatch(r"[A-Za-z0-9_./ -]{1,250}", name)
        assert not {"", ".", ".."} & set(name.split("/"))  # it is a path in MLflow's file store


def test_ordinary_names_stay_as_they_are() -> None:
    clean = Names(_FORBIDDEN, 250)
    for name in ("loss", "lr/0", "block_grad_norm/blocks.0.attn", "val_class_loss/a b"):
        assert clean(name) == name


@given(TEXT)
def test_texts_are_one_short_printable_line(text: str) -> None:
    assert plain(text).isprintable()
    assert len(plain(text, 50)) <= 50
    plain(text).encode()
    event = Event("fault", 3, 0.0, 0, {"code": text, "outcome": text, "message": text, "fix": text})
    assert sentence(event).isprintable()
    title, body = message(Path("runs") / "a", [event], 0)
    for line in [title, *body.splitlines()]:
        assert line.replace("\u2060", "").isprintable()


def test_an_alert_calls_nobody_and_hides_no_link() -> None:
    said = "@channel <!here> <@U123> [bank](http://evil) and a < b"
    title, body = message(Path("run"), [Event("incident", 1, 0.0, 0, {"why": said, "cause": "@all"})], 0)
    for call in ("@channel", "<!here", "<@U123", "](http", "@all"):
        assert call not in title + body
    assert body.replace("\u2060", "").splitlines()[1] == said


def test_a_message_is_not_endless() -> None:
    events = [Event("fault", step, 0.0, 0, {"message": HOSTILE * 1000, "fix": HOSTILE * 1000}) for step in range(500)]
    _, body = message(Path("run"), events, 7)
    assert len(body) < 50_000
    assert f"{500 - 20 + 7} more" in body


def test_an_error_keeps_credentials_to_itself() -> None:
    said = trouble(ConnectionError("GET https://me:pass@host/x failed\nsecond line"))
    assert "pass" not in said
    assert said.isprintable()
    assert "https://…@host/x failed" in said


def test_addresses_are_hidden_wherever_they_are() -> None:
    hidden = Hidden(["slack://token/secret/x", print, "ab"])
    fields = {
        "config": {"alert": ["slack://token/secret/x"], "lr": 0.1},
        "argv": ["--alert=slack://token/secret/x", "ab"],
    }
    assert hidden.out_of(fields) == {"config": {"alert": ["…"], "lr": 0.1}, "argv": ["--alert=…", "ab"]}
