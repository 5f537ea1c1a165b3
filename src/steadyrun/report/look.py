"""`steadyrun.look`: which tokens of a language model's batches are learned, as text and as findings."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.program.dataset_rows import is_example, joined_examples
from steadyrun.program.supervision import (
    ROLES,
    Example,
    SpecialTokens,
    Supervision,
    example_of,
    token_batch,
)
from steadyrun.questions.form import FAULT, GRADES, SUSPECT, Answer
from steadyrun.records import Event, Series
from steadyrun.report.learned_text import html_examples, marked
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent
from steadyrun.trees import QUESTIONS

SCHEMA = 1
_TOGETHER = 8  # rows of a dataset that are looked at as one batch
CODES = ("M1.1", "M1.2", "M1.3", "M1.4")


@dataclass(frozen=True)
class Look:
    """Learned and masked tokens of a program's batches: print it, or let a notebook show it.

    `counts` has the counts over all batches, `examples` the first examples token by token, and `findings` what is
    wrong, as (code, grade, message, fix).
    """

    counts: Mapping[str, Any]
    examples: tuple[Example, ...]
    findings: tuple[tuple[str, str, str, str], ...]

    @property
    def exit_code(self) -> int:
        """1 for a fault, 4 for a suspect, otherwise 0."""
        grades = {grade for _, grade, _, _ in self.findings}
        return 1 if FAULT in grades else 4 if SUSPECT in grades else 0

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON."""
        names = ("code", "grade", "message", "fix")
        return {
            "schema": SCHEMA,
            "counts": dict(self.counts),
            "findings": [dict(zip(names, finding, strict=True)) for finding in self.findings],
            "examples": [[vars(token) for token in example] for example in self.examples],
        }

    @property
    def summary(self) -> list[str]:
        """The counts in words, one line each."""
        counts = self.counts
        share = percent(counts["learned"] / max(1, counts["tokens"]))
        lines = [
            f"{counts['examples']:,} examples in {counts['batches']:,} batches: {share} of {counts['tokens']:,} tokens "
            "are learned"
        ]
        for role in ROLES:
            if role in counts["roles"]:
                learned, tokens = counts["roles"][role]["learned"], counts["roles"][role]["tokens"]
                lines.append(f"  {role}: {percent(learned / tokens)} of {tokens:,} tokens")
        if "ends" in counts:
            lines.append(f"  ends of texts: {counts['learned_ends']:,} of {counts['ends']:,} are learned")
        if counts["empty"]:
            lines.append(f"  nothing is learned in {counts['empty']:,} examples")
        return lines

    def __str__(self) -> str:
        lines = [*self.summary]
        for code, grade, message, fix in self.findings:
            lines += [f"{grade} {code}: {message}", f"  fix: {fix}"]
        for number, example in enumerate(self.examples, 1):
            lines += [f"example {number} ([[learned]])", marked(example)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [f"<div>{html.escape(line)}</div>" for line in self.summary]
        for code, grade, message, fix in self.findings:
            rows.append(f"<div><b>{grade} {code}</b>: {html.escape(message)}<br>fix: {html.escape(fix)}</div>")
        return f"<div class='steadyrun-look'>{''.join(rows)}{html_examples(self.examples)}</div>"


def look(
    batches: Iterable[Any],
    tokenizer: Any = None,
    *,
    config: Mapping[str, Any] | None = None,
    examples: int = 3,
    most: int = 8,
) -> Look:
    """Show which tokens of a language model's batches are learned and which are masked.

    `batches` is the training loader or a list of batches: mappings with `input_ids` and `labels`, or pairs of ids and
    labels; or a tokenized dataset, whose rows are such mappings of one example. The first `most` batches are counted
    and the first `examples` examples shown. `tokenizer` gives the text, the roles of a chat and the special tokens;
    `config` may declare `pad_id`, `eos_id` and `bos_id` instead.
    """
    if examples < 0 or most < 1:
        raise UsageError(f"examples must be at least 0 and most at least 1, not {examples} and {most}")
    special = SpecialTokens.of(tokenizer, config)
    supervision = Supervision(special, tokenizer)
    shown: list[Example] = []
    for number, batch in enumerate(islice(_joined(batches, special), most)):
        tokens = token_batch(batch, special)
        if tokens is None and _has_no_labels(batch):
            raise UsageError(
                f"batch {number} has no labels, so no token of it is learned, as in training by rewards (it is a "
                f"{type(batch).__name__}{_keys(batch)}): look reads batches with input_ids and labels"
            )
        if tokens is None:
            raise UsageError(
                f"batch {number} has no rows of token ids whose labels are these tokens or the next ones: give batches "
                f"with input_ids and labels as tensors of two dimensions (it is a {type(batch).__name__}{_keys(batch)})"
            )
        supervision.add(tokens)
        shown += [example_of(tokens, row, tokenizer) for row in range(len(tokens.ids)) if len(shown) + row < examples]
    if not supervision.counts:
        raise UsageError("the loader gave no batch")
    counts = supervision.facts()
    return Look(counts, tuple(shown[:examples]), tuple(_findings(counts)))


def _joined(batches: Iterable[Any], special: SpecialTokens) -> Iterator[Any]:
    """The batches; rows of a dataset, each a mapping of lists of one example, are joined into batches."""
    rows: list[Mapping[str, Any]] = []
    for batch in batches:
        if not is_example(batch):
            yield batch
            continue
        rows.append(batch)
        if len(rows) == _TOGETHER:
            yield joined_examples(rows, special)
            rows = []
    if rows:
        yield joined_examples(rows, special)


def _keys(batch: object) -> str:
    return f" with {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else ""


def _has_no_labels(batch: object) -> bool:
    """Whether a batch has tokens or prompts and nothing that says what is learned."""
    rows = batch if isinstance(batch, list) else [batch]
    names = {str(name) for row in rows if hasattr(row, "keys") for name in row.keys()}  # noqa: SIM118  a BatchEncoding
    return bool(names) and not any("label" in name for name in names)


class _Counted:
    """Counts as a run, so that the questions of a record answer."""

    state = "finished"

    def __init__(self, counts: Mapping[str, Any]) -> None:
        self.manifest = {"schema": 1, "config": {}, "supervision": dict(counts)}

    def names(self) -> list[str]:
        return []

    def series(self, name: str) -> Series:
        raise UsageError(f"there is no series {name}")

    def events(self, _kind: str | None = None) -> list[Event]:
        return []


def _findings(counts: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    run = Signals(_Counted(counts))
    answers: list[tuple[str, Answer]] = [(code, QUESTIONS[code].ask(run, {"examples": 1})) for code in CODES]
    return [(code, answer.kind, answer.message, answer.fix) for code, answer in answers if answer.kind in GRADES]
