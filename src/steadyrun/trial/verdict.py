"""From the twins' curves to a verdict: which change decides, how much, how sure; or undecided, and what would help."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from steadyrun.text import counted, listed, percent, shown
from steadyrun.trial import factor as kinds
from steadyrun.trial.curve import Curve, Drawn
from steadyrun.trial.statistics import Effect, effect, seeds_needed, spread, steps_to

FAULT, IMPROVEMENT, CLEAR, UNDECIDED = "fault", "improvement", "clear", "undecided"

# A change decides if its twin is where the unchanged one ends after this share of the steps. In short trials a higher
# rate is often ahead of the right one (in 11 of 16 healthy programs one of 3 or 10 times), so it must be ahead by more,
# a hundredfold one as well, and the program must learn next to nothing without it.
DECIDES, DECIDES_HIGHER = 1 / 3, 0.2
FAR_HIGHER = "rate*100"
IDLE = 0.25  # of what can be learned: a program that learns more has a slow rate at most, which is no fault
PROMISING = 0.6  # of the steps: what is slower gets no second seed
REPEATED = "repeated"
FEW_EXAMPLES = 0.5  # of the examples that are to be expected; drawing with replacement gives 63%
SAME_BATCH = 8  # times
LEARNED = 0.05  # of the first loss: less than this is nothing
# Of what validation data teach about each other, the part that training data must teach: 0.93 to 1.9 in 16 healthy
# programs, 0 to 0.69 in 4 whose validation data are prepared or numbered differently.
CARRIES_OVER = 0.75

# The question whose cause a change decides, and the outcome that it proves.
CAUSES: dict[str, tuple[str, str]] = {
    "rate-high": ("C7.2", "rate-too-high"),
    "rate-low": ("C7.1", "rate-too-low"),
    kinds.WARMUP: ("C7.2", "rate-too-high"),
    kinds.DECAY: ("C7.3", "too-strong"),
    kinds.DROPOUT: ("C7.5", "too-high"),
    kinds.SMOOTHING: ("C7.6", "hides-learning"),
    kinds.CLIP: ("C7.1", "clip-too-tight"),
    kinds.OPTIMIZER: ("C7.4", "epsilon"),
    kinds.START: ("C5.1", "too-wide"),
    kinds.PRECISION: ("A4.5", "rounded-away"),
    kinds.TARGETS: ("S1.4", "unrelated"),
    kinds.INPUTS: ("P3.5", "inputs-ignored"),
    kinds.PREPARATION: ("A5.6", "differs"),
    REPEATED: ("V1.6", "stuck"),
    kinds.PART: ("A4.1", "left-out"),
    kinds.TERM: ("V1.2", "term-left-behind"),
    kinds.FUNCTION: ("T1.1", "backward"),
    kinds.BLOCK: ("T1.2", "block"),
}


FIXES: dict[str, str] = {
    kinds.WARMUP: "warm up for longer, or lower the learning rate",
    kinds.DECAY: "lower the weight decay; 0.01 to 0.1 is usual with AdamW",
    kinds.DROPOUT: "lower the dropout; 0.1 to 0.5 is usual",
    kinds.SMOOTHING: "lower the label smoothing; 0.1 is usual",
    kinds.CLIP: "raise the clip threshold, or do not clip",
    kinds.OPTIMIZER: "go back to the optimizer's usual betas, epsilon and momentum",
    kinds.START: "use the modules' own initial weights, or a smaller standard deviation",
    kinds.PRECISION: "keep the weights in float32 and use autocast for the passes",
    kinds.TARGETS: "look at a few examples with their targets: index, shuffle and join inputs and targets together",
    kinds.INPUTS: "follow the input through the model: something drops or overwrites it",
    kinds.PREPARATION: "prepare training and validation with the same code: scale, vocabulary, numbering of classes",
    REPEATED: "let the loader go on: shuffle, and make no new iterator at every step",
    kinds.PART: "give the optimizer these parameters, after the model is complete, and do not detach or freeze them",
    kinds.TERM: "lower the weight of this term",
    kinds.FUNCTION: "correct its backward, or let autograd differentiate the forward",
    kinds.BLOCK: "look into this block, or replace it by a plain one",
}


@dataclass(frozen=True)
class Row:
    """One change and what came of it. `gain` is a share of what can be learned; None if no twin ended."""

    factor: str
    group: str
    words: str
    seeds: int
    loss: float
    gain: Effect | None
    speed: float  # of the steps, after which it is where the unchanged twin ends
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the twins say."""

    kind: str
    cause: str  # a key of CAUSES; "" if there is none
    factor: str
    message: str
    more: str = ""  # of an undecided trial: what would decide
    code: str = ""
    outcome: str = ""
    fix: str = ""


