"""A question's page: one content, shown by `steadyrun explain` and written into the docs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from steadyrun.questions.aliases import ALIASES, code_of, codes_of, within
from steadyrun.questions.form import FAULT, GRADES, STANDING, Outcome, Question, Threshold
from steadyrun.report.limits import everything, probe_for
from steadyrun.report.phrases import SYMBOLS, word
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.store.jsonio import number
from steadyrun.text import shown


@dataclass(frozen=True)
class Healthy:
    """A measured number over all healthy runs."""

    runs: int
    median: float
    p99: float
    worst: float
    worst_run: str


@dataclass(frozen=True)
class Measured:
    """A measured number: over the healthy runs, and in each faulty one."""

    healthy: Healthy | None
    faults: Mapping[str, float]


def measured(question: Question, threshold: Threshold) -> Measured | None:
    """What the number that a threshold limits was; None where it was not measured yet."""
    entry = None if question.tried else _all().get(question.code, {}).get(threshold.of)
    return None if entry is None else parse(entry)


def parse(entry: Mapping[str, Any]) -> Measured:
    healthy = entry.get("healthy")
    faults = {name: number(value) for name, value in entry.get("faults", {}).items()}
    if not healthy:
        return Measured(None, faults)
    numbers = {name: number(healthy[name]) for name in ("median", "p99", "worst")}
    return Measured(Healthy(int(healthy["runs"]), **numbers, worst_run=str(healthy["worst_run"])), faults)


@cache
def _all() -> dict[str, Any]:
    file = resources.files("steadyrun.questions") / "measured.json"
    measurements: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return measurements


@dataclass(frozen=True)
class Frequency:
    """On how many of the measured runs an answer was given."""

    healthy: int
    of_healthy: int
    broken: int
    of_broken: int

    @property
    def words(self) -> str:
        bound = f"below {upper_bound(self.healthy, self.of_healthy):.1%} at 95%"
        return (
            f"{self.healthy} of {self.of_healthy} healthy runs ({bound}), {self.broken} of {self.of_broken} broken ones"
        )


def upper_bound(count: int, runs: int, confidence: float = 0.95) -> float:
    """The largest rate at which so few of so many runs are still likely enough: exact, by halving."""
    low, high = count / max(runs, 1), 1.0
    for _ in range(40):
        rate = (low + high) / 2
        likely = sum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(count + 1))
        low, high = (rate, high) if likely > 1 - confidence else (low, rate)
    return high


def frequency(code: str, outcome: str) -> Frequency | None:
    """How often an answer was given on the measured runs; None if it was not measured."""
    counted = _frequencies()
    pair, runs = counted.get("outcomes", {}).get(f"{code}:{outcome}"), counted.get("runs")
    return None if pair is None or runs is None else Frequency(pair[0], runs[0], pair[1], runs[1])


@cache
def _frequencies() -> dict[str, Any]:
    file = resources.files("steadyrun.questions") / "outcomes.json"
    counted: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return counted


# What the sections are about: C configuration, D dynamics, S the signatures of the seven panels, P preflight.
SECTIONS = {
    "C1": "the first step",
    "C2": "the learning rate",
    "C3": "gradients",
    "C4": "losses",
    "C5": "weights and activations",
    "C6": "the optimizer",
    "C7": "sizes",
    "D1": "NaN and infinity",
    "D2": "loss spikes",
    "D3": "mixed precision",
    "D4": "slow divergence",
    "S1": "signatures of the loss curves",
    "S2": "signatures of the learning rate",
    "S3": "signatures of the gradient norm",
    "S4": "signatures of the activations",
    "S5": "signatures of the weights",
    "S6": "signatures of dead units and heads",
    "S7": "signatures of the classes",
    "V1": "vital signs",
    "F1": "facts about the run",
    "A1": "audits of the step",
    "A2": "audits of the modes",
    "A3": "audits of the loss and its targets",
    "A4": "audits of the parameters",
    "A5": "audits of the data",
    "A6": "audits of a resume",
    "A7": "audits of the end",
    "A8": "audits of attention",
    "R1": "ranks: gradients, replicas and settings",
    "R2": "ranks: the data",
    "R3": "ranks: NaN",
    "R4": "ranks: stalls and stragglers",
    "R5": "preflight: several ranks",
    "M1": "learned tokens",
    "L1": "adapters",
    "G1": "preferences",
    "G2": "policies",
    "G3": "losses of several terms",
    "P1": "preflight: the data",
    "P2": "preflight: the loaders",
    "P3": "preflight: the loss and the model",
    "P4": "preflight: the parameters",
    "P5": "preflight: the step",
    "P6": "preflight: learning",
}


# What preflight is given instead of a record.
HOW_TO_GIVE = {
    "several ranks": "start it with torchrun --nproc-per-node 2 -m steadyrun preflight MODULE:FUNCTION",
    "loss_fn": "give preflight loss_fn, called as loss_fn(model, batch)",
    "batches": "give preflight the training loader, or a list of batches",
    "val_batches": "give preflight the validation loader, or a list of batches",
    "optimizer": "give preflight the optimizer, or a list of them",
    "scheduler": "give preflight the scheduler",
    "scaler": "give preflight the scaler",
    "train_step": "give preflight train_step(task, batch): one whole optimizer step as the program writes it",
    "tokenizer": "give preflight the tokenizer",
    "resumed": "give preflight resumed=RUN, the run that is being continued",
    "pad_id": 'declare config={"pad_id": …}, or give preflight the tokenizer',
    "eos_id": 'declare config={"eos_id": …}, or give preflight the tokenizer',
    "total_steps": 'declare config={"total_steps": …}',
    "schedule": 'declare config={"schedule": "cosine"}, "linear" or "constant"',
    "a DataLoader": "give preflight the torch DataLoader itself as batches",
    "a DataLoader with workers": "give preflight the torch DataLoader itself as batches",
}


@dataclass(frozen=True)
class Item:
    """A term, what is said of it, and details."""

    term: str
    text: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class PagePart:
    heading: str
    text: str = ""
    items: tuple[Item, ...] = ()


def question_page(question: Question) -> list[PagePart]:
    """The page of a question, part by part."""
    panel = "" if question.panel is None else f" It is seen on panel {question.panel}."
    probe = probe_for(question)
    parts = [
        PagePart("Asks", question.asks),
        PagePart("Why", f"{question.why}{panel}"),
        *(_sources(question, probe) if probe is not None else [PagePart("Needs", items=_needs(question))]),
        PagePart("Limits", items=tuple(_limit(question, threshold) for threshold in question.thresholds)),
        PagePart("Limits before training", items=_limits_before(question, probe)),
        PagePart("Answers", items=tuple(_outcome(question, outcome) for outcome in question.outcomes)),
        PagePart("Answers before training", items=_answers_before(question, probe)),
        PagePart("Former code", _former(question)),
    ]
    return [part for part in parts if part.text or part.items]


def _former(question: Question) -> str:
    if not question.aliases:
        return ""
    return f"{', '.join(question.aliases)}, as a probe of preflight. It still works wherever a code does."


def _sources(question: Question, probe: Question) -> list[PagePart]:
    """The two sources of evidence, each with what it needs."""
    asks = "" if probe.asks == question.asks else f" {probe.asks}"
    return [
        PagePart("Before training", f"Preflight tries it on live objects.{asks}", _needs(probe)),
        PagePart("From the record", "Check sees it in a recorded run.", _needs(question)),
    ]


def _needs(question: Question) -> tuple[Item, ...]:
    return tuple(Item(need, _how(question, need)) for need in question.needs)


def _limits_before(question: Question, probe: Question | None) -> tuple[Item, ...]:
    """The limits of the probe alone."""
    return () if probe is None else tuple(_limit(probe, t) for t in probe.thresholds if t not in question.thresholds)


def _answers_before(question: Question, probe: Question | None) -> tuple[Item, ...]:
    """The answers of the probe that the record's question does not give."""
    known = {outcome.name for outcome in question.outcomes}
    return () if probe is None else tuple(_outcome(probe, o) for o in probe.outcomes if o.name not in known)


