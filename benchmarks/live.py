"""`steadyrun serve`: how soon a new point arrives, what twenty readers cost, and a list of five hundred runs.

python benchmarks/live.py
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers import Reader, Server, eventually, serving, writing

import steadyrun
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import train_recorded

POINTS, READERS, RUNS = 100, 20, 500


def memory(server: Server) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)


def seen(reader: Reader, step: int) -> float:
    """When a reader was told of this step; 0 where it was not yet."""
    told = zip(list(reader.events), reader.times, strict=False)
    return next((when for event, when in told if f"last step {step}" in event[2]), 0.0)


def latency(root: Path) -> None:
    """From the moment a point is on disk until the last reader has it."""
    with serving(root) as server, writing(root / "latency") as writer:
        writer.write(*[3.0] * 1000)
        start = server.json("/api/run/latency/data")["id"]
        readers = [Reader(server, f"/api/run/latency/events?since={start}") for _ in range(READERS)]
        before, took = memory(server), []
        for step in range(1000, 1000 + POINTS):
            time.sleep(0.3 + 0.4 * random.random())
            writer.write(2.0)
            written = time.monotonic()
            eventually(lambda step=step: all(seen(reader, step) for reader in readers))
            took.append(max(seen(reader, step) for reader in readers) - written)
        after = memory(server)
        for reader in readers:
            reader.close()
    ordered = sorted(took)
    told = {"median": statistics.median(took), "p95": ordered[int(0.95 * len(ordered))], "worst": ordered[-1]}
    print(json.dumps({"readers": READERS, "points": POINTS, "mib_before": before, "mib_after": after, **told}))


def many_runs(root: Path) -> None:
    """The list: seconds until it is there, until it has all losses, until it has all verdicts."""
    train_recorded(load_recipe("healthy", steps=300), root / "run-0")
    with_verdict = sum(event.kind == "verdict" for event in steadyrun.open_run(root / "run-0").events())
    for number in range(1, RUNS):
        shutil.copytree(root / "run-0", root / f"run-{number}")
        if number % 10 == 0:  # some that must be walked
            log = root / f"run-{number}/events/rank-00000.jsonl"
            log.write_text("".join(line for line in log.read_text().splitlines(True) if '"verdict"' not in line))
    with serving(root) as server:
        began = time.monotonic()
        found = {"runs": len(server.json("/api/runs")["rows"]), "recorded_verdict": bool(with_verdict)}
        found["listed"] = time.monotonic() - began
        eventually(lambda: all(row["loss"] for row in server.json("/api/runs")["rows"]), 300)
        found["losses"] = time.monotonic() - began
        eventually(lambda: all(row["verdict"] for row in server.json("/api/runs")["rows"]), 600)
        found["verdicts"] = time.monotonic() - began
        found["mib"] = memory(server)
        began = time.monotonic()
        found["bytes"] = len(server.get("/api/runs")[1])
        found["listed_again"] = time.monotonic() - began
    print(json.dumps(found))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one").mkdir()
        latency(Path(folder) / "one")
        many_runs(Path(folder) / "many")