@dataclass
class Table:
    """All curves of a trial, by change and seed."""

    split: str
    factors: Mapping[str, kinds.Factor]
    compares: Sequence[bool] = ()  # of the loss's terms, whether each compares something with targets
    moves_freely: str = ""  # why the loss cannot be judged
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)

    def add(self, curve: Curve) -> None:
        self.curves.setdefault(curve.factor, {})[curve.seed] = curve

    @property
    def own(self) -> dict[int, Curve]:
        return self.curves.get(kinds.OWN_TWIN.name, {})

    def factor(self, name: str) -> kinds.Factor:
        known = self.factors.get(name)
        if known is not None:
            return known
        return kinds.rate_factor(float(name.partition("*")[2])) if name.startswith("rate*") else kinds.OWN_TWIN

    def ends(self, name: str, split: str | None = None) -> list[float]:
        return [curve.end(split or self.split) for _, curve in sorted(self.curves.get(name, {}).items())]

    def mean_and_spread(self, name: str) -> tuple[float, float]:
        """Of the twins with this change that ended: mean and standard deviation of the last loss between seeds."""
        ends = [end for end in self.ends(name) if math.isfinite(end)]
        return (float(np.mean(ends)), spread(ends)) if ends else (math.nan, math.nan)

    def so_far(self) -> str:
        """What is known so far, in a few words."""
        if not self.own:
            return ""
        verdict = decide(self)
        if verdict.factor and verdict.kind in (FAULT, UNDECIDED):
            return f"{self.factor(verdict.factor).words} may be it"
        return verdict.kind if verdict.kind == FAULT else ""

    def tested(self) -> list[str]:
        """The questions whose causes a trial has tried without finding one."""
        groups = {self.factor(name).group for name in self.curves}
        causes = {group for group in groups if group in CAUSES}
        if kinds.RATE in groups:
            causes |= {"rate-high", "rate-low"}
        return sorted({CAUSES[cause][0] for cause in causes})

    def mean_end(self, name: str, split: str | None = None) -> float:
        ends = self.ends(name, split)
        return float(np.mean(ends)) if ends else math.nan

    def start(self, name: str = "own", split: str | None = None) -> float:
        curves = self.curves.get(name, {}).values()
        firsts = [losses[0] for curve in curves if (losses := curve.losses.get(split or self.split))]
        return float(np.mean(firsts)) if firsts else math.nan

    def lowest(self, name: str, split: str | None = None) -> float:
        """The loss of the best mark, the mean of the seeds; NaN if it was not measured."""
        curves = self.curves.get(name, {}).values()
        lows = [
            min(filter(math.isfinite, curve.losses.get(split or self.split, [])), default=math.nan) for curve in curves
        ]
        return float(np.mean(lows)) if lows else math.nan

    def learned(self, name: str, split: str | None = None) -> float:
        """How much of its first loss is gone at the best mark; NaN if it was not measured."""
        start = self.start(name, split)
        return (start - self.lowest(name, split)) / max(abs(start), 1e-12)

    def fall(self, name: str) -> float:
        """How far below the start of the unchanged twin a change ends: its own start may be another."""
        return self.start("own") - self.mean_end(name)

    def ahead(self, name: str, other: str, split: str | None = None) -> float:
        """By how much of the other's lowest loss a twin comes below it; NaN if one was not measured."""
        theirs = self.lowest(other, split)
        return (theirs - self.lowest(name, split)) / max(abs(theirs), LEARNED * abs(self.start("own", split)), 1e-12)

    def is_setting(self, name: str) -> bool:
        return self.factor(name).group in _SETTINGS

    @property
    def attainable(self) -> float:
        """How far the loss falls with the best single change of a setting, or with none."""
        ends = [self.mean_end(name) for name in self.curves if self.is_setting(name) or name == "own"]
        finite = [end for end in ends if math.isfinite(end)]
        start = self.start()
        return start - min(finite) if finite and math.isfinite(start) else math.nan

    def gain(self, name: str) -> Effect | None:
        """What a change brings against the unchanged twins of the same seeds, as a share of what can be learned."""
        changed = self.curves.get(name, {})
        shared = sorted(set(changed) & set(self.own))
        size = max(self.attainable, LEARNED * abs(self.start()))  # of almost nothing, every change is a multiple
        if not shared:
            return None
        own = [self.own[seed].end(self.split) for seed in shared]
        theirs = [changed[seed].end(self.split) for seed in shared]
        if not all(map(math.isfinite, own)) or not size > 0:  # the unchanged twin fails: whatever ends is better
            better = float(
                np.mean([math.isfinite(end) and not math.isfinite(mine) for mine, end in zip(own, theirs, strict=True)])
            )
            return Effect(better, better - 0.5 / len(shared), better, len(shared)) if better > 0 else None
        return effect(own, theirs, spread(self.ends("own")), size)

    def speeds(self, name: str) -> list[float]:
        """Of each seed, the share of the steps after which a change is where the unchanged twin ends."""
        found = []
        for seed, curve in sorted(self.curves.get(name, {}).items()):
            own = self.own.get(seed)
            level = math.inf if own is None else own.end(self.split)
            if not math.isfinite(level):
                level = next(iter(own.losses.get(self.split, [])), math.inf) if own is not None else math.inf
            worse = not curve.end(self.split) < level
            found.append(math.inf if worse else steps_to(curve, self.split, level) / max(1, curve.steps))
        return found

    def teaches(self, name: str) -> bool:
        """Whether a twin learns something, and more than shuffled targets teach."""
        if not self.learned(name) > LEARNED:
            return False
        return "targets-shuffled" not in self.curves or self.ahead(name, "targets-shuffled") > LEARNED


