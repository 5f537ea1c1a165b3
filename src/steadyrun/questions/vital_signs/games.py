"""The losses of a generator and a discriminator: whether one side has won, neither moves, or both stay in balance."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels, true_start
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import beside_a_game, opponents
from steadyrun.text import percent, shown


def game_over(run: Signals, limit: Limits) -> Finding | None:
    """A game that one side has won, or in which neither side moves."""
    return _won(run, limit) or _silent(run, limit) or _fooled(run, limit) or _still(run, limit)


def in_balance(run: Signals, limit: Limits) -> Finding | None:
    """A log of both opponents and a reconstruction loss: the reconstruction must fall, and neither side may win."""
    pairs = opponents(run)
    if run.has("loss") or not pairs:
        return None
    players = dict.fromkeys(name for pair in pairs for name in pair)
    for name in players:
        side = levels(run, name, limit["losses"], rises=True)
        began = true_start(run.points(name).values)
        if not max(side.start, began) / limit["won"] < side.end < min(side.start, began) * limit["won"]:
            raise NotApplicable(f"{name} went from {shown(began)} to {shown(side.end)}: one side may be winning")
    for _, discriminator in pairs:  # a record may begin after one side has won
        if levels(run, discriminator, limit["losses"]).end < limit["silent"] * _COIN_SQUARED:
            raise NotApplicable(f"{discriminator} is nearly 0 at the end: one side may have won")
    others = {name: levels(run, name, limit["losses"]) for name in beside_a_game(run, limit["losses"])}
    worse = [name for name, loss in others.items() if not _stays_down(loss, limit)]
    falls = [name for name, loss in others.items() if _falls(loss, limit)]
    if worse or not falls:
        why = f"{worse[0]} does not stay down" if worse else "no reconstruction loss that falls is logged"
        raise NotApplicable(f"the losses of a generator and a discriminator need not fall, and {why}")
    named = ", ".join(f"{name} {shown(levels(run, name, limit['losses']).end)}" for name in list(players)[:2])
    down = others[falls[0]]
    words = f"Neither side has won ({named}), and {falls[0]} fell from {shown(down.start)} to {shown(down.end)}."
    return Finding("in-play", words, {"fallen": down.fallen})


def _falls(loss: Levels, limit: Limits) -> bool:
    steady = loss.chance_of_fall < limit["steady"]
    return loss.fallen > limit["beside"] and (steady or loss.start - loss.end > limit["errors"] * loss.error)


def _stays_down(loss: Levels, limit: Limits) -> bool:
    """Whether a loss ends near its best, or not clearly above it."""
    back = loss.end - loss.best
    return back <= limit["errors"] * loss.error or (loss.end <= loss.start and loss.lost <= limit["lost"])


def _silent(run: Signals, limit: Limits) -> Finding | None:
    """A discriminator whose loss began above zero and ends near zero, whatever the generator's other terms do."""
    for generator, discriminator in opponents(run):
        judge = run.maybe(discriminator)
        if judge is None or len(judge) < limit["points"] or run.maybe(generator) is None:
            continue
        last = judge.values[-max(limit.count("losses"), len(judge) // limit.count("last")) :]
        start = true_start(judge.values)
        gone = (last >= 0) & (last < limit["silent"] * start)
        share = float(np.mean(gone))
        if start > 0 and share > limit["most"]:
            top = shown(float(np.max(last[gone])))
            words = f"{discriminator} began at {shown(start)} and is at most {top} in {percent(share)} of the "
            words += f"last {len(last)} values (limit {percent(limit['most'])})."
            return Finding("won", words, {"end": float(last[-1]), "share": share})
    return None


def _fooled(run: Signals, limit: Limits) -> Finding | None:
    """A discriminator whose loss rises above that of random guessing while the generator's loss falls."""
    for generator, discriminator in opponents(run):
        sides = [run.maybe(name) for name in (generator, discriminator)]
        if any(side is None or len(side) < limit["points"] or float(np.min(side.values)) < 0 for side in sides):
            continue  # a critic's or hinge loss: random guessing has no fixed loss there
        made, judge = (levels(run, name, limit["losses"], rises=True) for name in (generator, discriminator))
        falls = made.start - made.end > max(limit["errors"] * made.error, limit["beside"] * made.start)
        worse = judge.end - judge.start > limit["errors"] * judge.error and judge.chance_of_climb < limit["steady"]
        if falls and worse and judge.end > (1 + limit["coin"]) * max(_COIN, judge.start):
            words = f"{discriminator} rose from {shown(judge.start)} to {shown(judge.end)} (random guessing: "
            words += f"{shown(_COIN)}), while {generator} fell from {shown(made.start)} to {shown(made.end)}."
            return Finding("fooled", words, {"start": judge.start, "end": judge.end, "generator": made.end})
    return None


_COIN_SQUARED = (1 / 2) ** 2  # the squared error of random guessing
_COIN = 2 * math.log(2)  # cross-entropy of random guessing, real plus generated data; squared errors are smaller


def _won(run: Signals, limit: Limits) -> Finding | None:
    """A discriminator that has won: its loss is near zero, and the generator's is at its highest."""
    for generator, discriminator in opponents(run):
        sides = [run.maybe(name) for name in (generator, discriminator)]
        if any(side is None or len(side) < limit["losses"] or float(np.min(side.values)) < 0 for side in sides):
            continue
        made, judge = (levels(run, name, limit["losses"], rises=True) for name in (generator, discriminator))
        surely = limit["errors"] * made.error
        began = max(judge.start, true_start(run.points(discriminator).values))
        gone = judge.later < began / limit["won"]
        if gone and made.end - made.start > surely and made.best - made.end <= surely:
            words = f"{discriminator} fell from {shown(began)} to {shown(judge.end)} and stays there, "
            words += f"while {generator} rose from {shown(made.start)} to {shown(made.end)}."
            measured = {"start": began, "end": judge.end, "generator": made.end}
            return Finding("won", words, measured)
    return None


def _still(run: Signals, limit: Limits) -> Finding | None:
    """Two opponents whose losses both stay at one value for the whole record: learning would move both."""
    for pair in opponents(run):
        if any((points := run.maybe(name)) is None or len(points) < limit["losses"] for name in pair):
            continue
        made = levels(run, pair[0], limit["losses"])
        moves = [_moves(run, name, limit) for name in pair]
        if made.steps < limit["patience"] or max(moves) > limit["still"] or min(moves) == 0:
            continue
        stays = " and ".join(f"{name} ({shown(np.median(run.points(name).values))})" for name in pair)
        words = (
            f"{stays} vary by at most {percent(max(moves))} over the whole record (limit {percent(limit['still'])})."
        )
        return Finding("standstill", words, {"moves": max(moves)})
    return None


def _moves(run: Signals, name: str, limit: Limits) -> float:
    """How far a series varies, as a fraction of its median: most of its values, and the medians of its stretches."""
    values, rest = run.points(name).values, (1 - limit["most"]) / 2
    low, high = (levels(run, name, limit["losses"], rises=rises).best for rises in (False, True))
    usual, median = float(np.ptp(np.quantile(values, (rest, 1 - rest)))), abs(float(np.median(values)))
    return max(usual, high - low) / median if median else math.inf


GAME_LIMITS = (
    Threshold(
        name="won",
        value=10,
        unit="times the first loss, up or down",
        meaning="how far the loss of a generator or a discriminator may move before one side has won",
        seed="",
        decision="the side that wins drives its loss to zero and the other's up without bound",
    ),
    Threshold(
        name="still",
        value=0.05,
        unit="of the median loss",
        meaning="if both losses vary by less over the whole record, neither side learns",
        seed="",
        decision="measured: 0.5 and more in healthy games, even if both losses hover; 0.02 in one where neither side "
        "learns",
        of="-moves",
    ),
    Threshold(
        name="most",
        value=0.9,
        unit="fraction of the losses",
        meaning="how many of the losses the variation covers; the rest may be outliers",
        seed="",
        decision="single outliers do not show that both sides learn",
    ),
    Threshold(
        name="last",
        value=5,
        unit="equal parts of the record",
        meaning="the last of these parts is the end of the record; for validations its median counts",
        seed="",
        decision="as in V1.3",
    ),
    Threshold(
        name="silent",
        value=0.005,
        unit="of the discriminator's first loss",
        meaning="below this the discriminator is always right, and the generator gets no gradient from it",
        seed="",
        decision="an untrained discriminator starts near random guessing; this fraction of that loss means a "
        "probability of 0.997",
    ),
    Threshold(
        name="coin",
        value=0.1,
        unit="of the loss of random guessing, and of its first loss",
        meaning="how far above both a discriminator's loss may rise",
        seed="",
        decision="in a balanced game the loss stays at or below that of random guessing",
    ),
    Threshold(
        name="beside",
        value=0.2,
        unit="fraction of the first loss",
        meaning="how far a reconstruction loss must fall if the log has no other loss beside the two opponents",
        seed="",
        decision="ten times the fall that counts for an ordinary loss: it is the only evidence of learning",
    ),
)

GAME_OUTCOMES = (
    Outcome(name="in-play", answer=PASS, meaning="generator and discriminator are in balance"),
    Outcome(
        name="won",
        answer=SUSPECT,
        meaning="the discriminator has won: the generator gets no useful gradient",
        fix="Go back to a checkpoint from before the discriminator's loss reached zero. Lower its learning rate or "
        "train it less often; add noise or label smoothing to its inputs.",
        experiment="Continue from that checkpoint with a third of the discriminator's learning rate. If both losses "
        "stay between their extremes, it was too strong; if not, find out what separates real from generated inputs.",
        may_pass=True,
    ),
    Outcome(
        name="fooled",
        answer=SUSPECT,
        meaning="the discriminator is worse than random guessing",
        fix="Train the discriminator more often or with a higher learning rate. Check the labels of real and generated "
        "batches, its batch normalisation, and that its optimizer has its parameters.",
        experiment="Train the discriminator alone for 200 steps against a fixed generator. If its loss falls below "
        "that of random guessing, it was too weak or too slow; if not, its inputs, labels or optimizer are wrong.",
        may_pass=True,
    ),
    Outcome(
        name="standstill",
        answer=SUSPECT,
        meaning="neither the generator nor the discriminator learns",
        fix="Check that each optimizer has the parameters of its own side and that real and generated batches reach "
        "the discriminator. Then check the weight of the adversarial term.",
        experiment="Train the discriminator alone for 200 steps against a fixed generator. If its loss falls, the "
        "loss weights or learning rates of the two sides do not match; if not, its inputs, labels or optimizer are "
        "wrong.",
        may_pass=True,
    ),
)
