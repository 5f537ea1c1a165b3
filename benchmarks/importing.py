"""Importing at size: TensorBoard against its own reader, and the memory that a large CSV takes.

python benchmarks/importing.py tensorboard    200,000 points; needs the extra `tensorboard`
python benchmarks/importing.py csv            1 GB, in a process of its own
python benchmarks/importing.py text           10 MB of printed lines, in a process of its own
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

STEPS, TAGS = 50_000, ("train/loss", "train/grad_norm", "lr", "train/accuracy")
ROUNDS = 5
GIGABYTE = 10**9


def import_it(source: Path, target: Path) -> int:
    from steadyrun.importers.import_log import import_place
    from steadyrun.importers.log_files import places

    (place,) = places(source)
    return import_place(place, target, {}, {}).points


# -- TensorBoard ------------------------------------------------------------------------------------------------------


def write_events(folder: Path) -> Path:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    values = np.random.default_rng(0).random(len(TAGS) * STEPS)
    for place, value in enumerate(values.tolist()):
        step, tag = divmod(place, len(TAGS))
        summary = Summary(value=[Summary.Value(tag=TAGS[tag], simple_value=value)])
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=summary))
    writer.close()
    (path,) = folder.iterdir()
    return path


def tensorboard() -> None:
    """The same file by turns: by the owner's readers, and imported into a run directory."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    with tempfile.TemporaryDirectory() as folder:
        path = write_events(Path(folder) / "log")

        def accumulate() -> int:
            held = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
            held.Reload()
            return sum(len(held.Scalars(tag)) for tag in held.Tags()["scalars"])

        turns: dict[str, Callable[[], int]] = {
            "event_file_loader": lambda: sum(1 for _ in EventFileLoader(str(path)).Load()),
            "event_accumulator": accumulate,
            "steadyrun": lambda: import_it(path, Path(folder) / "run"),
        }
        best, found = dict.fromkeys(turns, float("inf")), dict.fromkeys(turns, 0)
        for _ in range(ROUNDS):
            for name, turn in turns.items():
                start = time.perf_counter()
                found[name] = turn()
                best[name] = min(best[name], time.perf_counter() - start)
        ratios = {f"of_{name}": round(best["steadyrun"] / best[name], 3) for name in turns if name != "steadyrun"}
        seconds = {f"{name}_s": round(spent, 2) for name, spent in best.items()}
        print(json.dumps({"points": found["steadyrun"], **seconds, **ratios}), flush=True)


# -- CSV --------------------------------------------------------------------------------------------------------------


def write_csv(path: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        file.write("step,train/loss,val/loss,lr,grad_norm,tokens,note\n")
        step = 0
        while file.tell() < size:
            cells = rng.random((20_000, 4))
            lines = []
            for a, b, c, d in cells.tolist():
                held_out = f"{b:.6f}" if step % 100 == 0 else ""
                lines.append(f"{step},{a:.10f},{held_out},{c:.3e},{d:.10f},{step * 4096},all is well\n")
                step += 1
            file.write("".join(lines))


def write_text(path: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        step = 0
        while file.tell() < size:
            for loss, norm in rng.random((10_000, 2)).tolist():
                file.write(f"INFO step {step} | loss {loss:.5f} | lr 1.00e-03 | grad_norm {norm:.3f} | tok/s 12345\n")
                step += 1


def csv(size: int = GIGABYTE) -> None:
    sized("csv", write_csv, size)


def text(size: int = 10**7) -> None:
    sized("log", write_text, size)


def sized(ending: str, write: Callable[[Path, int], None], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"metrics.{ending}"
        write(source, size)
        command = [sys.executable, __file__, "one", str(source), str(Path(folder) / "run")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        held = json.loads(done.stdout)
        megabytes = source.stat().st_size / 1e6
        print(
            json.dumps({f"{ending}_mb": round(megabytes), **held, "mb_per_s": round(megabytes / held["s"], 1)}),
            flush=True,
        )


def one(source: str, target: str) -> None:
    start = time.perf_counter()
    points = import_it(Path(source), Path(target))
    spent = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu = time.process_time()
    print(json.dumps({"points": points, "s": round(spent, 1), "cpu_s": round(cpu, 1), "peak_rss_mib": round(peak)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(*sys.argv[2:])
    elif sys.argv[1:2] == ["csv"]:
        csv(int(float(sys.argv[2])) if len(sys.argv) > 2 else GIGABYTE)
    elif sys.argv[1:2] == ["text"]:
        text(int(float(sys.argv[2])) if len(sys.argv) > 2 else 10**7)
    elif sys.argv[1:2] == ["tensorboard"]:
        tensorboard()
    else:
        with contextlib.suppress(ImportError):
            tensorboard()
        text()
        csv()
