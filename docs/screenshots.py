"""Train four runs of the tutor and take the README's screenshots of their dashboards. `make docs` runs it.

python docs/screenshots.py
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import train_recorded

HERE = Path(__file__).parent / "images"
RUNS = ("bad-init", "no-warmup", "broken-mask", "lr-jump")
ZOOMED = ("lr-jump",)  # shown where its first finding is
SIZE = {"width": 1440, "height": 900}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def take(browser: Any, run: str) -> None:
    """One screenshot of a run's page, in fewer colours: a README loads it each time."""
    file = Path(run).with_suffix(".html")
    file.write_text(page(board_of(run)), encoding="utf-8")
    tab = browser.new_page(viewport=SIZE, color_scheme="light")
    tab.goto(file.absolute().as_uri())
    tab.wait_for_selector("html[data-drawn]")
    if Path(run).name in ZOOMED:
        tab.locator(".leaf button.show").click()
    tab.wait_for_timeout(800)
    image = Image.open(io.BytesIO(tab.screenshot()))
    target = HERE / f"{Path(run).name}.png"
    image.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(target, optimize=True)
    tab.close()
    print(f"wrote docs/images/{target.name} ({target.stat().st_size // 1024} KiB)")


@contextmanager
def open_browser() -> Iterator[Any]:
    """A headless chromium of this machine."""
    if CHROMIUM is None:
        sys.exit("no screenshots: chromium is not installed; `make browser` installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def main() -> None:
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        os.chdir(folder)
        for fault in RUNS:
            train_recorded(load_recipe(fault, seed=1, steps=600), Path("experiments") / fault)
            take(browser, f"experiments/{fault}")
        os.chdir(HERE)


if __name__ == "__main__":
    main()
