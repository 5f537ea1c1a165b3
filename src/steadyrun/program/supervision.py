"""Which tokens of a language model's batch are learned: by role, by example, at the ends and at the seams.

Everything is counted with numpy from token ids and labels, so the recorder, `steadyrun look` and tests share it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.errors import UsageError

IGNORED = -100  # the label that losses skip
ROLES = ("system", "user", "assistant")
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ALIKE = 0.9  # of the learned labels must be the token itself, or the next one
_SHORTEST = 2  # tokens
_LONGEST = 400  # tokens of an example that are shown
_SMALL = 0.75  # of the median row: larger rows are not listed
_MOST_LISTED = 20  # tokens with small rows
_MOST_ROWS = 256  # examples of one batch that are looked at
_LENGTHS = ("cu_seq", "seq_idx", "seq_lens", "segment", "document")  # beginnings of names
_OTHER_MASKS = frozenset({"input_ids", "attention_mask", "position_ids", "token_type_ids", "special_tokens_mask"})
_NAMES = {"model": "assistant", "human": "user", "gpt": "assistant", "tool": "user", "ipython": "user"}
_WIDE = "\uff5c"  # a full-width bar, as in DeepSeek's markers
_MARKERS = (  # compiled by re when a tokenizer's text is first looked at
    r"<\|im_start\|>(?P<chatml>system|user|assistant|tool)"
    r"|<\|start_header_id\|>(?P<llama>system|user|assistant|ipython)<\|end_header_id\|>"
    r"|<start_of_turn>(?P<gemma>user|model)"
    r"|<\|(?P<zephyr>system|user|assistant)\|>"
    rf"|<{_WIDE}(?P<deepseek>User|Assistant){_WIDE}>"
    r"|(?P<inst>\[INST\])|(?P<answer>\[/INST\])"
    r"|### (?P<alpaca>Instruction|Input|Response):"
    r"|(?:^|\n)(?P<plain>USER|ASSISTANT|Human|Assistant):"
)
_SPECIAL = rf"<\|[a-z_]+\|>|<(?:start|end)_of_turn>|<{_WIDE}[A-Za-z]+{_WIDE}>|\[/?INST\]"
_WORDS = {"instruction": "user", "input": "user", "response": "assistant"}


@dataclass(frozen=True)
class SpecialTokens:
    """The ids that structure a text; None if a tokenizer has none."""

    pad: int | None = None
    eos: int | None = None
    bos: int | None = None

    @classmethod
    def of(cls, tokenizer: object, config: Mapping[str, Any] | None = None) -> SpecialTokens:
        """From declared ids (`pad_id`, `eos_id`, `bos_id`), else the tokenizer's own."""
        given = config or {}
        found = [
            given.get(f"{name}_id", getattr(tokenizer, f"{name}_token_id", None)) for name in ("pad", "eos", "bos")
        ]
        return cls(*(token if isinstance(token, int) and not isinstance(token, bool) else None for token in found))


@dataclass(frozen=True)
class TokenBatch:
    """Token ids of a batch, which of them are learned, and which are padding."""

    ids: Ids
    learned: Mask
    padding: Mask
    positions: Ids | None = None
    apart: bool = False  # a mask or lengths keep the texts of a row apart


def token_batch(batch: object, special: SpecialTokens) -> TokenBatch | None:
    """The tokens of a batch and what is learned of them; None if it is not one of a language model.

    A mapping with `input_ids` and `labels` (or a mask of what is learned), or a pair of integer arrays of one shape.
    Labels may be the tokens themselves, as in transformers, or the next ones.
    """
    ids, labels, mask, positions = _parts(batch)
    if ids is None or labels is None or ids.shape != labels.shape or ids.ndim != 2 or ids.shape[1] < _SHORTEST:
        return None
    ids, labels = ids[:_MOST_ROWS], labels[:_MOST_ROWS]
    padding = np.zeros(ids.shape, bool) if mask is None or mask.shape != ids.shape else mask[:_MOST_ROWS] == 0
    if mask is None and special.pad is not None:
        padding = _padding(ids == special.pad, ends=special.pad == special.eos)
    if (following := _next_tokens(ids, labels)) is not None:
        ids, padding = following, np.concatenate([padding, padding[:, -1:] | (labels[:, -1:] == IGNORED)], axis=1)
        labels = np.concatenate([np.full((len(ids), 1), IGNORED), labels], axis=1)
        if special.pad is not None and mask is None:
            padding = _padding(ids == special.pad, ends=special.pad == special.eos)
        positions = None
    learned = learned_tokens(ids, labels)
    if learned is None:
        return None
    kept = None if positions is None or positions.shape != ids.shape else positions[:_MOST_ROWS]
    return TokenBatch(ids, learned, padding, kept, _keeps_apart(batch))


