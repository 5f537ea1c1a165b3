"""The generated pages are fresh, and the README's program runs."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun

ROOT = Path(__file__).parent.parent

_spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert _spec is not None
assert _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", generate.PAGES)
def test_generated_pages_are_fresh(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == generate.PAGES[page](), "stale: run `make docs`"


def test_the_readmes_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import torch.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    view = steadyrun.open_run(tmp_path / "experiments" / "my-run")
    assert view.state == "finished"
    assert {"loss", "val_loss", "lr/0", "grad_norm", "clipped", "batch_hash"} <= set(view.names())
    assert view.events("probe-failed") == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