_SETTINGS = {
    *(kinds.RATE, kinds.WARMUP, kinds.DECAY, kinds.DROPOUT, kinds.SMOOTHING, kinds.CLIP, kinds.OPTIMIZER),
    *(kinds.START, kinds.PRECISION, kinds.BATCH, kinds.BLOCK, kinds.FUNCTION, kinds.USER),
}


def rows_of(table: Table) -> list[Row]:
    """The table that users see, in the order in which changes were tried."""
    rows = []
    for name, curves in table.curves.items():
        factor, speeds = table.factor(name), table.speeds(name)
        gain = None if name == "own" else table.gain(name)
        speed = float(np.median(speeds)) if speeds and name != "own" else math.nan
        end = table.mean_end(name)
        rows.append(Row(name, factor.group, factor.words, len(curves), end, gain, speed, _note(list(curves.values()))))
    return rows


def _note(curves: Sequence[Curve]) -> str:
    raised = next((curve.raised for curve in curves if curve.raised), "")
    if raised:
        return f"raised {raised}"
    stopped = [curve.stopped for curve in curves if curve.stopped is not None]
    return f"given up at step {min(stopped)}: far behind" if stopped else ""


def promising(table: Table) -> list[str]:
    """Changes of settings that may decide and should be seen with more seeds, the fastest first."""
    speeds = {name: min(table.speeds(name), default=math.inf) for name in table.curves if table.is_setting(name)}
    return sorted((name for name, speed in speeds.items() if speed < PROMISING), key=lambda name: speeds[name])


def decide(table: Table) -> Verdict:
    """What is proved without training first, then settings, then data and terms, then what is merely better."""
    if table.moves_freely:
        message = f"{table.moves_freely}: where it ends says nothing about success."
        return Verdict(UNDECIDED, "", "", message, "run the program to its end and compare the returns that it logs")
    for rule in (_repeated, _parts, _inputs, _setting, _labels, _prepared, _terms, _block, _improvement):
        found = rule(table)
        if found is not None:
            code, outcome = CAUSES.get(found.cause, ("", ""))
            return replace(found, code=code, outcome=outcome, fix=_fix(table, found))
    return _rest(table)


def _fix(table: Table, verdict: Verdict) -> str:
    """What to change."""
    if verdict.kind not in (FAULT, IMPROVEMENT):
        return ""
    if verdict.factor.startswith("rate*"):
        times = float(verdict.factor.partition("*")[2])
        return (
            f"divide the learning rate by {1 / times:.6g}"
            if times < 1
            else f"multiply the learning rate by {times:.6g}"
        )
    if verdict.kind == IMPROVEMENT:
        return f"try it in a longer run: {table.factor(verdict.factor).words}"
    return FIXES.get(verdict.cause, "")


