"""A4.6: do all blocks keep moving?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed


def find(run: Signals, limit: Limits) -> Finding:
    families = {name.partition("/")[2]: run.maybe(name) for name in run.matching("update_ratio/*")}
    moves = {name: points for name, points in families.items() if points is not None}
    if not moves:
        raise MissingSignal("update_ratio/*", how="call run.watch(model, optimizer) before training")
    stopped = []
    for name, points in moves.items():
        last = points.values[-int(limit["samples"]) :]
        if len(points) > len(last) and np.any(points.values[: -len(last)] > 0) and np.all(last == 0):
            stopped.append(name)
    measured = {"blocks": float(len(moves)), "stopped": float(len(stopped))}
    if stopped and len(stopped) < len(moves):
        move = "moves" if len(stopped) == 1 else "move"
        message = f"{len(stopped)} of {len(moves)} blocks moved at first but no longer {move}: {listed(stopped)}."
        return Finding("stopped", message, measured)
    return Finding("pass", f"Blocks that still move: {len(moves) - len(stopped)} of {len(moves)}.", measured)


QUESTION = Question(
    code="A4.6",
    name="all blocks keep moving",
    asks="Do blocks that moved at first still move?",
    why="A part that stops while others move on was frozen, detached or removed from the optimizer during the run.",
    needs=("update_ratio/*",),
    panel=5,
    thresholds=(
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="for how many of the last samples a block must not move",
            seed="",
            decision="one or two may be skipped steps; gradual unfreezing goes the other way",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all blocks keep moving"),
        Outcome(
            name="stopped",
            answer=NOTE,
            meaning="a part of the model stopped moving",
            fix="Find out what changed at that step, unless it is intended.",
        ),
    ),
    find=find,
    always=True,
)
