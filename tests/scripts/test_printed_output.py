"""Printed output passes through unchanged, and its numbers join the record at the step of their line."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_recorder import KeptRecord
from hypothesis import given
from hypothesis import strategies as st

from steadyrun.importers import live_lines
from steadyrun.scripts import printed_output
from steadyrun.scripts.printed_lines import LONGEST_LINE, LineSplitter

TEXTS = st.text(st.sampled_from("ab1.: \r\n|█\x1b[m"), max_size=200)


Stream = io.TextIOWrapper


def written(stream: Stream) -> bytes:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


@contextlib.contextmanager
def observed(record: KeptRecord) -> Iterator[tuple[Stream, Stream]]:
    """Streams as a process has them, of which the bytes can be seen; what is printed is read."""
    out, err = (Stream(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        detach = printed_output.attach(record)
        try:
            yield out, err
        finally:
            detach()


def all_lines(pieces: list[str]) -> list[str]:
    splitter = LineSplitter()
    return [line for piece in pieces for line, _ in splitter.lines(piece, 0)] + [line for line, _ in splitter.ended()]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=20))
def test_any_chunking_gives_the_same_lines(text: str, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in itertools.pairwise(ends)]
    whole = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n") if text else []
    assert all_lines(pieces) == all_lines([text])
    assert [line for line in all_lines(pieces) if line] == [line for line in whole if line]


def test_a_line_without_an_end_stays_bounded() -> None:
    splitter = LineSplitter()
    for _ in range(100):
        assert list(splitter.lines("x" * 1_000, 0)) == []
    assert [len(line) for line, _ in splitter.lines("\n", 0)] == [LONGEST_LINE]


def test_of_a_change_the_newer_number_counts() -> None:
    """The usual line of early stopping, whose first number is that of the validation before, or infinite."""
    record = KeptRecord()
    record.step = 4
    with observed(record):
        print("Epoch: 1, Steps: 4 | Train Loss: 0.9860557 Vali Loss: 0.8739069 Test Loss: 0.9743989")
        print("Validation loss decreased (inf --> 0.873907).  Saving model ...")
        print("lr 0.1 -> 0.01, accuracy: 0.5 => 0.75")
    assert record.validations == [(4, 0.8739069)]
    assert record.series("Validation loss decreased") == [(4, 0.873907)]
    assert record.series("accuracy") == [(4, 0.75)]


def test_a_line_belongs_to_the_step_of_its_last_word() -> None:
    splitter = LineSplitter()
    assert list(splitter.lines("\rloss=0.5", 3)) == [("", 0)]
    assert list(splitter.lines("\rloss=0.4", 7)) == [("loss=0.5", 3)]
    assert list(splitter.lines(", lr=1", 8)) == []
    assert list(splitter.lines("\n", 9)) == [("loss=0.4, lr=1", 8)]


def test_a_script_like_pytorch_examples_mnist() -> None:
    record = KeptRecord()
    with observed(record):
        print("Namespace(batch_size=64, test_batch_size=1000, epochs=14, lr=1.0)")
        for epoch in (1, 2):
            for batch in (0, 10):
                record.step += 10
                print(f"Train Epoch: {epoch} [{batch * 64}/60000 ({batch}%)]\tLoss: {2.3 / record.step:.6f}")
            print(f"\nTest set: Average loss: {0.5 / epoch:.4f}, Accuracy: {9000 + epoch}/10000 (90%)\n")
    assert record.losses == [(10, 0.23), (20, 0.115), (30, 0.076667), (40, 0.0575)]
    assert record.validations == [(20, 0.5), (40, 0.25)]
    assert record.series("test_Accuracy") == [(20, 0.9001), (40, 0.9002)]
    assert record.notes == []


def test_the_split_that_a_line_names_counts() -> None:
    """An evaluation of the training data is no validation, although its line begins with "eval"."""
    record = KeptRecord()
    record.step = 4
    with observed(record):
        print("eval: split train. loss 7.4e-03. error 0.40%. misses: 2")
        print("eval: split test . loss 7.7e-03. error 0.50%. misses: 1")
    assert record.validations == [(4, 0.0077)]


def test_bytes_are_the_same_and_come_at_once() -> None:
    record = KeptRecord()
    text = "loss: 0.5 σ\r 50%|█████     | \x1b[32mok\x1b[0m\n"
    with observed(record) as (out, err):
        assert sys.stdout is out
        assert sys.stdout.write(text) == len(text)
        assert written(out) == text.encode()
        print("a", 1, sep="-", end="", flush=True)
        assert written(out) == text.encode() + b"a-1"
        sys.stdout.writelines(["b\n", "c\n"])
        sys.stdout.buffer.write(b"\xff")
        assert written(out) == text.encode() + b"a-1b\nc\n\xff"
        print("warning", file=sys.stderr)
        assert written(err) == b"warning\n"
    assert "write" not in vars(out)
    assert "write" not in vars(err)


def test_an_error_of_write_is_the_scripts_own() -> None:
    with observed(KeptRecord()):
        with pytest.raises(TypeError, match=r"write\(\) argument must be str, not bytes"):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            sys.stdout.write()  # type: ignore[call-arg]


def test_redirections_loggers_and_replaced_streams() -> None:
    record = KeptRecord()
    record.step = 5
    logger = logging.getLogger("steadyrun-test-printed")
    logger.propagate = False
    with observed(record) as (_, err):
        logger.addHandler(logging.StreamHandler(err))
        elsewhere = io.StringIO()
        with contextlib.redirect_stdout(elsewhere):
            print("val loss 9.0")
        assert elsewhere.getvalue() == "val loss 9.0\n"
        logger.warning("epoch 1: val_loss 0.75")
        record.step = 6
        sys.stdout = Tee(sys.stdout)  # as many scripts do to keep a log file
        print("epoch 2: val_loss 0.5")
    assert record.validations == [(5, 0.75), (6, 0.5)]


class Tee:
    """What scripts put in front of their terminal."""

    def __init__(self, terminal: io.TextIOBase) -> None:
        self.terminal = terminal
        self.log: list[str] = []

    def write(self, text: str) -> None:
        self.terminal.write(text)
        self.log.append(text)

    def flush(self) -> None:
        self.terminal.flush()


def test_a_kept_write_goes_on_after_the_end() -> None:
    record = KeptRecord()
    record.step = 1
    with observed(record) as (out, _):
        kept = sys.stdout.write
    kept("val loss 1.0\n")
    assert written(out) == b"val loss 1.0\n"
    assert record.validations == []


def test_a_broken_reader_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_reader: object, _line: str, _step: int) -> list[object]:
        raise RecursionError("deep")

    monkeypatch.setattr(live_lines.LiveLines, "values", broken)
    record = KeptRecord()
    with observed(record) as (out, _):
        print("loss 1.0")
        print("loss 2.0")
    assert written(out) == b"loss 1.0\nloss 2.0\n"
    assert record.notes == ["The printed output is not read any more: RecursionError: deep"]


def test_other_threads_print_and_this_one_reads() -> None:
    record = KeptRecord()
    record.step = 3
    with observed(record):
        printing = threading.Thread(target=print, args=("val loss 0.5",))
        printing.start()
        printing.join()
        assert record.validations == []
    assert record.validations == [(3, 0.5)]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_output, "_FRACTION", 0.0)
    monkeypatch.setattr(printed_output, "_HEAD_START", 0.0)  # no time to read until the end
    monkeypatch.setattr(printed_output, "_MOST_WAITING", 4)
    record = KeptRecord()
    with observed(record):
        for step in range(1, 6):
            record.step = step
            sys.stdout.write(f"val loss {step}.0\n")
        assert record.validations == []
    assert record.validations == [(2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0)]


def test_players_against_each_other_have_no_training_loss() -> None:
    record = KeptRecord()
    record.step = 2
    with observed(record):
        print("[0/25][10/1583] Loss_D: 0.45 Loss_G: 5.2 D(x): 0.78 D(G(z)): 0.12 / 0.01")
    assert record.losses == []
    assert record.series("Loss_D") == [(2, 0.45)]
    assert record.series("Loss_G") == [(2, 5.2)]


def test_each_drawing_of_a_bar_has_its_own_step() -> None:
    record = KeptRecord()
    with observed(record):
        for step in range(1, 5):
            record.step = step
            sys.stderr.write(f"\r{25 * step:3d}%|███  | {step}/4 [00:01<00:01, 1.5it/s, loss={1 / step:.3f}]")
        record.step = 9
        print("\nVal loss: 0.5", file=sys.stderr)
    assert record.losses == [(1, 1.0), (2, 0.5), (3, 0.333), (4, 0.25)]
    assert record.validations == [(9, 0.5)]


def test_what_a_bar_shows_again_is_not_new() -> None:
    """A validation loss that stays in the bar of the next epoch; the same loss on two lines of their own is two."""
    record = KeptRecord()
    with observed(record):
        for step in range(1, 9):
            record.step = step
            sys.stderr.write(
                f"\r{step}/8 [00:01<00:01, 1.5it/s, loss={1 / step:.3f}, val_loss={0.5 if step < 5 else 0.4}]"
            )
        print(file=sys.stderr)
        for step in (20, 30):
            record.step = step
            print("Val loss: 0.25")
    assert record.validations == [(1, 0.5), (5, 0.4), (20, 0.25), (30, 0.25)]
    assert [step for step, _ in record.losses] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_our_own_lines_are_not_read() -> None:
    record = KeptRecord()
    record.step = 2
    with observed(record):
        print("steadyrun: suspect at step 2: val loss 9.0", file=sys.stderr)
    assert record.validations == []


def test_the_source_lines_of_a_traceback_report_nothing() -> None:
    record = KeptRecord()
    record.step = 2
    with observed(record):
        print("Traceback (most recent call last):", file=sys.stderr)
        print('  File "train.py", line 66, in train\n    return loss.data[0] / args.length', file=sys.stderr)
        print("    val_loss = 0.25 * total\nIndexError: val loss 9.0 is odd\nval loss 0.5", file=sys.stderr)
    assert record.validations == [(2, 0.5)]
    assert record.series("return loss.data") == []


_TERMINAL = """
    import os, sys
    sys.path.insert(0, {tests!r})
    from fake_recorder import KeptRecord
    from steadyrun.scripts import printed_output
    from tqdm import tqdm

    record = KeptRecord()
    if {observed}:
        detach = printed_output.attach(record)
    assert sys.stdout.isatty() and sys.stderr.isatty() and sys.stdout.fileno() == 1
    assert os.get_terminal_size(sys.stdout.fileno()) == (100, 30)
    print(sys.stdout.encoding, sys.stdout.line_buffering, type(sys.stdout).__name__)
    form = "{{desc}} {{percentage:3.0f}}%|{{bar}}| {{n}}/{{total}}{{postfix}}"
    bar = tqdm(range(4), mininterval=0, miniters=1, bar_format=form)
    for number in bar:
        record.step += 1
        bar.set_postfix(loss=1 / record.step)
    tqdm.write("val loss 0.25")
    os.write(1, b"bytes of C\\n")
    os.system("echo of a child")
    if {observed}:
        detach()
        assert record.validations == [(4, 0.25)], record.validations
        assert record.losses[-1] == (4, 0.25), record.losses
"""


def on_a_terminal(folder: Path, *, observed: bool) -> bytes:
    """What a script writes to a terminal of 100 columns."""
    import fcntl
    import struct
    import termios

    script = folder / "script.py"
    script.write_text(textwrap.dedent(_TERMINAL).format(tests=str(Path(__file__).parent), observed=observed))
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen([sys.executable, str(script)], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 65_536):
            shown += piece
    os.close(ours)
    assert process.wait() == 0, shown.decode()
    return shown


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    with_us, without = (on_a_terminal(tmp_path, observed=observed) for observed in (True, False))
    assert with_us == without
    assert with_us.count(b"\r") > 4
    assert "█".encode() in with_us
