"""The losses of a generator and a discriminator: whether one side has won, both stand still, or the game goes on."""

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
    """A game that is lost for one side, or that nobody plays."""
    return _won(run, limit) or _silent(run, limit) or _fooled(run, limit) or _still(run, limit)


def in_balance(run: Signals, limit: Limits) -> Finding | None:
    """A game whose players alone are logged, with what they reconstruct: it must fall, and no side may be winning."""
    pairs = opponents(run)
    if run.has("loss") or not pairs:
        return None
    players = dict.fromkeys(name for pair in pairs for name in pair)
    for name in players:
        side = levels(run, name, limit["losses"], rises=True)
        if not side.start / limit["won"] < side.end < side.start * limit["won"]:
            raise NotApplicable(f"{name} goes from {shown(side.start)} to {shown(side.end)}: one side may be winning")
    others = {name: levels(run, name, limit["losses"]) for name in beside_a_game(run, limit["losses"])}
    worse = [name for name, loss in others.items() if not _stays_down(loss, limit)]
    falls = [name for name, loss in others.items() if _falls(loss, limit)]
    if worse or not falls:
        why = f"{worse[0]} does not stay down" if worse else "no reconstruction that falls is logged beside them"
        raise NotApplicable(f"the losses of two opponents need not fall, and {why}")
    named = " and ".join(f"{name} at {shown(levels(run, name, limit['losses']).end)}" for name in list(players)[:2])
    down = others[falls[0]]
    words = f"{named} stay in play, and {falls[0]} falls from {shown(down.start)} to {shown(down.end)}"
    return Finding("in-play", f"{words}: neither side has won.", {"fallen": down.fallen})


def _falls(loss: Levels, limit: Limits) -> bool:
    steady = loss.chance_of_fall < limit["steady"]
    return loss.fallen > limit["beside"] and (steady or loss.start - loss.end > limit["errors"] * loss.error)


def _stays_down(loss: Levels, limit: Limits) -> bool:
    """Whether a loss ends near its best, or not clearly above it."""
    back = loss.end - loss.best
    return back <= limit["errors"] * loss.error or (loss.end <= loss.start and loss.lost <= limit["lost"])


def _silent(run: Signals, limit: Limits) -> Finding | None:
    """A discriminator whose loss began above zero and is gone in the end, whatever the generator's other terms do."""
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
            words = f"{discriminator} begins at {shown(start)} and is at most {top} in {percent(share)} of the "
            words += f"last {len(last)} values (limit {percent(limit['most'])})"
            return Finding("won", f"{words}: the generator never fools it.", {"end": float(last[-1]), "share": share})
    return None


def _fooled(run: Signals, limit: Limits) -> Finding | None:
    """A discriminator that does ever worse, beyond what a coin costs it, while the generator's loss falls."""
    for generator, discriminator in opponents(run):
        sides = [run.maybe(name) for name in (generator, discriminator)]
        if any(side is None or len(side) < limit["points"] or float(np.min(side.values)) < 0 for side in sides):
            continue  # a critic's or hinge loss: it has no such coin
        made, judge = (levels(run, name, limit["losses"], rises=True) for name in (generator, discriminator))
        falls = made.start - made.end > max(limit["errors"] * made.error, limit["beside"] * made.start)
        worse = judge.end - judge.start > limit["errors"] * judge.error and judge.chance_of_climb < limit["steady"]
        if falls and worse and judge.end > (1 + limit["coin"]) * max(_COIN, judge.start):
            words = f"{discriminator} climbs from {shown(judge.start)} to {shown(judge.end)}, more than the "
            words += f"{shown(_COIN)} of a coin, and {generator} falls from {shown(made.start)} to {shown(made.end)}."
            return Finding("fooled", words, {"start": judge.start, "end": judge.end, "generator": made.end})
    return None


_COIN = 2 * math.log(2)  # cross-entropy of a coin for real and generated data together; squared errors are smaller


def _won(run: Signals, limit: Limits) -> Finding | None:
    """The discriminator of a pair that has won for good: its loss is gone, and the generator's at its highest."""
    for generator, discriminator in opponents(run):
        sides = [run.maybe(name) for name in (generator, discriminator)]
        if any(side is None or len(side) < limit["losses"] or float(np.min(side.values)) < 0 for side in sides):
            continue
        made, judge = (levels(run, name, limit["losses"], rises=True) for name in (generator, discriminator))
        surely = limit["errors"] * made.error
        gone = judge.later < judge.start / limit["won"]
        if gone and made.end - made.start > surely and made.best - made.end <= surely:
            words = f"{discriminator} goes from {shown(judge.start)} to {shown(judge.end)} and stays below "
            words += f"{shown(judge.later)}, {generator} from {shown(made.start)} to {shown(made.end)}"
            measured = {"start": judge.start, "end": judge.end, "generator": made.end}
            return Finding("won", f"{words}: the generator no longer fools it.", measured)
    return None