def _keeps_apart(batch: object) -> bool:
    """Whether a batch has what keeps packed texts apart: lengths, numbers of texts, or a mask for pairs of tokens."""
    if not (isinstance(batch, Mapping) or hasattr(batch, "keys")):
        return False
    named: Mapping[str, Any] = batch  # type: ignore[assignment]
    if any(name.startswith(_LENGTHS) for name in map(str, named.keys())):
        return True
    mask = named["attention_mask"] if "attention_mask" in named else None  # noqa: SIM401  a BatchEncoding
    return mask is not None and (getattr(mask, "ndim", 2) != 2 or float(mask.max()) > 1)


def learned_tokens(ids: Ids, labels: Ids) -> Mask | None:
    """Which tokens are targets, if labels are the tokens themselves; None if they are not."""
    counted: Mask = labels != IGNORED
    if counted.any() and np.mean((labels == ids)[counted]) < _ALIKE:
        return None
    later: Mask = counted & (np.arange(ids.shape[1]) > 0)  # nothing predicts the first token
    return later


def _next_tokens(ids: Ids, labels: Ids) -> Ids | None:
    """The whole texts, if labels are the tokens after the inputs: the last label is one more token."""
    counted = labels != IGNORED
    if not counted.any() or np.mean((labels == ids)[counted]) >= _ALIKE:
        return None
    following = counted[:, :-1]
    if not following.any() or np.mean((labels[:, :-1] == ids[:, 1:])[following]) < _ALIKE:
        return None
    last = np.where(labels[:, -1:] == IGNORED, ids[:, -1:], labels[:, -1:])
    return np.concatenate([ids, last], axis=1)


def _parts(batch: object) -> tuple[Ids | None, Ids | None, Ids | None, Ids | None]:
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        names = ("input_ids", "labels", "attention_mask", "position_ids")
        found = [_integers(batch[name]) if name in batch else None for name in names]  # type: ignore[index, operator]
        if found[0] is not None and "labels" not in batch:  # type: ignore[operator]
            found[1] = _by_mask(batch, found[0], found[2])  # type: ignore[arg-type]
        return found[0], found[1], found[2], found[3]
    if isinstance(batch, Sequence) and len(batch) == 2:
        return _integers(batch[0]), _integers(batch[1]), None, None
    return None, None, None, None


def _by_mask(batch: Mapping[str, Any], ids: Ids, text: Ids | None) -> Ids | None:
    """Labels by a mask of what is learned: zeros and ones for a part of the text; None if there is not exactly one."""
    found = []
    for name in batch:
        mask = None if name in _OTHER_MASKS else _zeros_and_ones(batch[name])
        if mask is None or mask.shape != ids.shape or not mask.any() or mask.all():
            continue
        if text is None or (
            text.shape == mask.shape and not (mask & (text == 0)).any() and (mask != (text != 0)).any()
        ):
            found.append(mask)
    return np.where(found[0], ids, IGNORED) if len(found) == 1 else None


def _zeros_and_ones(given: Any) -> Mask | None:
    if hasattr(given, "detach"):
        given = given.detach()
        if given.device.type != "cpu" or given.is_floating_point():
            return None
        given = given.numpy()
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "iub" or given.ndim != 2:
        return None
    mask: Mask = given != 0
    return mask if ((given == 0) | (given == 1)).all() else None


def _integers(given: Any) -> Ids | None:
    """An array of integers on the host; None for anything else."""
    if hasattr(given, "detach"):
        given = given.detach()
        if given.device.type != "cpu" or given.is_floating_point() or given.dtype.itemsize < 2:
            return None
        given = given.numpy()
    if not isinstance(given, np.ndarray):
        return None
    return given.astype(np.int64) if given.dtype.kind in "iu" and given.ndim == 2 else None


