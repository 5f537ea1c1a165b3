"""The dashboard of a run of a million steps and a hundred series: seconds, memory, bytes, and how fast it draws.

python benchmarks/dashboard_size.py          as the recorder writes it: 20 series at every step, 80 sampled
python benchmarks/dashboard_size.py --worst  all hundred at every step
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from steadyrun.signals.declared_schedule import SchedulePlan
from steadyrun.store.writer import RunWriter

STEPS, FLUSH, EVERY = 1_000_000, 5_000, 100
BLOCKS = 20
CONFIG = {
    "vocab_size": 512,
    "init": "random",
    "lr_max": 1e-3,
    "lr_min": 1e-4,
    "warmup_steps": 2000,
    "total_steps": STEPS,
    "schedule": "cosine",
    "clip": 1.0,
    "baseline_loss": 1.7,
}
SAMPLED = [
    f"{kind}/blocks.{b}" for kind in ("activation", "spectral_norm", "dead_units", "dead_heads") for b in range(BLOCKS)
]
BUILD = """
import json, re, sys, time
from pathlib import Path
start = time.perf_counter()
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page
board = board_of(sys.argv[1])
walked = time.perf_counter()
text = page(board)
Path(sys.argv[2]).write_text(text, encoding="utf-8")
seconds = time.perf_counter() - start
# Not getrusage, which counts what the parent process had when it forked.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
points = sum(len(line.steps) for panel in board.panels for line in panel.lines)
lines = sum(len(panel.lines) for panel in board.panels)
print(json.dumps({
    "build_s": round(seconds, 2), "of_it_page_s": round(seconds - (walked - start), 2),
    "processor_s": round(time.process_time(), 2), "peak_memory_mib": round(peak),
    "file_mb": round(Path(sys.argv[2]).stat().st_size / 1e6, 2), "lines": lines, "points": points,
}))
"""


def write(root: Path, every: int) -> None:
    """A healthy-looking run whose hundred series are all on panels."""
    steps = np.arange(float(STEPS))
    noise = np.random.default_rng(0).standard_normal(STEPS)
    loss = 1.5 + (math.log(512) - 1.5) * np.exp(-steps / 5000) + 0.05 * noise
    loss[0] = math.log(512)
    columns = {
        "loss": loss,
        "grad_norm": 2.5 + 0.3 * noise,
        "clip_threshold": np.ones(STEPS),
        "clipped": np.ones(STEPS),
        "skipped": np.zeros(STEPS),
        **{
            f"lr/{group}": SchedulePlan("cosine", 1e-3 / (group + 1), 1e-4, 2000, STEPS).rate(steps)
            for group in range(5)
        },
        **{f"class_loss/{name}": loss + 0.1 * place * noise[::-1] for place, name in enumerate("abcdefghij")},
    }
    columns["loss"][123_456] = 40.0
    blocks = [{"name": f"blocks.{b}", "role": "block"} for b in range(BLOCKS)]
    writer = RunWriter(root)
    writer.save_manifest(state="running", config=CONFIG, blocks=blocks)
    writer.define("steps", list(columns))
    writer.define("samples", SAMPLED)
    names, rows = list(columns), np.stack(list(columns.values()), axis=1)
    for step, row in enumerate(rows.tolist()):
        writer.append("steps", step, dict(zip(names, row, strict=True)), 0.0)
        if step % every == 0:
            level = 1 + 0.1 * abs(float(noise[step]))
            writer.append("samples", step, dict.fromkeys(SAMPLED, level), 0.0)
        if step % FLUSH == FLUSH - 1:
            writer.flush()
        if step % (STEPS // 20) == STEPS // 20 - 1:
            writer.event("validation", step, values={"val_loss": 1.7})
    writer.save_manifest(state="finished")
    writer.close()


def draw(page: Path) -> dict[str, float]:
    """Seconds until the page is drawn, in a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-drawn]")
        drawn = tab.evaluate("performance.getEntriesByName('drawn')[0].startTime")
        painted = tab.evaluate(
            "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
        )
        browser.close()
    return {"drawn_s": round(drawn / 1000, 2), "painted_s": round(painted / 1000, 2)}


if __name__ == "__main__":
    worst = "--worst" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder) / "run", Path(folder) / "dashboard.html"
        write(run, 1 if worst else EVERY)
        built = subprocess.run(
            [sys.executable, "-c", BUILD, str(run), str(page)], check=True, capture_output=True, text=True
        )
        found = {"steps": STEPS, "series": 100, "sampled_every": 1 if worst else EVERY, **json.loads(built.stdout)}
        print(json.dumps(found | draw(page)), flush=True)