def entries(part: PagePart) -> Iterator[tuple[str, str, str]]:
    """The lines of a part as plain text: each with the indentation of its first line, and of those it is wrapped to."""
    if part.text:
        yield part.text, "  ", "  "
    for item in part.items:
        yield f"{item.term}: {item.text}" if item.text else item.term, "  ", "    "
        for detail in item.details:
            yield f"- {detail}", "    ", "      "


def how_to_record(need: str) -> str:
    """How a need is recorded; of several that would do, the first that is known."""
    return next((HOW_TO_RECORD[name] for name in (need, *need.split(" or ")) if name in HOW_TO_RECORD), "")


def _how(question: Question, need: str) -> str:
    given = HOW_TO_GIVE.get(need) if question.tried else None
    return given or how_to_record(need)


def section(code: str) -> list[Question]:
    """The questions of a section, such as C3."""
    return [question for question in everything().values() if section_of(question) == code.upper()]


def section_named(code: str) -> list[Question]:
    """The questions of a section as a user names it: of preflight's sections, also those that were there before."""
    name = code.upper()
    former = {new for old in ALIASES if within(old, name) for new in codes_of(old)} if name in SECTIONS else set()
    return [q for q in everything().values() if section_of(q) == name or q.code in former]


def section_of(question: Question) -> str:
    return question.code.partition(".")[0]


