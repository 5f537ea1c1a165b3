"""The numbers of a printed line, the text around each, and which of them belong together."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WHOLE = re.compile(r"\d[\d,_]*+\.?")  # also at the end of a sentence


@dataclass
class Numbers:
    """The numbers of one line, and the text in front of and behind each."""

    line: str
    texts: list[str]
    found: list[str]
    starts: list[int]

    @classmethod
    def of(cls, line: str, parts: list[str]) -> Numbers:
        starts, at = [], 0
        for index, part in enumerate(parts):
            if index % 2:
                starts.append(line.find(part, at))
                at = starts[-1]
            at += len(part)
        return cls(line, parts[::2], parts[1::2], starts)

    def whole(self, index: int) -> bool:
        return _WHOLE.fullmatch(self.found[index]) is not None

    def joined(self, index: int) -> str:
        """What joins a number with the next one: `/` of a fraction, `:` of a time, `-` of a date or a range."""
        if index + 1 >= len(self.found) or not (self.whole(index) and self.found[index + 1][0].isdigit()):
            return ""
        between = self.texts[index + 1]
        if between in (":", "-"):
            return between
        return "/" if between.strip() in ("/", "of") and self.whole(index + 1) else ""

    def chains(self) -> list[tuple[int, str]]:
        """(first number, what joins it with the following ones), for every number or chain of numbers."""
        chains, index = [], 0
        while index < len(self.found):
            joints = ""
            while joint := self.joined(index + len(joints)):
                joints += joint
            chains.append((index, joints))
            index += len(joints) + 1
        return chains
