"""`steadyrun postmortem` and `steadyrun verify` as people type them, on runs of the tutor."""

import builtins
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import steadyrun
from steadyrun.cli import app

STEPS = {"lr-jump": 400, "optimizer-reset": 400, "log-of-zero": 160, "corrupt-batch": 400}
TutorRun = Callable[..., steadyrun.RunView]


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def run_of(tmp_path: Path, tutor_run: TutorRun) -> Callable[[str], Path]:
    """A copy of a broken run, in a folder of runs of its own."""

    def copy(fault: str) -> Path:
        return Path(shutil.copytree(tutor_run(fault, steps=STEPS[fault]).root, tmp_path / "runs" / fault))

    return copy


def written(run: Path, *options: object) -> tuple[Path, dict[str, Any]]:
    result = typed("postmortem", run, "--no-picture", *options)
    assert result.exit_code == 0, result.stderr
    path = Path(result.stdout.splitlines()[-1])
    return path, json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        pytest.param("lr-jump", "learning-rate", marks=pytest.mark.slow),
        pytest.param("optimizer-reset", "optimizer-state", marks=pytest.mark.slow),
        ("log-of-zero", ""),
        pytest.param("corrupt-batch", "walk-fault", marks=pytest.mark.slow),
    ],
)
def test_the_broken_run_fails_its_own_list_and_the_healthy_one_passes(
    fault: str, cause: str, run_of: Callable[[str], Path], tutor_run: TutorRun
) -> None:
    run = run_of(fault)
    path, document = written(run)
    assert path == run / "postmortems" / f"step-{document['incident']['step']:07d}.md"
    assert document["root_cause"]["cause"] == cause
    assert document["root_cause"]["known"] == bool(cause)
    assert typed("verify", path, run).exit_code == 1
    result = typed("verify", path.with_suffix(".json"), tutor_run("healthy", steps=STEPS[fault]).root)
    assert result.exit_code == 0, result.stdout


@pytest.mark.long
def test_a_replay_names_the_operation(run_of: Callable[[str], Path]) -> None:
    run = run_of("log-of-zero")
    _, before = written(run)
    assert not before["root_cause"]["known"]
    assert before["lesson"].startswith("No lesson yet: the cause is not proved.")
    assert not (run.parent / "lessons.md").exists()
    assert typed("replay", run, "--no-experiments").exit_code == 0
    assert written(run)[1]["root_cause"]["by"] == "replay"
    assert typed("replay", run).exit_code == 0
    path, after = written(run)
    assert after["root_cause"]["by"] == "experiments"
    assert after["root_cause"]["cause"] == "model-numerics"
    assert "objectives.py" in after["remediation"][0]["change"]
    assert any("checkpoint.safetensors" in each["change"] for each in after["remediation"])
    assert "becomes non-finite" in path.read_text()
    lessons = (run.parent / "lessons.md").read_text()
    assert sum(line.startswith("- ") for line in lessons.splitlines()) == 1


@pytest.mark.long
def test_lessons_are_added_once_or_not_at_all(run_of: Callable[[str], Path]) -> None:
    run = run_of("lr-jump")
    written(run, "--no-lesson")
    assert not (run.parent / "lessons.md").exists()
    written(run)
    first = (run.parent / "lessons.md").read_bytes()
    written(run)
    assert (run.parent / "lessons.md").read_bytes() == first


def test_the_picture(run_of: Callable[[str], Path]) -> None:
    run = run_of("corrupt-batch")
    result = typed("postmortem", run)
    assert result.exit_code == 0
    path = Path(result.stdout.strip())
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert f"]({path.stem}.png)" in path.read_text()
    assert json.loads(path.with_suffix(".json").read_text())["picture"] == f"{path.stem}.png"