# -- proofs ----------------------------------------------------------------------------------------


def _repeated(table: Table) -> Verdict | None:
    """The loader gives the same examples though its dataset has more: seen without training."""
    own = next(iter(table.own.values()), None)
    if own is None or not own.drawn:
        return None
    drawn = Drawn(**own.drawn)  # type: ignore[arg-type]
    expected = min(drawn.dataset or 0, drawn.examples)
    repeats = drawn.different_batches < FEW_EXAMPLES * drawn.batches  # equal examples alone may be in the dataset
    if repeats and drawn.different_examples < FEW_EXAMPLES * expected:
        message = (
            f"in {drawn.batches} batches the loader gave {drawn.different_examples} different examples "
            f"of the {drawn.dataset} that its dataset has."
        )
        return Verdict(FAULT, REPEATED, "", message)
    if drawn.dataset is None and drawn.different_batches == 1 and drawn.batches >= SAME_BATCH:
        message = f"the loader gave one and the same batch {drawn.batches} times."
        more = "this is right only if that batch is the whole training set: count its examples"
        return Verdict(UNDECIDED, REPEATED, "", message, more)
    return None


def _parts(table: Table) -> Verdict | None:
    """Parts of which a pass uses every parameter and no update changes one, in any seed; tensors in no optimizer."""
    curves = [curve for curve in table.own.values() if not curve.raised]
    if not curves:
        return None
    still = set(curves[0].unmoved).intersection(*(curve.unmoved for curve in curves))
    loose = set(curves[0].unregistered)
    if not still and not loose:
        return None
    if still and not loose and "default-start" in table.curves and _is_fast(table, "default-start"):
        return None  # all zero, say: they are in the optimizer, and their start keeps them from moving
    what = f"did not change in {curves[0].steps} steps" if still else "get a gradient and are in no optimizer"
    return Verdict(FAULT, kinds.PART, "", f"{listed(sorted(still or loose))} {what}: nothing trains this part.")


def _inputs(table: Table) -> Verdict | None:
    """Noise in the place of the inputs: a program that sees them learns otherwise."""
    if "inputs-noise" not in table.curves:
        return None
    pairs = [(table.own[seed], curve) for seed, curve in table.curves["inputs-noise"].items() if seed in table.own]
    whole = [(a, b) for a, b in pairs if len(a.training) == len(b.training) > 2 and not (a.raised or b.raised)]
    same = [np.allclose(a.training[1:], b.training[1:], rtol=1e-4, atol=0) for a, b in whole]
    if not same or not all(same):
        return None
    message = "the training loss is the same with noise in the place of the inputs: nothing of them reaches the loss."
    return Verdict(FAULT, kinds.INPUTS, "inputs-noise", message)


# -- settings --------------------------------------------------------------------------------------


def _setting(table: Table) -> Verdict | None:
    """A change with which the program is soon where it ends without it. A remedy names no cause."""
    return _decided(table, _chosen(table, lambda name: _rank(table, name) < 2 and _is_fast(table, name)))


def _block(table: Table) -> Verdict | None:
    """A block without which the program is soon where it ends with it."""
    is_block = {name for name in table.curves if table.factor(name).group == kinds.BLOCK}
    return _decided(table, _chosen(table, lambda name: name in is_block and _is_fast(table, name)))


def _decided(table: Table, chosen: str | None) -> Verdict | None:
    """A fault if the seeds agree, else what is missing."""
    if chosen is None:
        return None
    gain, speeds = table.gain(chosen), table.speeds(chosen)
    assert gain is not None
    facts, cause = _facts(table, chosen), _cause(table, chosen)
    if gain.seeds > 1 and max(speeds) < 1 and (gain.low > 0 or (gain.seeds > 2 and max(speeds) <= DECIDES)):
        return Verdict(FAULT, cause, chosen, facts)
    needed = seeds_needed(gain)
    more = f"{needed} seeds would show whether it is the cause" if needed else "more seeds would show it"
    return Verdict(UNDECIDED, cause, chosen, facts, more)