def _padding(pads: Mask, *, ends: bool) -> Mask:
    """Padding at the start and the end of rows; if the same id `ends` a text, the first one after it is its end."""
    right = np.logical_and.accumulate(pads[:, ::-1], axis=1)[:, ::-1]
    if ends:
        right = right & np.concatenate([np.zeros((len(pads), 1), bool), right[:, :-1]], axis=1)
    padding: Mask = right | np.logical_and.accumulate(pads, axis=1)
    return padding


# Roles by the markers of chat templates.


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token."""
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens([int(each) for each in ids])]
        return [piece.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n") for piece in pieces]
    if hasattr(tokenizer, "id_to_token"):
        return [str(tokenizer.id_to_token(int(each))) for each in ids]
    if hasattr(tokenizer, "decode"):
        return [str(tokenizer.decode([int(each)])) for each in ids]
    raise UsageError(
        f"{type(tokenizer).__name__} has neither convert_ids_to_tokens nor decode: give look a tokenizer with one of "
        "them, or none"
    )


def roles_of(pieces: Sequence[str]) -> list[str]:
    """The role of each token by the markers before it; "" before the first marker."""
    text = "".join(pieces)
    starts = np.cumsum([0, *(len(piece) for piece in pieces)])[:-1]
    roles = [""] * len(pieces)
    turns = [(found.end(), _role(found)) for found in re.finditer(_MARKERS, text)]
    for (start, role), (end, _) in pairwise([*turns, (len(text), "")]):
        for index in np.flatnonzero((starts >= start) & (starts < end)):
            roles[index] = role
    return roles


def _role(found: re.Match[str]) -> str:
    name = next(value for value in found.groupdict().values() if value is not None).lower()
    if name in ("[inst]", "[/inst]"):
        return "user" if name == "[inst]" else "assistant"
    return _WORDS.get(name, _NAMES.get(name, name))


def foreign_markers(pieces: Sequence[str]) -> list[str]:
    """Markers of a chat template in the text that the tokenizer splits into several tokens."""
    text, whole = "".join(pieces), set(pieces)
    return sorted({found.group() for found in re.finditer(_SPECIAL, text)} - {piece.strip() for piece in whole})


# Examples as text.


@dataclass(frozen=True)
class ShownText:
    """A token of an example as text, or a stretch of tokens of one role that are all learned or all masked."""

    text: str
    learned: bool
    role: str


Example = tuple[ShownText, ...]


def example_of(batch: TokenBatch, row: int, tokenizer: Any) -> Example:
    """The first tokens of one example, one by one; without a tokenizer, their ids."""
    kept = (~batch.padding[row]).nonzero()[0][:_LONGEST]
    ids = batch.ids[row, kept].tolist()
    pieces = pieces_of(tokenizer, ids) if tokenizer is not None else [f"{each} " for each in ids]
    learned = batch.learned[row, kept].tolist()
    return tuple(ShownText(*token) for token in zip(pieces, learned, roles_of(pieces), strict=True))


def stretches(example: Example) -> Example:
    """The same text with neighbouring tokens joined that are alike."""
    groups = groupby(example, key=lambda token: (token.learned, token.role))
    return tuple(ShownText("".join(token.text for token in group), *alike) for alike, group in groups)


@dataclass
class Supervision:
    """Counts over batches."""

    special: SpecialTokens
    tokenizer: Any = None
    counts: dict[str, int] = field(default_factory=dict)
    roles: dict[str, list[int]] = field(default_factory=dict)  # learned tokens and tokens, by role
    foreign: set[str] = field(default_factory=set)
    sizes: npt.NDArray[np.float64] | None = None  # by token: of its rows in frozen tables, beside the median token's
    small: dict[int, int] = field(default_factory=dict)  # by learned token with the smallest rows: how many examples
    last: dict[int, int] = field(default_factory=dict)  # the last tokens of answers without an end
    unended: Counter[int] = field(default_factory=Counter)  # answers without an end, by their number of tokens

    def add(self, batch: TokenBatch) -> None:
        """Count one batch."""
        text = ~batch.padding
        self._count("batches", 1)
        self._count("examples", len(batch.ids))
        self._count("tokens", int(text.sum()))
        self._count("learned", int((batch.learned & text).sum()))
        self._count("learned_padding", int((batch.learned & batch.padding).sum()))
        self._count("empty", int((~(batch.learned & text).any(1)).sum()))
        self._count_ends(batch, text)
        self._count_seams(batch, text)
        self._count_small_rows(batch, text)
        if self.tokenizer is not None:
            for row in range(len(batch.ids)):
                self._count_roles(batch, row, text)

    def facts(self) -> dict[str, Any]:
        """As the manifest keeps them."""
        roles = {role: {"learned": learned, "tokens": tokens} for role, (learned, tokens) in self.roles.items()}
        facts: dict[str, Any] = dict(self.counts) | {"roles": roles, "foreign": sorted(self.foreign)}
        if self.unended:
            longest = max(self.unended)
            facts |= {"longest_unended": longest, "unended_alike": self.unended[longest]}
            facts["last_alike"] = max(self.last.values())
        if self.sizes is not None:
            smallest = sorted(self.small, key=lambda token: float(self.sizes[token]))[:_MOST_LISTED]  # type: ignore[index]
            facts["small_rows"] = [[token, float(self.sizes[token]), self.small[token]] for token in smallest]
        return facts

    def _count(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def _count_ends(self, batch: TokenBatch, text: Mask) -> None:
        """Ends of texts, how many are learned, and texts that reach the batch's width without one."""
        if self.special.eos is None:
            return
        ends = batch.ids == self.special.eos
        if self.special.eos == self.special.pad:  # the first of a row of equal ids ends the text
            before = np.concatenate([np.zeros((len(ends), 1), bool), ends[:, :-1]], axis=1)
            ends = ends & ~before
        else:
            ends = ends & text
        self._count("ends", int(ends.sum()))
        self._count("learned_ends", int((ends & batch.learned).sum()))
        rows = np.arange(len(ends))
        last = ends.shape[1] - 1 - np.argmax(text[:, ::-1], axis=1)
        answers = (batch.learned & text).any(1)
        ended = ends[rows, last] | (ends & ~text).any(1)
        self._count("ended", int((ended & text.any(1)).sum()))
        full = text.sum(1) == text.sum(1).max()
        breaks_off = ~ended & answers & batch.learned[rows, last]
        self._count("cut", int((full & breaks_off).sum()))
        for token in batch.ids[rows, last][breaks_off].tolist():
            self.last[token] = self.last.get(token, 0) + 1
        self.unended.update((batch.learned & text).sum(1)[breaks_off].tolist())

    def _count_small_rows(self, batch: TokenBatch, text: Mask) -> None:
        """In how many examples each learned token occurs whose rows are small."""
        if self.sizes is None:
            return
        for row in range(len(batch.ids)):
            learned = np.unique(batch.ids[row][batch.learned[row] & text[row]])
            learned = learned[(learned >= 0) & (learned < len(self.sizes))]
            for token in learned[self.sizes[learned] < _SMALL].tolist():
                self.small[token] = self.small.get(token, 0) + 1

    def _count_seams(self, batch: TokenBatch, text: Mask) -> None:
        """Texts that begin twice, and several texts in one row."""
        bos = self.special.bos
        if bos is not None and batch.ids.shape[1] > 1:
            first = np.argmax(text, axis=1)
            rows = np.arange(len(batch.ids))
            following = np.minimum(first + 1, batch.ids.shape[1] - 1)
            twice = (batch.ids[rows, first] == bos) & (batch.ids[rows, following] == bos)
            self._count("double_starts", int(twice.sum()))
        mark = bos if bos is not None else self.special.eos
        if mark is None:
            return
        inner = (batch.ids == mark) & text
        inner[:, :2] = False
        inner[:, -1] = False
        if mark == self.special.eos:  # a text must follow
            inner[:, :-1] &= text[:, 1:] & (batch.ids[:, 1:] != mark)
        packed = inner.any(1)
        self._count("packed", int(packed.sum()))
        if batch.apart:
            self._count("apart", int(packed.sum()))
        if batch.positions is not None:
            self._count("restarts", int((packed & (np.diff(batch.positions, axis=1) < 0).any(1)).sum()))

    def _count_roles(self, batch: TokenBatch, row: int, text: Mask) -> None:
        kept = np.flatnonzero(text[row])
        pieces = pieces_of(self.tokenizer, batch.ids[row, kept].tolist())
        self.foreign.update(foreign_markers(pieces))
        for index, role in zip(kept, roles_of(pieces), strict=True):
            if role:
                counts = self.roles.setdefault(role, [0, 0])
                counts[0] += int(batch.learned[row, index])
                counts[1] += 1