def test_without_matplotlib_the_document_says_how_to_get_one(
    run_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    result = typed("postmortem", run_of("lr-jump"))
    assert result.exit_code == 0
    assert "steadyrun[png]" in result.stderr
    assert "No picture: " in Path(result.stdout.strip()).read_text()


def test_json_and_checklist(run_of: Callable[[str], Path]) -> None:
    run = run_of("lr-jump")
    told = json.loads(typed("postmortem", run, "--json", "--no-picture").stdout)
    assert told["schema"] == 1
    assert [each["done"] for each in told["checklist"]] == [False, True, True, True, False]
    result = typed("postmortem", run, "--checklist", "--no-picture")
    assert result.stdout.startswith("[ ] Minimal reproduction? captured, but not replayed yet")
    assert "## Checklist" in Path(result.stdout.splitlines()[-1]).read_text()


def test_another_place(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    run = run_of("lr-jump")
    path, _ = written(run, "--out", tmp_path / "mine.md")
    assert path == tmp_path / "mine.md"
    assert (tmp_path / "mine.json").is_file()
    assert not (run / "postmortems").exists()
    (tmp_path / "folder").mkdir()
    assert written(run, "--out", tmp_path / "folder")[0] == tmp_path / "folder" / "step-0000200.md"
    assert typed("postmortem", run, "--out", tmp_path / "x.txt").exit_code == 2
    assert typed("postmortem", run, "--out", tmp_path / "none" / "x.md").exit_code == 2


def test_nothing_to_write_about(tmp_path: Path, tutor_run: TutorRun) -> None:
    run = Path(shutil.copytree(tutor_run("healthy", steps=400).root, tmp_path / "healthy"))
    result = typed("postmortem", run)
    assert result.exit_code == 2
    assert "nothing to write a post-mortem about" in result.stderr
    assert "--step N" in result.stderr
    path, document = written(run, "--step", 200)
    assert document["incident"]["kind"] == "chosen"
    assert not document["root_cause"]["known"]
    assert "cannot recognise a fixed run" in path.read_text()
    assert typed("postmortem", run, "--step", 9999).exit_code == 2
    assert typed("postmortem", tmp_path / "nowhere").exit_code == 2


def test_a_run_of_plain_numbers(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "plain") as run:
        for step in range(60):
            run.log(loss=2.0 if step < 50 else float("nan"))
    path, document = written(tmp_path / "plain")
    assert document["incident"]["kind"] == "non-finite"
    assert "grad" not in {each["series"] for each in document["verification"]["expectations"] if "series" in each}
    assert "did not recover" in path.read_text()


def test_verify_in_words_and_json(run_of: Callable[[str], Path], tutor_run: TutorRun) -> None:
    path, _ = written(run_of("lr-jump"))
    healthy, short = (tutor_run("healthy", steps=steps).root for steps in (400, 160))
    result = typed("verify", path, healthy)
    assert result.stdout.splitlines()[0].split() == ["expectation", "limit", "measured", "why"]
    assert "✓ pass" in result.stdout
    told = json.loads(typed("verify", path, healthy, "--json").stdout)
    assert (told["schema"], told["verdict"]) == (1, "pass")
    result = typed("verify", path, short)
    assert result.exit_code == 3
    assert "ends at step 159" in result.stdout


def test_verify_refuses_what_it_cannot_read(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    run = run_of("lr-jump")
    path, _ = written(run)
    assert typed("verify", path, tmp_path / "nowhere").exit_code == 2
    path.with_suffix(".json").unlink()
    result = typed("verify", path, run)
    assert result.exit_code == 2
    assert "the file beside step-0000200.md" in result.stderr
    assert "Traceback" not in result.stderr


def test_hostile_words_are_only_shown(run_of: Callable[[str], Path]) -> None:
    run = run_of("lr-jump")
    for path in (run / "incidents").glob("step-*/incident.json"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"why": "\x1b[2J<b>boo</b>", "kind": "fault"}))
    path, _ = written(run)
    assert "\x1b[2J" not in path.read_text()
    assert "<b>" not in path.read_text()
    document = path.with_suffix(".json")
    content = json.loads(document.read_text())
    content["verification"]["expectations"] = [{"kind": "finite", "series": "\x1b[2J[red]x[/red]", "until": 3}]
    document.write_text(json.dumps(content))
    result = typed("verify", path, run)
    assert result.exit_code == 3
    assert "\x1b[2J" not in result.stdout
    assert "[red]x[/red]" in result.stdout


@pytest.mark.parametrize("link", ["postmortems", "postmortems/step-0000005.png"])
def test_nothing_is_written_where_a_link_leads(tmp_path: Path, link: str) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        for _ in range(10):
            run.log(loss=1.0)
    (tmp_path / "outside").mkdir()
    target = tmp_path / "run" / link
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(tmp_path / "outside")
    result = typed("postmortem", tmp_path / "run", "--step", 5, "--no-lesson", "--no-picture")
    assert result.exit_code == 2
    assert "is a symbolic link, or contains one" in result.stderr
    assert list((tmp_path / "outside").iterdir()) == []
    elsewhere = typed("postmortem", tmp_path / "run", "--step", 5, "--no-lesson", "--no-picture", "--out", tmp_path)
    assert elsewhere.exit_code == 0, elsewhere.stderr