def _chosen(table: Table, wanted: Callable[[str], bool]) -> str | None:
    """Of the changes that help enough, the one that names the cause best."""
    good = {
        name: gain for name in table.curves if table.is_setting(name) and wanted(name) and (gain := table.gain(name))
    }
    named = {name: gain for name, gain in good.items() if _rank(table, name) < 2} or good
    if not named:
        return None
    best = max(gain.mean for gain in named.values())
    deepest = max(table.fall(name) for name in named)  # if the unchanged twin explodes, every change gains nearly all
    near = [
        name
        for name, gain in named.items()
        if gain.mean >= (near := table.factor(name).near_best) * best and table.fall(name) >= near * deepest
    ] or list(named)
    return min(near, key=lambda name: (_rank(table, name), -named[name].mean))


def _is_fast(table: Table, name: str) -> bool:
    """Whether a change decides. A higher rate must help by two decades: in short trials one helps healthy programs."""
    higher = name.startswith("rate*") and float(name.partition("*")[2]) > 1
    if higher and not (_reaches(table, FAR_HIGHER, DECIDES_HIGHER) and table.fall("own") < IDLE * table.attainable):
        return False
    return _reaches(table, name, DECIDES_HIGHER if higher else DECIDES) and table.teaches(name)


def _reaches(table: Table, name: str, share: float) -> bool:
    """Whether a change is where the unchanged twin ends after this share of the steps."""
    speeds = table.speeds(name)
    return bool(speeds) and float(np.median(speeds)) <= share


def _rank(table: Table, name: str) -> int:
    if table.factor(name).removes:
        return 0
    return 1 if name.startswith("rate*") else 2


def _cause(table: Table, name: str) -> str:
    if name.startswith("rate*"):
        return "rate-low" if float(name.partition("*")[2]) > 1 else "rate-high"
    return table.factor(name).group


def _facts(table: Table, name: str) -> str:
    gain, speed = table.gain(name), float(np.median(table.speeds(name)))
    assert gain is not None
    sooner = f"reached after {percent(speed)} of the steps" if speed > 0 else "below it from the first measurement on"
    return (
        f"{table.factor(name).words}: the loss ends at {shown(table.mean_end(name))} and not at "
        f"{shown(table.mean_end('own'))}, which is {sooner} (gain {share(gain.mean)} of what can be learned here, "
        f"{share(gain.low)} to {share(gain.high)}, {counted(gain.seeds, 'seed')})."
    )


def share(part: float) -> str:
    """A part of what can be learned; beyond all of it, the number says nothing more."""
    return percent(part) if abs(part) <= 1 else ">100%" if part > 0 else "<-100%"


def _improvement(table: Table) -> Verdict | None:
    """A change that is better for sure, in a program that learns without it."""

    def helps(name: str) -> bool:
        gain = table.gain(name)
        return gain is not None and gain.seeds > 1 and gain.low > 0 and table.teaches(name)

    chosen = _chosen(table, helps) if table.teaches("own") else None
    return None if chosen is None else Verdict(IMPROVEMENT, "", chosen, _facts(table, chosen))


# -- data ------------------------------------------------------------------------------------------


def _has(table: Table, split: str) -> bool:
    own = next(iter(table.own.values()), None)
    return own is not None and bool(own.losses.get(split))


def _validation_teaches(table: Table) -> float:
    """How much better validation data teach about others of their kind than training data, few or all, do."""
    names = [name for name in ("as-few-data", "own") if name in table.curves]
    if "validation-data" not in table.curves:
        return math.nan
    return min(table.ahead("validation-data", name, "validation") for name in names)


def _labels(table: Table) -> Verdict | None:
    """Training data that teach nothing about themselves, in a program that learns from validation data."""
    if "targets-shuffled" not in table.curves or not _has(table, "held"):
        return None
    ahead, teaches = table.ahead("own", "targets-shuffled", "held"), _validation_teaches(table)
    if not (ahead < LEARNED and teaches > 2 * LEARNED):
        return None
    message = (
        f"on training examples kept back the loss falls to {shown(table.lowest('own', 'held'))}, with shuffled targets "
        f"to {shown(table.lowest('targets-shuffled', 'held'))}; a part of the validation data teaches (loss "
        f"{shown(table.lowest('validation-data', 'validation'))} on the rest of them, and not "
        f"{shown(table.lowest('own', 'validation'))}): the training targets do not belong to their inputs."
    )
    return Verdict(FAULT, kinds.TARGETS, "targets-shuffled", message)


