"""Reading takes time in proportion to a log, whatever stands in it."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dialects import CASES

from steadyrun import importers
from steadyrun.importers.formats.dialects import DIALECTS
from steadyrun.importers.log_rows import Anomalies, LogRows
from steadyrun.importers.step_axis import Axis

parser = importlib.import_module("re._parser")
kinds = importlib.import_module("re._constants")

SHORT, LONG = 1_500, 24_000  # characters of a line: 16 times as many
MARGIN = 6  # as much more than in proportion may be measured on a busy machine; quadratic is 16 times more
TRIFLE = 0.2  # seconds that say nothing
CLASSES = {kinds.CATEGORY_DIGIT: "1", kinds.CATEGORY_SPACE: " \t", kinds.CATEGORY_WORD: "a1_"}


def patterns() -> dict[str, re.Pattern[str]]:
    """Every regular expression of the importers."""
    names = [each.name for each in pkgutil.walk_packages(importers.__path__, "steadyrun.importers.")]
    found = {
        f"{name}.{variable} {place}": each
        for name in names
        for variable, held in vars(importlib.import_module(name)).items()
        for place, each in enumerate(_held(held))
    }
    return found | {dialect.name: dialect.pattern for dialect in DIALECTS}


def _held(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _held(each)


PATTERNS = patterns()


def like(tree: Any, chance: random.Random) -> str:
    """A text that a pattern matches, or nearly: what stands behind it is not looked at."""
    found = ""
    for kind, held in tree:
        if kind is kinds.LITERAL:
            found += chr(held)
        elif kind is kinds.IN:
            found += _one_of(held, chance)
        elif kind is kinds.BRANCH:
            found += like(chance.choice(held[1]), chance)
        elif kind in (kinds.SUBPATTERN, kinds.ATOMIC_GROUP, kinds.ASSERT):
            found += like(held if kind is kinds.ATOMIC_GROUP else held[-1], chance)
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
            low, high, part = held
            found += "".join(like(part, chance) for _ in range(chance.randint(low, min(int(high), low + 2))))
        elif kind in (kinds.ANY, kinds.NOT_LITERAL):
            found += chance.choice("x 1")
    return found


def _one_of(held: Any, chance: random.Random) -> str:
    kind, value = chance.choice(held)
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.RANGE:
        return chr(chance.randint(*value))
    return chance.choice(CLASSES.get(value, " x1-["))


def seconds(look: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    look(text)
    return time.process_time() - started


@pytest.mark.slow  # it compares times
@given(st.sampled_from(sorted(PATTERNS)), st.randoms(use_true_random=False), st.data())
@settings(max_examples=400)
def test_every_pattern_is_linear(name: str, chance: random.Random, data: st.DataObject) -> None:
    """A piece of what it looks for, repeated to the end of a long line, and nothing that would end it."""
    pattern = PATTERNS[name]
    text = like(parser.parse(pattern.pattern, pattern.flags), chance).replace("\n", " ") or " "
    start = data.draw(st.integers(0, len(text) - 1))
    piece = text[start : data.draw(st.integers(start + 1, len(text)))]
    front = text[: data.draw(st.sampled_from([0, start]))]
    end = data.draw(st.sampled_from(["\x01", text + "\x01"]))
    short, long = ((front + piece * length)[:length] + end for length in (SHORT, LONG))
    for look in (pattern.findall, pattern.match, pattern.fullmatch):
        few, many = seconds(look, short), seconds(look, long)
        assert many < max(TRIFLE, MARGIN * LONG / SHORT * few), (look.__name__, front, piece, end)


IMPORT = """
import resource, sys, steadyrun
resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
try:
    steadyrun.import_log(sys.argv[1], sys.argv[2])
except steadyrun.errors.LogError as problem:
    print("refused:", str(problem)[:200])
