"""The pages about trackers: the program writes a log, the commands print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "import"
STEADYRUN = f'{sys.executable} -c "from steadyrun.cli import main; main()"'


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


def plain(text: str) -> list[str]:
    """Lines without spaces at their ends, and with names that differ from run to run shortened."""
    text = re.sub(r"offline-run-\d+_\d+-\w+", "offline-run-…", text)
    text = re.sub(r"next: \S*steadyrun ", "next: steadyrun ", text)
    return sorted(line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("page", ["tensorboard.md", "wandb.md", "mlflow.md"])
def test_the_page_tells_the_truth(page: str, tmp_path: Path) -> None:
    (program,), (session,) = blocks(page, "python"), blocks(page, "console")
    settings = {"WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "COLUMNS": "200"}
    environment = os.environ | settings
    (tmp_path / "write.py").write_text(program)
    subprocess.run([sys.executable, "write.py"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    for command, told in re.findall(r"^\$ steadyrun (.*)\n((?:[^$].*\n)*)", session, re.M):
        done = subprocess.run(
            f"{STEADYRUN} {command}", shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert plain(done.stdout + done.stderr) == plain(told)
