"""The counts of learned tokens that these questions read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadyrun.questions.form import Limits, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent

_SHORTEST = 2  # tokens: answers of one token are labels

EXAMPLES = Threshold(
    name="examples",
    value=8,
    unit="examples",
    meaning="with fewer, the question is not answered",
    seed="",
    decision="one small batch",
)

HARDLY = Threshold(
    name="hardly",
    value=0.1,
    unit="fraction of the answers' tokens",
    meaning="with fewer learned tokens, the answers are masked",
    seed="",
    decision="chosen: an answer may hide a quoted part or a tool's output, but not nearly everything",
)

CUT = Threshold(
    name="cut",
    value=0.5,
    unit="fraction of the examples",
    meaning="with more truncated examples, the model learns to break off",
    seed="",
    decision="chosen: half",
)


class Counts:
    """Counts over the batches that were looked at."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        given = facts.get("roles")
        self.roles: Mapping[str, Any] = given if isinstance(given, dict) else {}
        self.foreign = [str(name) for name in facts.get("foreign") or []]

    def __getitem__(self, name: str) -> int:
        number = self._facts.get(name, 0)
        return int(number) if isinstance(number, int | float) else 0

    def __contains__(self, name: str) -> bool:
        return name in self._facts

    def fraction(self, name: str, of: str) -> float:
        return self[name] / max(1, self[of])

    def learned(self, role: str) -> float | None:
        """The fraction of a role's tokens that are learned; None if the role does not occur."""
        counts = self.roles.get(role)
        if not isinstance(counts, dict) or not counts.get("tokens"):
            return None
        return float(counts.get("learned", 0)) / float(counts["tokens"])


def need_answers(run: Signals, limit: Limits) -> None:
    """`NotApplicable` if the answers of a chat are masked: then their ends say nothing more."""
    learned = Counts(run.about("supervision")).learned("assistant")
    if learned is not None and learned < limit["hardly"]:
        raise NotApplicable("the answers are masked together with their ends, see M1.1")


def need_whole_answers(run: Signals, limit: Limits) -> None:
    """`NotApplicable` if the answers are truncated: then no example has an end that could be learned."""
    if (words := broken_off(Counts(run.about("supervision")), limit)) is not None:
        raise NotApplicable(f"{words}, see M1.3")


def broken_off(counts: Counts, limit: Limits) -> str | None:
    """In words: the answers break off without an end after one and the same number of tokens."""
    alike = counts.fraction("unended_alike", "examples")
    if alike <= limit["cut"] or counts["longest_unended"] < _SHORTEST:
        return None
    return (
        f"{percent(alike)} of the answers break off after exactly {counts['longest_unended']:,} tokens, without an end"
    )


def counts_of(run: Signals, limit: Limits) -> Counts:
    """The counts of a run; `NotApplicable` if it trains no language model on tokens that could be read."""
    facts = run.about("supervision")
    counts = Counts(facts)
    if counts["examples"] < limit["examples"]:
        raise NotApplicable("no batch of token ids with labels was recorded", "batches with input_ids and labels")
    return counts
