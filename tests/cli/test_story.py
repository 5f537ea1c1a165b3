"""`steadyrun demo FAULT`: training, leaf, replay, post-mortem, dashboard, and what to type next."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from steadyrun.cli import app


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.long
def test_the_whole_story_of_a_fault() -> None:
    result = run("demo", "log-of-zero", "--steps", "120")
    assert result.exit_code == 0, result.stderr
    for words in ("Check: fault", "bit-equal", "Culprit: ", "Verdict: model", "post-mortem  ", "dashboard    "):
        assert words in result.stdout
    (document,) = Path("experiments/log-of-zero/postmortems").glob("*.md")
    assert "## 4. Root cause" in document.read_text()
    assert Path("experiments/log-of-zero/dashboard.html").is_file()
    assert Path("experiments/lessons.md").is_file()
    assert f"verify {document} NEW_RUN" in result.stdout


def test_a_healthy_run_has_no_post_mortem() -> None:
    result = run("demo", "--steps", "60")
    assert result.exit_code == 0
    assert "post-mortem  " not in result.stdout
    assert "dashboard    experiments/healthy/dashboard.html" in result.stdout


def test_training_alone() -> None:
    result = run("demo", "--steps", "20", "--train-only")
    assert result.exit_code == 0
    assert "Check:" not in result.stdout
    assert not Path("experiments/healthy/dashboard.html").exists()


@pytest.mark.slow
def test_the_rare_token_is_named_and_the_remedy_verified() -> None:
    told = run("demo", "rare-token-spike")
    assert "Verdict: data" in told.stdout
    assert "writ" in told.stdout
    assert run("demo", "rare-token-spike", "--remedy", "--train-only").exit_code == 0
    (document,) = Path("experiments/rare-token-spike/postmortems").glob("*.md")
    assert run("verify", str(document), "experiments/rare-token-spike-remedied").exit_code == 0
    assert run("verify", str(document), "experiments/rare-token-spike").exit_code == 1