def page_as_dict(question: Question) -> dict[str, Any]:
    """The page for programs; `preflight` has what a probe of the same cause asks, needs and answers."""
    probe = probe_for(question)
    return {
        "code": question.code,
        "aliases": list(question.aliases),
        "name": question.name,
        "asks": question.asks,
        "why": question.why,
        "panel": question.panel,
        **_contents(question),
        "preflight": None if probe is None else {"asks": probe.asks, **_contents(probe)},
    }


def _contents(question: Question) -> dict[str, Any]:
    return {
        "needs": [{"name": need, "how_to_record": _how(question, need)} for need in question.needs],
        "thresholds": [_threshold_as_dict(question, threshold) for threshold in question.thresholds],
        "outcomes": [_outcome_as_dict(question, outcome) for outcome in question.outcomes],
    }


def _outcome_as_dict(question: Question, outcome: Outcome) -> dict[str, Any]:
    parts = vars(outcome)
    first = ("name", "answer", "meaning", "fix")
    edge = question.edges.get(outcome.name, ())
    return {name: parts[name] for name in first} | {"edge": edge} | {n: parts[n] for n in parts if n not in first}


def _threshold_as_dict(question: Question, threshold: Threshold) -> dict[str, Any]:
    return {
        "name": threshold.name,
        "value": threshold.value,
        "unit": threshold.unit,
        "meaning": threshold.meaning,
        "specification": threshold.seed,
        "decision": threshold.decision,
        "measured": measured(question, threshold),
    }


def _limit(question: Question, threshold: Threshold) -> Item:
    details = [f"rule of thumb: {threshold.seed}"] if threshold.seed else []
    details.append(f"decision: {threshold.decision}")
    numbers = measured(question, threshold)
    if numbers is not None:
        healthy = f"{healthy_words(numbers)}{_bound(threshold, numbers)}"
        details += [f"healthy runs: {healthy}", f"faulty runs: {fault_words(numbers)}"]
    elif threshold.of and not question.tried:
        details.append("not measured yet")
    value = f"{threshold.name} = {threshold.value:g} {threshold.unit}".rstrip()
    return Item(value, threshold.meaning, tuple(details))


def _bound(threshold: Threshold, numbers: Measured) -> str:
    """How often a healthy run may be beyond the limit, if none of the measured ones is."""
    if numbers.healthy is None:
        return ""
    worst, runs = numbers.healthy.worst, numbers.healthy.runs
    within = worst >= threshold.value if threshold.of.startswith("-") else worst <= threshold.value
    return f"; 0 of {runs} beyond the limit: below {upper_bound(0, runs):.1%} at 95%" if within else ""


def healthy_words(numbers: Measured) -> str:
    if numbers.healthy is None:
        return "in none of them"
    of = numbers.healthy
    return (
        f"median {shown(of.median)}, 99th percentile {shown(of.p99)}, worst {shown(of.worst)} ({of.worst_run}), "
        f"{of.runs} runs"
    )


def fault_words(numbers: Measured) -> str:
    if not numbers.faults:
        return "none measured"
    return ", ".join(f"{name} {shown(value)}" for name, value in numbers.faults.items())


def _outcome(question: Question, outcome: Outcome) -> Item:
    details = []
    if outcome.experiment:
        details.append(f"to decide: {outcome.experiment}")
    if outcome.fix:
        details.append(f"fix: {outcome.fix}")
    if outcome.answer in GRADES and not question.tried and (seen := frequency(question.code, outcome.name)) is not None:
        details.append(f"measured: {seen.words}")
    if edge := question.edges.get(outcome.name):
        details.append(f"asked first: {', '.join(edge)}; a fault found there is the cause")
    if outcome.may_pass:
        details.append(
            f"while training: a warning after {STANDING} steps, since it may pass; a fault if it stands at the end"
        )
    if outcome.explains:
        which = "faults" if outcome.answer == FAULT else "suspects"
        details.append(f"explains {which} of: {', '.join(dict.fromkeys(map(code_of, outcome.explains)))}")
    if outcome.panel is not None:
        details.append(f"seen on panel {outcome.panel}")
    name = "" if outcome.name == outcome.answer else f", {outcome.name}"
    return Item(f"{SYMBOLS[outcome.answer]} {word(outcome.answer)}{name}", outcome.meaning, tuple(details))
