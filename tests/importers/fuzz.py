"""Mutated logs of every format through the whole import: it is read, or one error says why.

python tests/importers/fuzz.py 100000 [SECONDS]     as many inputs, or as fit in the time; prints what went wrong
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from test_dialects import CASES
from test_hostile import LOGS

from steadyrun.errors import LogError
from steadyrun.importers.convert import Request
from steadyrun.importers.import_log import import_runs
from steadyrun.importers.log_files import places

NUMBERS = [
    b"nan", b"-inf", b"1e400", b"9" * 400, b"", b"-", b"0", b"-1", b"1e-400", b"1,234", b"12%", b"0x1f", b"1_000",
    b"1.#IND", b"None", b"99999999999999999999", b"tensor(1.5)", b"[[[[", b"true",
]  # fmt: skip
PIECES = [
    b"\n", b"\r", b"\0", b"\x1b[31m", b"\xff\xfe", b"\xe2\x80\xae", b'"', b"{", b"}", b"|", b",", b"\t", b"\x08" * 6,
    b"Fold 2 ", b"seed=3 ", b"Epoch 1 ", b"step 5 ", b"loss: ", b"val ", b"nan ", b"rank 1 ",
    b"=== Training Loss (Fri May 28 15:43:51 2021) ===\n",
]  # fmt: skip
_NUMBER = re.compile(rb"\d[\d.e+-]*+")
SEEDS = {**{f"{index}.log": text.encode() for index, (text, *_) in enumerate(CASES.values())}, **LOGS}
WRITTEN = 20  # of so many inputs one is also written to a run directory


def damaged(held: bytes, chance: random.Random) -> bytes:
    """Some bytes replaced, left out or put in."""
    data = bytearray(held)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.randint(0, 3)] = chance.choice([*PIECES, chance.randbytes(chance.randint(0, 3))])
    return bytes(data)


def other_numbers(held: bytes, chance: random.Random) -> bytes:
    share = chance.choice([0.02, 0.2, 1.0])
    return _NUMBER.sub(lambda found: chance.choice(NUMBERS) if chance.random() < share else found[0], held)


def other_lines(held: bytes, chance: random.Random) -> bytes:
    """Lines in another order, twice, without ends, or of another log."""
    lines = held.splitlines(keepends=True)
    change = chance.randrange(5)
    if change == 0:
        chance.shuffle(lines)
    elif change == 1:
        lines = lines * chance.randint(2, 4)
    elif change == 2:
        lines = [line.rstrip(b"\r\n") if chance.random() < 0.5 else line for line in lines]
    elif change == 3:
        lines = [line for line in lines if chance.random() < 0.5]
    else:
        other = chance.choice(list(SEEDS.values())).splitlines(keepends=True)
        lines[chance.randrange(len(lines) + 1) :] = other[: chance.randrange(len(other) + 1)]
    return b"".join(lines)


def cut(held: bytes, chance: random.Random) -> bytes:
    return held[chance.randrange(len(held) + 1) * chance.randrange(2) : chance.randrange(len(held) + 1)]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (damaged, other_numbers, other_lines, cut)


def mutated(chance: random.Random) -> tuple[str, bytes]:
    """A name and its bytes; sometimes the name of another format."""
    name = chance.choice(list(SEEDS))
    held = SEEDS[name]
    for _ in range(chance.randint(1, 3)):
        held = chance.choice(MUTATIONS)(held, chance)
    return (name if chance.random() < 0.9 else chance.choice(list(SEEDS))), held


def problem_with(folder: Path, name: str, held: bytes, write: bool) -> str:
    """What went wrong with one input, "" if nothing did. An error that hides another one is also wrong."""
    path = folder / name
    path.write_bytes(held)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # of numpy: nobody should see one
            for place in places(path):
                import_runs(place, folder / "run" if write else None, Request())
    except LogError as problem:
        cause = problem.__cause__
        if not str(problem):
            return "an error without words"
        if cause is not None and not isinstance(cause, LogError | OSError) and "cannot be read as" in str(problem):
            return "".join(traceback.format_exception(cause)[-4:])
        return ""
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


def fuzz(count: int, seconds: float = float("inf"), seed: int = 0) -> tuple[int, Counter[str]]:
    """How many inputs were tried, and each problem with how often it came; an input is known by seed and number."""
    found: Counter[str] = Counter()
    until = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > until:
            return number, found
        name, held = mutated(random.Random(f"{seed}/{number}"))
        with tempfile.TemporaryDirectory() as folder:
            problem = problem_with(Path(folder), name, held, number % WRITTEN == 0)
        if problem:
            found[problem] += 1
            if found[problem] == 1:
                print(f"input {seed}/{number}, {name}:\n{problem}", file=sys.stderr, flush=True)
    return count, found


if __name__ == "__main__":
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    tried, problems = fuzz(int(sys.argv[1]), limit, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print(f"{tried:,} inputs, {len(problems)} kinds of problems, {problems.total()} in all")
    sys.exit(bool(problems))