def _prepared(table: Table) -> Verdict | None:
    """Training data that teach about themselves, validation data that teach about themselves, and not one the other."""
    if not _has(table, "held") or not _has(table, "validation"):
        return None
    held, validation = table.learned("own", "held"), table.learned("own", "validation")
    if not held > 2 * LEARNED or "validation-data" not in table.curves:
        return None
    there = table.learned("validation-data", "validation")
    if validation < LEARNED and there < LEARNED:
        message = (
            f"trained on training data the loss falls by {percent(held)} on training examples kept back and not at all "
            "on validation, and a part of validation teaches nothing about the rest of it: the validation targets do "
            "not belong to their inputs."
        )
        return Verdict(FAULT, kinds.PREPARATION, "validation-data", message)
    carried = max(table.learned(name, "validation") for name in ("own", "as-few-data") if name in table.curves)
    # Validation data may teach faster only because their batches are larger: so little must carry over as well.
    if not (_validation_teaches(table) > 2 * LEARNED and carried < CARRIES_OVER * min(there, held)):
        return None
    message = (
        f"trained on training data the loss falls by {percent(held)} on training examples kept back and by "
        f"{percent(validation)} on validation; trained on a part of validation it falls on the rest of it to "
        f"{shown(table.lowest('validation-data', 'validation'))} and not to "
        f"{shown(table.lowest('own', 'validation'))}: the two are prepared, or their classes numbered, differently."
    )
    return Verdict(FAULT, kinds.PREPARATION, "validation-data", message)


# -- terms -----------------------------------------------------------------------------------------


def _terms(table: Table) -> Verdict | None:
    """A term without which the other comparisons with targets fall much further outweighs them."""
    for name in [name for name in table.curves if name.startswith("term:")]:
        index = int(name.partition(":")[2])
        others = [place for place, compares in enumerate(table.compares) if compares and place != index]
        seeds = [seed for seed in table.curves[name] if seed in table.own]
        pairs = [(_sums(table.own[seed], others), _sums(table.curves[name][seed], others)) for seed in seeds]
        known = [(own, without) for own, without in pairs if own and without]
        if not others or len(known) < 2:
            continue
        first, mine = (float(np.mean([own[place] for own, _ in known])) for place in (0, -1))
        without = float(np.mean([sums[-1] for _, sums in known]))
        possible = first - without
        if possible > LEARNED * abs(first) and mine - without > possible / 2:
            message = (
                f"without term {index + 1} of the loss the others fall from {shown(first)} to {shown(without)}, with "
                f"it to {shown(mine)}: it outweighs them."
            )
            return Verdict(FAULT, kinds.TERM, name, message)
    return None


def _sums(curve: Curve, places: Sequence[int]) -> list[float]:
    """The sum of these terms at every mark; empty if they were not seen at each."""
    if not curve.terms or any(len(terms) <= max(places, default=0) for terms in curve.terms):
        return []
    return [sum(terms[place] for place in places) for terms in curve.terms]


# -- nothing decides -------------------------------------------------------------------------------


def _rest(table: Table) -> Verdict:
    """No change decides: either the program learns as well as with any of them, or nothing is known."""
    raised = next((curve.raised for curve in table.own.values() if curve.raised), "")
    if raised:
        return Verdict(UNDECIDED, "", "", f"the unchanged twin raised {raised}.", "a program that runs would")
    if not math.isfinite(table.mean_end("own")):
        return Verdict(UNDECIDED, "", "", "the unchanged twin ends in a loss that is not finite.", "steadyrun replay")
    fall = table.learned("own")
    if not table.teaches("own"):
        message = f"the loss falls by {percent(fall)} in these steps, no more than with shuffled targets."
        return Verdict(UNDECIDED, "", "", message, "more steps would show whether it learns at all")
    if len(table.curves) == 1:
        return Verdict(CLEAR, "", "", f"the loss falls by {percent(fall)}; no change was tried.")
    gains = [gain.mean for name in table.curves if table.is_setting(name) and (gain := table.gain(name)) is not None]
    best = max([each for each in gains if math.isfinite(each)], default=0.0)
    message = (
        f"the loss falls by {percent(fall)}, and no change does better by more than the spread between seeds (the "
        f"best: {percent(max(best, 0.0))} of what can be learned here)."
    )
    return Verdict(CLEAR, "", "", message)
