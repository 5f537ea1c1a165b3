"""Former codes of questions. A cause that both preflight and the record can show now has one code."""

from __future__ import annotations

ALIASES = {
    "P1.3": "A3.3",
    "P1.4": "A3.4",
    "P1.5": "A3.5",
    "P1.6": "A3.6",
    "P1.8": "C4.2",
    "P2.2": "A5.1",
    "P2.3": "A5.3",
    "P3.1": "A3.2",
    "P3.2": "A3.1",
    "P3.3": "C1.1",
    "P3.6": "S1.1",
    "P3.8": "A8.1",
    "P4.1": "A4.1",
    "P4.3": "A4.4",
    "P4.4": "A4.2",
    "P4.5": "A4.3",
    "P4.6": "A4.5",
    "P4.7": "C6.1",
    "P4.8": "A4.7",
    "P5.1": "A1.1",
    "P5.2": "A1.3",
    "P5.3": "C6.3",
    "P5.8": "C2.1",
    "P6.2": "A4.8",
    "P6.3": "S6.1",
    "P6.4": "S6.3",
}
"""Former codes and their current codes."""

OUTCOMES = {
    "P1.2:none-counts": "A3.7:nothing-to-learn",
    "P1.4:padding-counts": "A3.4:supervised",
    "P1.5:never-ends": "A3.5:never-asked",
    "P2.2:same-order": "A5.1:not-reshuffled",
    "P2.3:augmented": "A5.3:changed",
    "P2.3:differs": "A5.3:drawn",
    "P3.6:not-causal": "S1.1:sees-the-answer",
    "P4.3:nothing-learns": "A4.4:nothing-trainable",
    "P4.3:random-output": "A4.4:frozen-at-random",
    "P4.3:part": "A4.4:some-frozen",
    "P4.8:two-tensors": "A4.7:untied",
    "P5.1:carried": "A1.1:not-cleared",
    "P5.1:erased": "A1.2:erased",
    "P6.2:vanishes": "A4.8:vanishing",
    "P6.2:small": "A4.8:weak",
    "P6.3:dead": "S6.1:silent",
}
"""Former outcomes that were renamed or moved to another question."""

OWN = "before_"  # prefix of a probe's threshold if the record's question has another threshold of that name


def code_of(code: str) -> str:
    """The current code of a question."""
    return ALIASES.get(code, code)


def codes_of(code: str) -> tuple[str, ...]:
    """The current codes that replace this code; several if the question was split."""
    moved = [new.partition(":")[0] for old, new in OUTCOMES.items() if old.partition(":")[0] == code]
    return tuple(dict.fromkeys([code_of(code), *moved]))


def outcome_of(code: str, outcome: str) -> tuple[str, str]:
    """The current code and name of an outcome."""
    new_code, _, new_outcome = OUTCOMES.get(f"{code}:{outcome}", f"{code_of(code)}:{outcome}").partition(":")
    return new_code, new_outcome


def aliases_of(code: str) -> tuple[str, ...]:
    """The former codes of a question; most have none."""
    return tuple(old for old in ALIASES if code in codes_of(old))


def within(code: str, name: str) -> bool:
    """Whether a code equals this name or belongs to this section."""
    return code == name or code.startswith(f"{name}.")
