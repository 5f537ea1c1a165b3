"""`steadyrun dashboard` as a person types it, and the dashboard of a notebook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

runner = CliRunner()


def dashboard(*arguments: str) -> Any:
    return runner.invoke(app, ["dashboard", *arguments])


@pytest.fixture(autouse=True)
def _a_run(tmp_path: Path, tutor_run: Callable[..., steadyrun.RunView], monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tutor_run("bad-init", steps=60).root, tmp_path / "bad-init")
    monkeypatch.chdir(tmp_path)


def test_the_page_is_written_into_the_run_directory() -> None:
    result = dashboard("bad-init")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "bad-init/dashboard.html\n", "")
    text = Path("bad-init/dashboard.html").read_text("utf-8")
    assert text.count('<article class="panel') == 7
    assert re.search(r"✗</span> fault: [^<]+ \(C5\.1\)", text)
    assert len(text) < 8_000_000


def test_out_and_one_panel() -> None:
    result = dashboard("bad-init", "--panel", "3", "--out", "three.html")
    assert (result.exit_code, result.stdout) == (0, "three.html\n")
    text = Path("three.html").read_text("utf-8")
    assert text.count('<article class="panel') == 1
    assert "Are the gradients stable?" in text


def test_an_image() -> None:
    assert dashboard("bad-init", "--png").stdout == "bad-init/dashboard.png\n"
    assert Path("bad-init/dashboard.png").read_bytes().startswith(b"\x89PNG")
    assert dashboard("bad-init", "--png", "--panel", "7", "--out", "seven.png").exit_code == 0


def test_an_image_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    result = dashboard("bad-init", "--png")
    assert result.exit_code == 2
    assert 'an image needs matplotlib: pip install "steadyrun[png]"' in result.stderr


def test_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) == 1)
    assert dashboard("bad-init", "--open").stderr == ""
    assert opened == [(tmp_path / "bad-init" / "dashboard.html").as_uri()]
    assert "could not start a browser" in dashboard("bad-init", "--open").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bad-int"], "runs near it: "),
        (["bad-init", "--panel", "8"], "--panel"),
        (["bad-init", "--out", "no/such/folder/x.html"], "does not exist"),
        (["bad-init", "--set", "C3.1.hgh=1"], "C3.1.h"),
    ],
)
def test_mistakes(arguments: list[str], said: str) -> None:
    result = dashboard(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_thresholds_count_on_the_page() -> None:
    assert dashboard("bad-init", "--set", "C5.1.wide=100000").exit_code == 0
    assert "limit wide changed from 10 to 100000" in Path("bad-init/dashboard.html").read_text("utf-8")


def test_a_notebook_gets_seven_figures_and_a_small_output() -> None:
    found = steadyrun.open_run("bad-init").dashboard()
    assert isinstance(found, steadyrun.Dashboard)
    assert [figure.layout.title.text[:2] for figure in found.figures] == [f"{n}." for n in range(1, 8)]
    html = found._repr_html_()
    assert len(html) < 400_000
    assert "<script" not in html
    assert "✗ first fault" in html
    assert repr(found).endswith("bad-init', fault>")
    assert found.save("page.html").stat().st_size > 1_000_000


def test_reading_a_run_needs_no_plotly() -> None:
    program = """
import sys, steadyrun
steadyrun.open_run("bad-init").series("loss")
steadyrun.check("bad-init")
assert not {"plotly", "matplotlib", "jinja2", "tsdownsample"} & set(sys.modules)
import steadyrun.cli
assert not {"plotly", "matplotlib", "jinja2", "tsdownsample"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("", "is not a file"),
        (".", "is not a file"),
        ("pipe", "is not a file"),
        ("none/there.html", "the folder of --out none/there.html does not exist"),
        ("bad-init/manifest.json", "belongs to the run itself"),
        ("bad-init/metrics/page.html", "belongs to the run itself"),
    ],
)
def test_nothing_but_a_file_of_its_own_is_replaced(where: str, problem: str) -> None:
    os.mkfifo("pipe")
    before = Path("bad-init/manifest.json").read_bytes()
    result = dashboard("bad-init", "--out", where)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert Path("pipe").is_fifo()
    assert Path("bad-init/manifest.json").read_bytes() == before


def test_a_link_is_followed_and_a_png_is_one() -> None:
    Path("there.html").write_text("old")
    Path("link.html").symlink_to("there.html")
    assert dashboard("bad-init", "--out", "link.html").stdout == "link.html\n"
    assert Path("link.html").is_symlink()
    assert "<article" in Path("there.html").read_text("utf-8")
    assert dashboard("bad-init", "--out", "image.png").exit_code == 0
    assert Path("image.png").read_bytes().startswith(b"\x89PNG")
