"""The generated pages are fresh, and the README's program runs."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from samples import fault_report, healthy_report

import steadyrun
from steadyrun.report.comparison import compare
from steadyrun.report.file_formats import document
from steadyrun.report.limits import threshold_named

ROOT = Path(__file__).parent.parent

_spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert _spec is not None
assert _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", generate.PAGES)
def test_generated_pages_are_fresh(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == generate.PAGES[page](), "stale: run `make docs`"


def test_no_page_is_left_over() -> None:
    assert generate.left_over() == [], "obsolete: run `make docs`"


def test_the_readmes_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import torch.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=300, capture_output=True)
    assert done.stdout.decode().startswith("✓ healthy  experiments/my-run  finished, last step 199\n")
    assert "✗" not in done.stdout.decode()
    view = steadyrun.open_run(tmp_path / "experiments" / "my-run")
    assert view.state == "finished"
    series = {"loss", "val_loss", "lr/0", "grad_norm", "clipped", "batch_hash", "example_hash/val"}
    assert series <= set(view.names())
    assert view.events("probe-failed") == []


def test_the_json_of_the_report_is_the_documented_one() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.DOTALL)
    documented = json.loads(example)
    real = document(fault_report(), compare(fault_report(), healthy_report()))
    assert list(documented) == list(real)
    assert set(documented["leaf"]["evidence"]) == set(real["leaf"]["evidence"])
    for key in ("walk", "notes", "not_asked"):
        assert set(documented[key][0]) == set(real[key][0])
    (documented_limit,) = documented["walk"][0]["thresholds"].values()
    assert set(documented_limit) == set(real["walk"][-1]["thresholds"]["high"])
    assert set(documented["after"]) == set(real["after"])
    assert set(documented["after"]["leaf_came"]) == set(real["after"]["leaf_came"])
    assert set(documented["after"]["changed"][0]) == set(real["after"]["changed"][0])


def test_thresholds_in_examples_exist() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for name in re.findall(r"--set ([\w.]+)=", page.read_text()):
            threshold_named(name)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_citation_names_this_version() -> None:
    (version,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version == steadyrun.__version__


def test_the_readmes_commands_and_their_options_exist() -> None:
    from typer.testing import CliRunner

    from steadyrun.cli import app

    commands = re.findall(r"(?:`|^  )steadyrun ([a-z]+)([^`\n#]*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"check", "preflight", "replay", "trial", "postmortem", "verify", "serve"} <= {name for name, _ in commands}
    for name, rest in commands:
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
        assert shown.exit_code == 0, name
        ours = rest.partition(".py")[0] if name == "run" else rest  # what follows the script belongs to the script
        for option in re.findall(r"--[a-z-]+", ours):
            assert option in shown.stdout, f"{name} {option}"
