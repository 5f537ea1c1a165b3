"""Trials as they are kept with a run: a made-up one, real ones, and ways to damage them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

import steadyrun
from steadyrun.trial.result import Trial
from steadyrun.trial.trial import trial

MARKS = [0, 25, 50, 100]
MESSAGE = "the learning rate divided by 10: the loss ends at 1 and not at 2."


def row(factor: str, words: str, mean: float | None, loss: Any = 1.0, **parts: Any) -> dict[str, Any]:
    gain = None if mean is None else {"mean": mean, "low": mean - 0.05, "high": mean + 0.06}
    entry = {"factor": factor, "group": "rate", "words": words, "seeds": 2, "loss": loss, "gain": gain, "note": ""}
    return entry | parts


def curve(factor: str, losses: list[Any], seed: int = 1, **parts: Any) -> dict[str, Any]:
    return {"factor": factor, "seed": seed, "marks": MARKS, "losses": {"held": losses, "seen": [9.0] * 4}} | parts


def kept(**parts: Any) -> dict[str, Any]:
    """A trial that finds the learning rate ten times too high."""
    rows = [
        row("own", "nothing changed", None, 2.0),
        row("no-decay", "no weight decay", 0.001, 2.0),
        row("sgd", "plain SGD in the optimizer's place", 0.6),
        row("rate*10", "the learning rate times 10", None, "inf", note="given up at step 25: far behind"),
        row("rate*0.1", "the learning rate divided by 10", 0.52),
        row("warmup", "a longer warmup", -0.3, 2.5),
    ]
    curves = [
        *(curve("own", [3.0, 2.5, 2.2, 2.0 + seed / 10], seed) for seed in (1, 2)),
        curve("no-decay", [3.0, 2.5, 2.2, 2.0]),
        curve("sgd", [3.0, 2.0, 1.5, 1.0]),
        curve("rate*10", [3.0, 400.0, "nan", "inf"]),
        *(curve("rate*0.1", [3.0, 2.0, 1.2, 1.0 + seed / 10], seed) for seed in (1, 2)),
        curve("warmup", [3.0, 2.9, 2.7, 2.5]),
    ]
    content = {
        "schema": 1,
        "program": "train:task",
        "start": "the first weights",
        "steps": 100,
        "measured_on": "held",
        "verdict": "fault",
        "code": "C7.2",
        "outcome": "rate-too-high",
        "factor": "rate*0.1",
        "message": MESSAGE,
        "would_decide": "",
        "fix": "",
        "tested": ["C7.1", "C7.2", "C7.3"],
        "rows": rows,
        "curves": curves,
    }
    return content | parts


def keep(run: Path, content: Any) -> Path:
    """Write a trial.json."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "trial.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return run


NUMBERS = st.one_of(
    st.floats(), st.sampled_from(["nan", "inf", "-inf", "1e400"]), st.integers(), st.just(2**70), st.none()
)
ANY_JSON = st.recursive(
    st.one_of(NUMBERS, st.booleans(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)
_FACTORS = st.sampled_from(["own", "sgd", "rate*0.1", "", "<b>"])
_ROWS = st.fixed_dictionaries(
    {"factor": _FACTORS, "words": st.text(max_size=8) | ANY_JSON, "seeds": ANY_JSON, "loss": NUMBERS | ANY_JSON},
    optional={
        "gain": ANY_JSON | st.fixed_dictionaries({"mean": NUMBERS, "low": NUMBERS, "high": NUMBERS}),
        "note": ANY_JSON,
    },
)
_CURVES = st.fixed_dictionaries(
    {
        "factor": _FACTORS,
        "marks": st.lists(st.integers(-1, 50) | ANY_JSON, max_size=6) | ANY_JSON,
        "losses": st.fixed_dictionaries({"held": st.lists(NUMBERS, max_size=6) | ANY_JSON}) | ANY_JSON,
    }
)
_TEXTS = ("code", "outcome", "factor", "message", "would_decide", "fix", "tested", "start", "steps")
ODD_TRIALS = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "verdict": st.sampled_from(["fault", "clear", "improvement", "undecided", "other"]),
        "measured_on": st.just("held") | ANY_JSON,
        "rows": st.lists(_ROWS | ANY_JSON, max_size=6) | ANY_JSON,
        "curves": st.lists(_CURVES | ANY_JSON, max_size=8) | ANY_JSON,
    },
    optional=dict.fromkeys(_TEXTS, ANY_JSON),
)
"""Content that is read as a trial, with anything in its places."""


def _loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def program(config: dict[str, Any]) -> steadyrun.Task:
    """A classifier of points, small enough to be trained many times."""
    generator = torch.Generator().manual_seed(7)
    points = torch.randn(640, 8, generator=generator)
    labels = (points @ torch.randn(8, 3, generator=generator)).argmax(1)
    data = torch.utils.data.TensorDataset(points, labels)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    return steadyrun.Task(model=model, optimizer=optimizer, loss_fn=_loss, loader=loader, config=config)


def tried_run(run: Path, rate: float = 0.5, steps: int = 40) -> Trial:
    """A real run whose learning rate is far too high, with a real trial of its rates."""
    config = {"lr": rate, "seed": 1}
    torch.manual_seed(1)
    task = program(config)
    with steadyrun.record(run, config=config) as recorded:
        recorded.watch(task.model, task.optimizer)
        assert task.loader is not None
        for batch in list(task.loader)[:steps]:
            task.optimizer.zero_grad()
            loss = _loss(task.model, batch)
            loss.backward()
            task.optimizer.step()
            recorded.step(loss)
    return trial(program, run=run, only=["rate"], steps=steps, budget=60)
