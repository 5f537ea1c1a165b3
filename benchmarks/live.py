"""`steadyrun serve`: how soon a new point arrives, what twenty readers cost, five hundred runs, a million steps.

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
from dashboard_size import EVERY, STEPS, write
from servers import Reader, Server, eventually, serving, writing

import steadyrun
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import train_recorded

POINTS, READERS, RUNS = 100, 20, 500
LAST = """() => {
  const trace = document.querySelector('#panel-1 .plot').data.find((each) => each.name === 'train' && !each.meta);
  return trace.y[trace.y.length - 1];
}"""


def memory(server: Server, what: str = "VmRSS") -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return round(int(status.partition(f"{what}:")[2].split()[0]) / 1024, 1)


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


def in_a_browser(root: Path) -> None:
    """From the moment a point is on disk until the page's plot holds it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with serving(root) as server, writing(root / "drawn") as writer, sync_playwright() as playwright:
        writer.write(*[3.0] * 1000)
        page = playwright.chromium.launch(executable_path=chromium, args=arguments).new_page()
        page.goto(f"{server.base}/run/drawn")
        page.wait_for_selector("html[data-live]")
        took = []
        for value in range(30):
            time.sleep(0.3 + 0.4 * random.random())
            writer.write(2.0 + value)
            written = time.monotonic()
            while page.evaluate(LAST) != 2.0 + value:
                time.sleep(0.005)
            took.append(time.monotonic() - written)
    print(json.dumps({"drawn": True, "median": statistics.median(took), "worst": max(took)}))


def long_run(root: Path, every: int) -> None:
    """A closed run of a million steps and 100 series, all on panels: the page, a part of it, the memory."""
    write(root / "long", every)
    with serving(root) as server:
        found: dict[str, object] = {"steps": STEPS, "sampled_every": every, "mib_before": memory(server)}
        for name, path in (
            ("page", "/run/long"),
            ("data", "/api/run/long/data"),
            ("part", "/api/run/long/panel/4?from=500000&to=510000"),
        ):
            began = time.monotonic()
            status, body = server.get(path)
            assert status == 200, body
            found |= {name: round(time.monotonic() - began, 3), f"{name}_bytes": len(body)}
        found["mib_most"] = memory(server, "VmHWM")
        time.sleep(30)  # nobody watches any more
        found["mib_left"] = memory(server)
    print(json.dumps(found), flush=True)
    shutil.rmtree(root / "long")


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
        in_a_browser(Path(folder) / "one")
        (Path(folder) / "long").mkdir()
        long_run(Path(folder) / "long", EVERY)
        long_run(Path(folder) / "long", 1)
        many_runs(Path(folder) / "many")
