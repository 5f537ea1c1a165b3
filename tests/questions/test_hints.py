"""Hints are true: none asks for what was done, for what a log's reader cannot do, or to wait for what has ended."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import steadyrun
from steadyrun.report import phrases
from steadyrun.report.file_formats import document

COUNTS = "watch", "val", "val_batches", "batch", "finished"
EVERY = list(itertools.product([False, True], repeat=len(COUNTS)))


def record(path: Path, *, watch: bool, val: bool, val_batches: bool, batch: bool, finished: bool, width: int = 12,
           **config: object) -> None:  # fmt: skip
    """A small classifier; without `finished` its process seems to be still there."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, width))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run = steadyrun.record(path, config=config)
    if watch:
        run.watch(model, optimizer)
    for step in range(30):
        inputs = torch.randn(16, 8)
        targets = inputs[:, :4].argmax(1)
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss, batch=(inputs, targets) if batch else None)
        if val and step % 10 == 9:
            with torch.no_grad():
                held_out = torch.nn.functional.cross_entropy(model(inputs), targets)
            run.val(held_out, batches=[(inputs, targets)] if val_batches else None)
    run.close()
    if not finished:
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps({**manifest, "state": "running", "ended": None}))


def hints(path: Path) -> Iterator[str]:
    """Everything that `check --all --json` says to somebody who asks what to do."""
    report = document(steadyrun.check(path, everything=True))
    yield from (entry["how_to_record"] for entry in report["not_asked"])
    yield from (entry["message"] for entry in report["walk"])
    yield from (entry["message"] for entry in report["notes"])


def asks(pattern: str, texts: list[str]) -> list[str]:
    return [text for text in texts if re.search(pattern, text)]


@pytest.mark.parametrize("given", EVERY, ids=lambda given: "".join("ny"[done] for done in given))
def test_no_hint_asks_for_what_was_done(given: tuple[bool, ...], tmp_path: Path) -> None:
    done = dict(zip(COUNTS, given, strict=True))
    record(tmp_path / "run", **done, vocab_size=12)  # type: ignore[arg-type]
    texts = list(hints(tmp_path / "run"))
    assert texts
    if done["watch"]:
        assert not asks(r"(call|give) run\.watch\(model", texts)
        assert not asks(r"or could be inferred|was not recorded with run\.watch", texts)
    else:
        assert asks(r"call run\.watch\(model", texts)
    if done["val"]:
        assert not asks(r"call run\.val\(loss\)|, and run\.val\(loss\)", texts)
    else:
        assert asks(r"run\.val\(loss\)", texts)
    if done["val"] and done["val_batches"]:
        assert not asks(r"give run\.val\(", texts)
    if done["batch"]:
        assert not asks(r"give run\.step\(loss, batch", texts)
    if done["finished"]:
        assert not asks(r"let it run on", texts)
    assert not asks(r"call run\.step\(", texts)
    assert not asks(r"declare config=\{\"vocab_size", texts)
    assert not asks(r"step inf", texts)


def test_what_is_declared_but_does_not_fit(tmp_path: Path) -> None:
    record(tmp_path / "run", watch=True, val=True, val_batches=True, batch=True, finished=True, width=4, vocab_size=500)
    texts = asks("vocab_size", list(hints(tmp_path / "run")))
    assert "vocab_size 500 is declared, but the model's output has 4 values" in texts
    assert not asks(r"neither vocab_size|declare config", texts)


def test_what_is_inferred_is_not_called_unknown(tmp_path: Path) -> None:
    record(tmp_path / "run", watch=True, val=False, val_batches=False, batch=False, finished=True, init="random")
    assert not asks("or could be inferred", list(hints(tmp_path / "run")))


LOGS = {
    "a.log": "".join(f"iter {step}: loss {4 / (step + 1):.4f}, time 2ms\n" for step in range(30)),
    "b.csv": "epoch,loss,val_loss\n" + "".join(f"{epoch},{4 / (epoch + 1)},{5 / (epoch + 1)}\n" for epoch in range(12)),
    "c.csv": "step,loss,grad_norm,lr\n" + "".join(f"{step},nan,nan,0.1\n" for step in range(40)),
    "d.csv": "step,val_loss\n" + "".join(f"{step},{9 / (step + 1)}\n" for step in range(5)),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_reader_of_a_log_is_asked_for_what_can_be_done(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(LOGS[name])
    steadyrun.import_log(tmp_path / name, tmp_path / "run")
    texts = list(hints(tmp_path / "run"))
    assert texts
    assert not asks(r"run\.(watch|val|step|log)|steadyrun\.record|let it run on|declare config", texts)
    assert not asks(r"step inf", texts)


def test_a_log_without_a_known_loss_names_its_series(tmp_path: Path) -> None:
    rows = "".join(f"{step},{9 / (step + 1)},{step % 7}\n" for step in range(30))
    (tmp_path / "a.csv").write_text(f"step,wibble,elapsed\n{rows}")
    steadyrun.import_log(tmp_path / "a.csv", tmp_path / "run")
    text = phrases.verdict(steadyrun.check(tmp_path / "run"))
    assert "no series is known as the loss; name the loss with --map loss=NAME" in text
    assert "or a reward, accuracy or another score with --map score=NAME: the log has wibble" in text


def test_a_run_that_has_only_begun_is_waited_for(tmp_path: Path) -> None:
    run = steadyrun.record(tmp_path / "run")
    try:
        assert not asks(r"call run\.|let it run on.*call", list(hints(tmp_path / "run")))
    finally:
        run.close()


@pytest.mark.parametrize("schedule", ["polynomial", "one-cycle", "WSD"])
def test_a_declared_schedule_that_is_not_known_is_named(schedule: str, tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run", config={"schedule": schedule, "lr_max": 0.1, "total_steps": 30}) as run:
        for step in range(30):
            run.log(loss=4 / (step + 1), lr=0.1 / (step + 1))
    texts = {*asks(f"the declared schedule '{schedule}'", list(hints(tmp_path / "run")))}
    assert len(texts) == 2  # of the question, and of the note about the config
    assert all("cosine, linear, constant" in text for text in texts)


@pytest.mark.parametrize("schedule", ["Cosine", "linear_with_warmup", "constant", None])
def test_a_declared_schedule_that_is_known_is_not(schedule: str | None, tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run", config={"schedule": schedule}) as run:
        for step in range(30):
            run.log(loss=4 / (step + 1), lr=0.1)
    assert not asks("the declared schedule", list(hints(tmp_path / "run")))
