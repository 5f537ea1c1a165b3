"""A question's page: one content, shown by `steadyrun explain` and written into the docs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from steadyrun.questions.form import FAULT, GRADES, STANDING, Outcome, Question, Threshold
from steadyrun.report.limits import everything
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
    entry = _all().get(question.code, {}).get(threshold.of)
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
        return f"{self.healthy} of {self.of_healthy} healthy runs, {self.broken} of {self.of_broken} broken ones"


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
    "P1": "preflight: the data",
    "P2": "preflight: the loaders",
    "P3": "preflight: the loss and the model",
    "P4": "preflight: the parameters",
    "P5": "preflight: the step",
    "P6": "preflight: learning",
}


# What preflight is given in the place of a record.
HOW_TO_GIVE = {
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
    """Everything a question says of itself, in the order one reads it."""
    panel = "" if question.panel is None else f" It is seen on panel {question.panel}."
    parts = [
        PagePart("Asks", question.asks),
        PagePart("Why", f"{question.why}{panel}"),
        PagePart("Needs", items=tuple(Item(need, _how(question, need)) for need in question.needs)),
        PagePart("Limits", items=tuple(_limit(question, threshold) for threshold in question.thresholds)),
        PagePart("Answers", items=tuple(_outcome(question, outcome) for outcome in question.outcomes)),
    ]
    return [part for part in parts if part.text or part.items]


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


def tried(question: Question) -> bool:
    """Whether it is a probe of preflight, which is given live objects and not a record."""
    return question.code.startswith("P")


def _how(question: Question, need: str) -> str:
    given = HOW_TO_GIVE.get(need) if tried(question) else None
    return given or how_to_record(need)


def section(code: str) -> list[Question]:
    """The questions of a section, such as C3."""
    return [question for question in everything().values() if section_of(question) == code.upper()]


def section_of(question: Question) -> str:
    return question.code.partition(".")[0]


def page_as_dict(question: Question) -> dict[str, Any]:
    """The page for programs."""
    return {
        "code": question.code,
        "name": question.name,
        "asks": question.asks,
        "why": question.why,
        "panel": question.panel,
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
    details = [f"specification: {threshold.seed or 'gives none'}", f"decision: {threshold.decision}"]
    numbers = measured(question, threshold)
    if numbers is not None:
        details += [f"healthy runs: {healthy_words(numbers)}", f"faulty runs: {fault_words(numbers)}"]
    elif threshold.of and not tried(question):
        details.append("not measured yet")
    value = f"{threshold.name} = {threshold.value:g} {threshold.unit}".rstrip()
    return Item(value, threshold.meaning, tuple(details))


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
    if outcome.answer in GRADES and (seen := frequency(question.code, outcome.name)) is not None:
        details.append(f"measured: {seen.words}")
    if edge := question.edges.get(outcome.name):
        details.append(f"asked first: {', '.join(edge)}; a fault found there is the cause")
    if outcome.may_pass:
        details.append(
            f"while training: a warning after {STANDING} steps, since it may pass; a fault if it stands at the end"
        )
    if outcome.explains:
        which = "faults" if outcome.answer == FAULT else "suspects"
        details.append(f"explains {which} of: {', '.join(outcome.explains)}")
    if outcome.panel is not None:
        details.append(f"seen on panel {outcome.panel}")
    name = "" if outcome.name == outcome.answer else f", {outcome.name}"
    return Item(f"{SYMBOLS[outcome.answer]} {word(outcome.answer)}{name}", outcome.meaning, tuple(details))