def _still(run: Signals, limit: Limits) -> Finding | None:
    """Two opponents that both stay at one value for the whole record: a game that is played moves both."""
    for pair in opponents(run):
        if any((points := run.maybe(name)) is None or len(points) < limit["losses"] for name in pair):
            continue
        made = levels(run, pair[0], limit["losses"])
        moves = [_moves(run, name, limit) for name in pair]
        if made.steps < limit["patience"] or max(moves) > limit["still"] or min(moves) == 0:
            continue
        stays = " and ".join(f"{name} at {shown(np.median(run.points(name).values))}" for name in pair)
        words = f"{stays} stay within {percent(max(moves))} (limit {percent(limit['still'])}) for the whole record"
        return Finding("standstill", f"{words}: neither side moves the other.", {"moves": max(moves)})
    return None


def _moves(run: Signals, name: str, limit: Limits) -> float:
    """How far a series moves, in parts of its median: most of its values, and the medians of its stretches."""
    values, rest = run.points(name).values, (1 - limit["most"]) / 2
    low, high = (levels(run, name, limit["losses"], rises=rises).best for rises in (False, True))
    usual, middle = float(np.ptp(np.quantile(values, (rest, 1 - rest)))), abs(float(np.median(values)))
    return max(usual, high - low) / middle if middle else math.inf


GAME_LIMITS = (
    Threshold(
        name="won",
        value=10,
        unit="times the first loss",
        meaning="how far up or down the loss of two opponents may go",
        seed="",
        decision="a side that has won drives its loss to nothing, and that of the other up without end",
    ),
    Threshold(
        name="still",
        value=0.05,
        unit="of the median loss",
        meaning="if the losses of both opponents move by less, from the first steps on, neither side learns",
        seed="",
        decision="measured: 0.5 and more in healthy games, even if both hover; 0.02 in one that nobody plays",
        of="-moves",
    ),
    Threshold(
        name="most",
        value=0.9,
        unit="fraction of the losses",
        meaning="of which the move is measured",
        seed="",
        decision="single outliers are not a game",
    ),
    Threshold(
        name="last",
        value=5,
        unit="th part of the record",
        meaning="which is its end, of validations as their median",
        seed="",
        decision="as in V1.3",
    ),
    Threshold(
        name="silent",
        value=0.005,
        unit="of the discriminator's first loss",
        meaning="below this it is right with certainty, and the generator gets no gradient from it",
        seed="",
        decision="an untrained discriminator begins near a guess: of the cross-entropy of a guess this is a "
        "probability of 0.997",
    ),
    Threshold(
        name="coin",
        value=0.1,
        unit="of the loss of a coin, and of its first loss",
        meaning="how far above both a discriminator's loss may climb",
        seed="",
        decision="in a balanced game it hovers at or below that of a coin",
    ),
    Threshold(
        name="beside",
        value=0.2,
        unit="fraction of the first loss",
        meaning="how far a reconstruction must fall beside two opponents that are alone in a log",
        seed="",
        decision="ten times the fall of a loss that must fall: it alone shows that the game teaches anything",
    ),
)

GAME_OUTCOMES = (
    Outcome(name="in-play", answer=PASS, meaning="two opponents keep each other busy"),
    Outcome(
        name="won",
        answer=SUSPECT,
        meaning="the discriminator has won for good: the generator learns nothing from it any more",
        fix="Lower the discriminator's learning rate or train it less often, add noise or label smoothing to what "
        "it sees, and go back to a checkpoint before its loss was gone.",
        experiment="Train on from a checkpoint before that with a third of the discriminator's learning rate. If "
        "both losses stay in between, it was too strong; if not, look at what tells real from generated data.",
        may_pass=True,
    ),
    Outcome(
        name="fooled",
        answer=SUSPECT,
        meaning="the discriminator does worse than a coin: what it teaches the generator is of no use",
        fix="Train the discriminator more often or with a higher rate, and check the labels of real and generated "
        "batches, its batch normalisation and that its optimizer has its parameters.",
        experiment="Train the discriminator alone for 200 steps against a fixed generator. If its loss falls below "
        "that of a coin, it was too weak or too slow; if not, its inputs, labels or optimizer are wrong.",
        may_pass=True,
    ),
    Outcome(
        name="standstill",
        answer=SUSPECT,
        meaning="generator and discriminator both stay at one value: neither side learns",
        fix="Check that each optimizer has the parameters of its side and that real and generated batches reach "
        "the discriminator; then check the weight of the adversarial term beside the other losses.",
        experiment="Train the discriminator alone for 200 steps against a fixed generator. If its loss falls, the "
        "weights or rates of the two sides do not fit; if not, its inputs, labels or optimizer are wrong.",
        may_pass=True,
    ),
)
