"""What a line of names and numbers says: learnt once for each shape of line, applied to all lines of that shape.

The shape is the text around the numbers. Each number of a shape is a count (epoch, step, the length of an epoch), a
value with a name, or nothing (a time, a date, an average in parentheses).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from steadyrun.importers.formats.dialects.line_numbers import Numbers
from steadyrun.importers.formats.dialects.printed_names import (
    COUNTS,
    HEADINGS,
    MARK,
    SETTING,
    count_word,
    counted,
    data_of,
    has_loss,
    is_noun,
    measured,
    metric_name,
    name_of,
    optimiser,
)
from steadyrun.importers.number_text import NUMBER
from steadyrun.importers.series_roles import HELD_OUT, RUN_COUNTERS, TRAIN

_SPECIAL = r"[-+]?(?:1\.#(?:qnan|snan|ind|inf)\d*+|(?:nan|inf(?:inity)?)(?=(?:m?s)?(?!\w)))"
TOKEN = re.compile(rf"(?:(?<= ) )?(?<![\w.@])(?<![A-Za-z][-])(?<!top )(?<!@ )({_SPECIAL}|{NUMBER})", re.I)
"""A number, with the second of two blanks in front of it: padding does not change the shape of a line.

The one in `top 5 accuracy` belongs to the name."""

_WITHIN = frozenset({"iter", "step", "batch", "update"})  # what may count within an epoch, or through all of them
_GAPS = re.compile(r" ?\t[ \t]*+| [ \t]++")
_DRAWN = re.compile(r"%\|[#\d =>.-]{0,200}\|")  # a bar of tqdm in ASCII ends in a digit: `|##5       |`
_GLUED = re.compile(
    r"(?<![^\s\[(|,])(?P<word>epoch|ep|iter|itr|it|step|batch)(?=\d{1,12}(?![\w.%/-]))", re.I
)  # `it00100`

_UNIT = re.compile(r"[A-Za-zµ°%²/]++")
_BEHIND = re.compile(r"\s{0,2}(?:steps?|iter(?:ation)?s?|updates?|batch(?:es)?)\b", re.I)
_ADJACENT = re.compile(r"(epoch)s?\b|(batch|iter|step)s?\b", re.I)
_EPOCH_BEHIND = re.compile(r" epochs?(?= )", re.I)
_BAR = re.compile(r" ?% ?\w{0,12} ?\|")
_BATCHES = re.compile(r" ?(?:mini-?)?(?:batch|step|iter)", re.I)  # `| 200/ 2983 batches |`
_SEPARATOR = re.compile(
    r"(?P<sep>\s{0,2}(?:[:=]{1,2}>?|->|\bis|\bwas|\bof|,|-(?=\s))|)"
    r"\s{0,2}(?:[\[({'\"]{1,3}|#|)\s{0,2}$"
)
_NAME_WORDS = 3  # of a name between two numbers
_TAIL = 160  # characters in front of a number that can hold its name
_RANK = re.compile(r"(?:^|[\s\[(])(?:rank|default)[ :=_-]{0,2}(\d{1,6})\b", re.I)
_SOURCE = re.compile(r"[\w.<>-]{1,60}:$")  # `[train.py:` and `(trainer:` in front of the number of a line of code
_LEVEL = re.compile(r"\b(?:INFO|WARNING|WARN|DEBUG|ERROR|CRITICAL)\b")
_PREFIX = 200  # characters of a line in which a logger names the level
_TITLE = re.compile(
    r"(?: (?:metrics|results?|set))?\s{0,8}[-:\])|]\s{0,8}(?![-+.\d\s])"
)  # behind a word that stands apart: `Val - CE: 0.3`
_RECORD = re.compile(r"\b(?:best|sav(?:ed?|ing)|improve[ds]?|checkpoint|lowest|highest)\b", re.I)
_BEHIND_NUMBER = re.compile(r" ?(?P<name>[A-Za-z][\w /]{0,40}|)(?:, ?|\s*)")
_FRONT = re.compile(r"\s{0,2}(?:[|:\][]|- )")
_BEFORE_FIELDS = re.compile(r"\s{2}[A-Za-z][\w.-]{0,60}=")  # Sockeye: `3  epoch=0  perplexity-val=9.1`
_TITLED = re.compile(  # `[ Train | 001/100 ]`: a title and the epoch it is of
    rf"\[\s{{0,2}}(?:{'|'.join(sorted(TRAIN | HELD_OUT))})\s{{0,2}}\|\s{{0,2}}$", re.I
)
_OWN_VALUE = re.compile(
    r"\s{0,2}[:=]?\s{0,2}[-+]?(?:\d{0,9}\.\d|\d{1,9}%(?! ?\|))"
)  # `Train: 0.91, Val: 0.88`: the word is the name
_EITHER = re.compile(r"[A-Za-z]\w*+/[A-Za-z]\w*+")  # `min/max` of `min/max reward`
_DURATION = re.compile(r"\s{0,2}(?:m?s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)\s{0,2}(?:[,;|)\]]|$)", re.I)


def normal(line: str) -> str:
    """A line in which every gap of several blanks or tabs is two blanks, and counts are apart from their words."""
    line = _GAPS.sub("  ", line) if "  " in line or "\t" in line else line
    if "%|" in line:
        line = _DRAWN.sub("%|#|", line)
    return _GLUED.sub(r"\g<word> ", line)


@dataclass
class Template:
    """The numbers of a shape, by their place in the line."""

    values: list[tuple[str, int]] = field(default_factory=list)  # name, number
    averages: dict[int, int] = field(default_factory=dict)  # number of a value: that of its average
    divisors: dict[int, int] = field(default_factory=dict)  # number of a value: what it is divided by, `Acc: 98/100`
    epoch: int | None = None
    step: int | None = None
    others: list[int] = field(default_factory=list)  # further counts of steps: `epoch: 2, iteration: 5, step: 205`
    total: int | None = None  # the length of an epoch or of the run, if the step has one
    counted: bool = False  # the step has a word for it; else it is a place in brackets or in a bar
    bar: bool = False
    held_out: bool = False  # the whole line is about an evaluation
    heading: bool = False  # it may say where the lines below it stand
    above: tuple[str, int] | None = None  # what counts the runs, `Fold 1`, and its number
    rank: str | int | None = None
    record: bool = False  # it says what was best so far: `-> saved best (loss: 0.3)`

    @property
    def counts(self) -> list[int]:
        return [index for index in (self.step, self.total) if index is not None]


def learnt(line: str, parts: list[str]) -> Template:
    """The template of a line that was split at its numbers."""
    return _Learner(Numbers.of(line, parts)).template()


@dataclass(frozen=True)
class _Mark:
    """A word of a line that says which data the numbers behind it are about; `data` is empty for training data."""

    start: int
    data: str = ""
    title: bool = False  # it stands apart: `Val - CE: 0.3, KL: 0.1`

    @classmethod
    def of(cls, mark: re.Match[str]) -> _Mark:
        return cls(mark.start(), data_of(mark[1]), _TITLE.match(mark.string, mark.end()) is not None)

    def titles(self, name: str) -> bool:
        return self.title and not optimiser(name)


class _Learner:
    """Goes through a line from left to right."""

    def __init__(self, numbers: Numbers) -> None:
        self.of = numbers
        self.said = Template()
        self.weak: list[tuple[str, int]] = []  # names without a separator: they count beside others only
        self.ranked: int = 2 * len(COUNTS)  # how good the word for the step was
        self.brackets: list[int] = []  # fractions in brackets, not yet given a meaning
        self.pending: str | None = None  # a name in front of a count: `loss at step 10: 2.3`
        self.tainted = False  # a word that spells a number came before: it belongs to the next name
        self.behind = ""  # a word behind a count that does not belong to the next name

    def template(self) -> Template:
        said = self.said
        marks = [
            _Mark.of(mark) for mark in MARK.finditer(self.of.line) if not _OWN_VALUE.match(self.of.line, mark.end())
        ]
        if not self._named_behind():
            for first, joints in self.of.chains():
                self._chain(first, joints)
        self._places()
        if self.weak and (said.values or said.step is not None or said.epoch is not None):
            said.values += self.weak
        said.values.sort(key=lambda value: value[1])
        level = _LEVEL.search(self.of.line, 0, _PREFIX)
        begin = level.start() if level else 0  # what a logger prints in front of the message is not a value
        said.values = [(name, index) for name, index in said.values if self.of.starts[index] >= begin]
        starts = [self.of.starts[index] for _, index in said.values[:1]] or [len(self.of.line)]
        said.held_out = next((bool(mark.data) for mark in marks if mark.start <= starts[0]), False)
        said.values = self._marked(marks)
        said.record = _RECORD.search(self.of.line, 0, starts[0]) is not None
        if match := _RANK.search(self.of.line):
            number = next((i for i, start in enumerate(self.of.starts) if start == match.start(1)), None)
            said.rank = match[1] if number is None else number
        said.heading = said.heading and not SETTING.search(self.of.line)
        return said

    def _named_behind(self) -> bool:
        """Whether names stand behind their numbers, below a count in front: `1: 2.5, 2.4 avg loss, 0.001 rate`."""
        of = self.of
        if len(of.found) < 3 or re.search(r"\w", of.texts[0]) or not of.whole(0) or of.texts[1].strip() != ":":
            return False
        behind = [_BEHIND_NUMBER.fullmatch(text) for text in of.texts[2:]]
        names = [(match["name"].strip(), index) for index, match in enumerate(behind, start=1) if match]
        if len(names) != len(behind) or not names[-1][0] or not any(has_loss(name) for name, _ in names):
            return False
        self.said.step, self.said.counted = 0, True
        self.said.values = [(name, index) for name, index in names if name and metric_name(name, separated=True)]
        return True

    def _chain(self, first: int, joints: str) -> None:
        """Give one number, or numbers that belong together, a meaning."""
        text, after = self.of.texts[first], self.of.texts[first + len(joints) + 1]
        if text.strip() == "/" and self._other(first):
            return
        adjacent = _ADJACENT.match(after)
        if adjacent and joints in ("", "-"):  # `3epoch:train:1-100batch:`
            self._count("epoch" if adjacent[1] else "batch", first + len(joints), None, 0)
            return
        if joints == "/" and (behind := _EPOCH_BEHIND.match(after)):  # `3/10 epoch loss: 0.4`
            self._count("epoch", first, first + 1, 0)
            self.behind = behind[0]
            return
        if joints == "-" and (word := count_word(phrase := name_of(text[-_TAIL:]))):  # `loss of iterations 1-100: 0.3`
            self._pend(phrase)
            self._count(word, first + 1, None, self._rank_of(word, phrase))
        if joints.strip("/"):
            return
        if len(joints) > 1:  # `iteration 100/110/110`: the first counts
            if word := count_word(name_of(text[-_TAIL:])):
                self._count(word, first, None, self._rank_of(word, text))
            return
        if first and (unit := _UNIT.match(text)):
            text = text[unit.end() :]
        text = text.removeprefix(self.behind)[-_TAIL:]
        self.behind = ""
        match = _SEPARATOR.search(text)
        separator, front = (match["sep"].strip(), text[: match.start()]) if match else ("", text)
        total = first + 1 if joints else None
        if self.pending and not front.strip(" :=|)],.-") and not joints:
            self.said.values.append((self.pending, first))
            self.pending = None
            return
        self._named(first, total, front, separator, text, after)

    def _named(self, first: int, total: int | None, front: str, separator: str, text: str, after: str) -> None:
        phrase = name_of(front)
        if self.tainted:
            phrase, self.tainted = f"nan {phrase}", False
        above = phrase.lower().rpartition(" ")[2]
        if above in RUN_COUNTERS and self.of.whole(first):
            self.said.above = self.said.above or (above, first)
            return
        word = (count_word(phrase) or (counted(phrase) if total is not None else None)) if separator != "," else None
        if word is None and phrase.lower() in TRAIN and after.lstrip(" ]").startswith("[") and self.said.epoch is None:
            word = "epoch"  # timm: `Train: 0 [ 50/1251 (4%)]`, Swin: `Train: [0/300][10/1251]`
        if word and (self.of.whole(first) or word == "epoch") and not after.lstrip().startswith("%"):
            self._pend(phrase)
            if after.lstrip().startswith(")") and "(" in front:  # `Validation Loss (Epoch 2): 0.5`
                name = metric_name(name_of(front[: front.rindex("(")]), separated=True)
                self.pending = name if name and is_noun(name) else self.pending
            heading = word in HEADINGS or total is not None
            self._count(word, first, total, self._rank_of(word, phrase), heading)
            return
        if total is not None and separator[:1] in (":", "=") and measured(phrase) and not has_loss(phrase):
            if name := metric_name(phrase, separated=True):
                self.said.values.append((name, first))
                self.said.divisors[first] = total
        elif total is not None:
            self._fraction(first, text, after)
        elif name := self._placed_name(first, phrase, separator):
            self.pending = name
            self._count("step", first, None, COUNTS.index("step"))
            behind = _BEHIND.match(after)
            self.behind = behind[0] if behind else ""
        elif text.strip() == "(" and after.startswith(")"):
            self.said.averages[first - 1] = first
        else:
            self._value(first, phrase, separator, text, after)

    @staticmethod
    def _rank_of(word: str, phrase: str) -> int:
        """How good a count is, 0 best; `Steps: 120` beside an episode is the length of that."""
        if word not in COUNTS:
            return 0
        return COUNTS.index(word) + len(COUNTS) * (phrase.lower() == "steps")

    def _placed_name(self, first: int, phrase: str, separator: str) -> str | None:
        """The name of the number behind this one, which is its place: `loss at 404 1.79`, `Train loss 404 1.79`."""
        name, _, last = phrase.rpartition(" ")
        if last.lower() in ("at", "after"):
            return name if is_noun(name) and self._place(first) else None
        plain = not separator and self.said.step is None and measured(phrase) and self._place(first)
        return metric_name(phrase, separated=True) if plain and not self.of.whole(first + 1) else None

    def _place(self, index: int) -> bool:
        """Whether a number is a place of the number behind it."""
        if index + 1 >= len(self.of.found) or not self.of.whole(index):
            return False
        between = _BEHIND.sub("", self.of.texts[index + 1], count=1)
        return not re.sub(r"\bis\b", "", between).strip(" :=,|-")

    def _pend(self, phrase: str) -> None:
        name = re.split(r"\s(?:at|after|for|in|of|on|@)\s?", phrase, maxsplit=1)[0]
        if name != phrase and is_noun(name):
            self.pending = name

    def _count(self, word: str, index: int, total: int | None, ranked: int, heading: bool = True) -> None:
        said = self.said
        said.heading |= heading
        if word == "epoch":
            said.epoch = index if said.epoch is None else said.epoch
            return
        if word in _WITHIN and total is None:
            said.others.append(index)
        if ranked < self.ranked:
            self.ranked, said.step, said.total, said.counted = ranked, index, total, True

    def _fraction(self, first: int, text: str, after: str) -> None:
        """A fraction without a word: a place in a bar, or in brackets."""
        before, behind = text.rstrip(), after.lstrip()
        if _TITLED.search(before) and behind.startswith("]"):
            self._count("epoch", first, first + 1, 0)
        elif before.endswith(("|", "━", "%")) and (behind.startswith("[") or self._clock(first + 2)):
            self.said.bar, self.brackets = True, [*self.brackets, first]
        elif (
            (before.endswith("[") and behind.startswith(("]", "(")))
            or (before == ":" and after.startswith(" "))
            or _BATCHES.match(after)
        ):
            self.brackets.append(first)

    def _clock(self, index: int) -> bool:
        return index < len(self.of.found) and self.of.joined(index) == ":"

    def _value(self, index: int, phrase: str, separator: str, text: str, after: str) -> None:
        if (
            _SOURCE.match(text.rpartition("[")[2].rpartition("(")[2])
            and after[:1] in ("]", ")", ":")
            and text[:1] != ":"
        ):
            return  # a line of code
        if (
            _BAR.match(after)
            and self.of.whole(index)
            and index + 1 < len(self.of.found)
            and self.of.joined(index + 1) == "/"
        ):
            return  # `Loading shards: 50%|█████     | 1/2`
        if text.endswith(":") and after.startswith(" - ") and not is_noun(phrase) and self._begins(index):
            return  # `module:120 - `, as some loggers print it
        if re.match(r"\.\w|[A-Za-z_]{0,20}\d", after):
            return  # half of an identifier, or of the name of a file
        strong = separator[:1] in (":", "=", "-") or separator in ("is", "was")
        name = metric_name(phrase, strong)
        if separator == "-" and not (name and is_noun(name)):
            return  # a dash between fields
        if separator == "of" and self.of.whole(index) and re.match(r" [A-Za-z]{3}", after):
            return  # `a loss of 3 samples`
        if name and is_noun(name) and _DURATION.match(after):
            return  # `cost: 0.3 min`
        word = self.of.found[index][-1].isalpha() and not strong and not (name and is_noun(name))
        self.tainted = word and after.startswith(" ")  # `number of nan iterations: 0`
        if name is None or word:
            return
        if strong or is_noun(name):
            self.said.values.append((name, index))
        elif (
            not separator
            and name == phrase
            and " " not in name
            and not text.rstrip("[").endswith("(")
            and (name.lower() in TRAIN | HELD_OUT or not re.match(r" [A-Za-z]{3}", after))
        ):
            self.weak.append((name, index))

    def _other(self, index: int) -> bool:
        """Whether this is the other one of two values with one name: `train/val loss: 0.4/0.5`."""
        values = self.said.values
        words = values[-1][0].split() if values and values[-1][1] == index - 1 else []
        both = next((word for word in words[:-1] if _EITHER.fullmatch(word)), None)
        if both is None:
            return False
        names = [" ".join(one if word == both else word for word in words) for one in both.split("/")]
        values[-1:] = zip(names, (index - 1, index), strict=True)
        return True

    def _begins(self, index: int) -> bool:
        """Whether nothing that was said stands in front of a whole number."""
        said = self.said
        return self.of.whole(index) and said.step is None and said.epoch is None and not said.values

    def _places(self) -> None:
        """What the fractions in brackets are: with two of them, `[0/25][10/500]`, the first counts epochs."""
        said, brackets = self.said, self.brackets
        if len(brackets) > 1 and said.epoch is None and (said.bar or brackets[1] == brackets[0] + 2):
            said.epoch, brackets = brackets[0], brackets[1:]
        if brackets and (said.step is None or self._measures_a_batch(brackets[0])):
            last = brackets[-1] if said.bar else brackets[0]
            said.step, said.total = last, last + 1
        if said.step is None and self.of.found and not re.search(r"\w", self.of.texts[0]):
            self._in_front()

    def _measures_a_batch(self, bracket: int) -> bool:
        """Whether the line begins with a place and the only count stands behind its values: `[10/50] loss 2 batch 8`.

        That count is the size of a batch.
        """
        said = self.said
        if self.ranked != COUNTS.index("batch") or said.step is None or said.total is not None or not said.values:
            return False
        return bracket == 0 and said.step > said.values[0][1] and not re.search(r"\w", self.of.texts[0])

    def _in_front(self) -> None:
        """Numbers at the beginning of a line: `10 | loss 2.3`, or `[1, 2000] loss: 2.3` of epoch and batch."""
        of, said = self.of, self.said
        if said.epoch is None and of.texts[0].endswith("[") and len(of.found) > 1 and of.texts[1].strip() == ",":
            if of.whole(0) and of.whole(1) and of.texts[2].startswith("]"):
                said.epoch, said.step, said.counted = 0, 1, True
            return
        if of.whole(0) and _BEFORE_FIELDS.match(of.texts[1]):
            said.step, said.counted = 0, True
            return
        last = 1 if of.joined(0) == "/" else 0
        if not of.whole(0) or of.joined(last) or of.joined(last + 1) == ":":
            return
        behind = of.texts[last + 1]
        fraction = last == 1 and behind[:1] in (" ", "(", ",")
        named = _FRONT.match(behind) or (behind[:1] == " " and self._only_names(behind))
        if fraction or (named and said.epoch is None):
            said.step, said.counted = 0, True

    @staticmethod
    def _only_names(text: str) -> bool:
        """Whether a text between two numbers is the name of the second alone: `12 train loss: 0.3`."""
        match = _SEPARATOR.search(text)
        front = text[: match.start()].strip() if match else text.strip()
        return measured(front) and name_of(front) == front and len(front.split()) <= _NAME_WORDS

    def _evaluated(self) -> str:
        """The data of a line whose first value names it and whose others do not: `val Loss: 0.5 Acc: 0.7`."""
        names = [set(re.split(r"[\W_]+", name.lower())) for name, _ in self.said.values]
        if not names or any(words & TRAIN for words in names):
            return ""
        first, _, rest = self.said.values[0][0].partition(" ")
        return data_of(first) if rest else ""

    def _marked(self, marks: list[_Mark]) -> list[tuple[str, int]]:
        """Values with `val_` in front of a metric if the line is about an evaluation and the name does not say so.

        Behind `Val - ` or `[Val]` every number is one of the evaluation, whatever it is called.
        """
        named: dict[str, int] = {}
        about = self._evaluated()
        places = [mark.start for mark in marks]
        losses = False
        for name, index in self.said.values:
            words = set(re.split(r"[\W_]+", name.lower()))
            start = self.of.starts[index]
            before = bisect_left(places, start)
            mark = marks[before - 1] if before else _Mark(0)
            if losses and words & (TRAIN | HELD_OUT) and len(words) == 1:  # `loss train: 2.3, val: 2.4`
                name = f"{name} loss"
            elif mark.data and (measured(name) or mark.titles(name)) and not words & (TRAIN | HELD_OUT):
                name = f"{mark.data}_{name}"
            elif about and measured(name) and not words & (TRAIN | HELD_OUT):
                name = f"{about}_{name}"
            losses = losses or ("loss" in words and bool(words & TRAIN))
            named.setdefault(name, index)  # the first counts: totals and averages come later
        return list(named.items())