print("done")
"""
SIZE = 2**19
GOOD = "".join(f"iter {step}: loss {9 / step:.3f}, time 2ms\n" for step in range(1, 60))
LINES = {  # what begins a line, what is repeated up to 4,000 characters
    "Megatron, no bars": (CASES["Megatron-LM"][0].splitlines()[0], " a"),
    "Megatron, a name without end": (CASES["Megatron-LM"][0].splitlines()[0], " "),
    "XGBoost, one word": ("[0]\ttrain-logloss:0.5 ", "a"),
    "XGBoost, blanks": ("[0] ", " "),
    "digits": ("step 10 loss: ", "9"),
    "names": ("step 10 loss: 2.3 ", "a-"),
    "evaluations": ("step 10 loss: 2.3 ", "val a:1 "),
    "a table": ("epoch  train_loss", "  # "),
    "braces": ('step 10 loss: 2.3 ":', "{"),
    "blank characters": ("", " "),
}


def finishes(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(path), str(path.with_name("run"))],
        capture_output=True, text=True, timeout=1_800, check=False,
    )  # fmt: skip
    assert done.stdout.endswith("done\n"), done.stderr[-500:]


@pytest.mark.parametrize("shape", sorted(LINES))
def test_long_lines(shape: str, tmp_path: Path) -> None:
    front, piece = LINES[shape]
    line = (front + piece * 4_000)[:3_990] + "\n"
    (tmp_path / "a.log").write_text((front + "\n") * 20 + GOOD + line * (SIZE // len(line)) + GOOD)
    finishes(tmp_path / "a.log")


@pytest.mark.parametrize("blank", ["\n", " \t\r\n", "\n\n\x1b[0m\n"])
def test_blank_lines(blank: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(GOOD + blank * (SIZE // len(blank)) + GOOD, newline="")
    finishes(tmp_path / "a.log")


def test_blank_lines_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step;loss\n1;2,5\n2;2,4\n" + "\n" * SIZE)
    finishes(tmp_path / "a.csv")


def test_a_last_line_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(GOOD + "a" * SIZE + " ")
    finishes(tmp_path / "a.log")


def test_steps_that_start_over_all_the_time(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "epoch,step,loss\n" + "".join(f"{row // 2},{row % 2},1\n" for row in range(SIZE // 10))
    )
    finishes(tmp_path / "a.csv")


def test_steps_that_start_over_are_counted_on() -> None:
    """Epochs of four steps, from 0 and from 1, in one pack and in packs of five."""
    for first in (0, 1):
        steps = np.array([first + row % 4 for row in range(40)], float)
        columns = {"step": steps, "epoch": np.arange(40) // 4 * 1.0, "loss": np.ones(40)}
        for size in (40, 5):
            parts = [{name: held[at : at + size] for name, held in columns.items()} for at in range(0, 40, size)]
            packs = [LogRows(size, {name: pa.array(held) for name, held in part.items()}) for part in parts]
            axis = Axis.of(packs, {name: name for name in columns}, Anomalies())
            found = np.concatenate([placed.steps for pack in packs for placed in axis.place(pack)])
            assert found.tolist() == list(range(first, first + 40))


def test_a_record_of_many_fragments(tmp_path: Path) -> None:
    from steadyrun.importers.formats import wandb as records

    def fragment(kind: int, data: bytes) -> bytes:
        return records._FRAGMENT.pack(records.zlib.crc32(data, records._STARTS[kind]), len(data), kind) + data

    piece = b"x" * (records._BLOCK - records._HEAD.size - records._FRAGMENT.size)
    blocks = [fragment(records._FIRST, piece)]
    blocks += [fragment(records._MIDDLE, b"x" * (records._BLOCK - records._FRAGMENT.size))] * 4_000
    blocks += [fragment(records._LAST, b"x")]
    (tmp_path / "a.wandb").write_bytes(records._HEAD.pack(records.MAGIC, 0xBEE1, 0) + b"".join(blocks))
    ((_, held),) = records._framed(tmp_path / "a.wandb", Anomalies())
    assert len(held) > 4_000 * 32_000


def test_many_runs_of_one_name() -> None:
    from steadyrun.importers.log_files import LogPlace, _distinct, format_named

    found = _distinct([LogPlace(Path(f"{place}/a.csv"), format_named("csv"), "a") for place in range(20_000)])
    assert len({place.name for place in found}) == 20_000
    assert [place.name for place in found[:3]] == ["a", "a-2", "a-3"]
