"""A search through the commits of a real repository: the right commit, and nothing of the user's changed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from steadyrun.errors import UsageError
from steadyrun.store.jsonio import dumps
from steadyrun.trial import commits
from steadyrun.trial.commit_checkout import Commit, Repository
from steadyrun.trial.commit_search import BAD, FOUND, GOOD, SKIPPED, TriedCommit
from steadyrun.trial.commit_twins import Answer
from steadyrun.trial.commits import Ends, bisect_commits, parse_range
from steadyrun.trial.verdict import UNDECIDED

# A program of two files: the factory imports its rate and its data from its neighbours.
TRAIN = """
import pathlib
import sys
import torch
from steadyrun import Task
from rate import RATE, SCALE
from data import labels

def task(config):
    pathlib.Path("data.txt").read_text()
    assert sys.argv[1:] == ["--width", "6"]
    source = torch.Generator().manual_seed(5)
    weights = torch.randn(6, generator=source)
    inputs = torch.randn(16, 8, 6, generator=source)
    loader = [(x, labels(x @ weights)) for x in inputs]
    model = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE * SCALE * config.get("times", 1.0))
    loss_fn = lambda model, batch: torch.nn.functional.mse_loss(model(batch[0]).squeeze(1), batch[1])
    return Task(model, optimizer, loss_fn, loader=loader)
"""
RATE = "RATE = 0.1\nSCALE = 1.00\n"
DATA = "def labels(targets):\n    return targets\n"
SLOW = RATE.replace("1.00", "0.01")  # as long as before: byte code of the same second would look fresh
SHUFFLED = "def labels(targets):\n    return targets.flip(0)\n"
TIME = {"steps": 20, "seeds": 2, "budget": 200.0}


def git(folder: Path, *words: str) -> str:
    names = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    settings = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *words], cwd=folder, env=settings, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def committed(folder: Path, subject: str, **files: str) -> str:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", subject)
    return git(folder, "rev-parse", "HEAD")


def started(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / ".gitignore").write_text("data.txt\n")
    (folder / "data.txt").write_text("kept")
    committed(folder, "First program", train=TRAIN, rate=RATE, data=DATA)
    return folder


def state(folder: Path) -> list[str]:
    """What a search may not change."""
    words = [("rev-parse", "HEAD"), ("symbolic-ref", "HEAD"), ("status", "--porcelain"), ("for-each-ref",)]
    files = sorted(f"{path}: {path.read_bytes()!r}" for path in folder.glob("*") if path.is_file())
    return [*(git(folder, *each) for each in words), git(folder, "worktree", "list"), *files]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Nine commits: the rate is a hundredth of itself from the eighth on; the fifth, in the middle, does not import."""
    folder = started(tmp_path / "program")
    git(folder, "tag", "good")
    committed(folder, "A comment", train=TRAIN + "# twins\n")
    committed(folder, "Notes", notes="TEXT = 1\n")
    committed(folder, "More notes", notes="TEXT = 2\n")
    committed(folder, "Broken import", train="import steadyrun_has_none\n" + TRAIN)
    committed(folder, "Mended import", train=TRAIN)
    committed(folder, "Data on their own", data=DATA + "# targets\n")
    committed(folder, "Tidy up the rate", rate=SLOW)
    committed(folder, "Last notes", notes="TEXT = 4\n")
    return folder


@pytest.mark.long
def test_the_commit_is_named_with_its_diff(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process imports the modules of its commit, the data that git ignores are there, and nothing is changed."""
    (repository / "rate.py").write_text("RATE = None  # not committed\n")
    monkeypatch.chdir(repository)
    monkeypatch.syspath_prepend(str(repository))  # what would lead back to the user's files
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")]))
    before, seen = state(repository), []
    search = bisect_commits(
        "train:task",
        "HEAD~6",
        "HEAD~1",
        **TIME,
        arguments=["--width", "6"],
        on_commit=lambda *given: seen.append(given),
    )
    assert state(repository) == before
    assert not list(repository.rglob("__pycache__"))
    assert search.kind == FOUND
    assert search.commit is not None
    assert search.commit.subject == "Tidy up the rate"
    assert search.exit_code == 1
    assert "+SCALE = 0.01" in search.diff
    skipped = [each for each in search.tried if each.verdict == SKIPPED]
    assert [each.commit.subject for each in skipped] == ["Broken import"]
    assert "steadyrun_has_none" in skipped[0].why
    assert len(seen) == len(search.tried) <= 6
    lines = search.lines()
    assert lines[0].startswith(f'✗ found: {search.commit.short} "Tidy up the rate" (')
    assert any("1 file with uncommitted changes" in line for line in lines)
    assert any("git ignores data.txt" in line for line in lines)
    content = json.loads(dumps(search.to_dict()))
    assert content["commit"]["hash"] == search.commit.hash
    assert content["steps"] == 20


def by_text(program: object, tree: Path, _scratch: Path, seeds: int, steps: int | None, *_: object) -> Answer:
    """In the place of training: what the files of the commit would make of it."""
    if "steadyrun_has_none" in (tree / "train.py").read_text():
        return Answer(failure="importing train raised ModuleNotFoundError")
    bad = "0.01" in (tree / "rate.py").read_text() or "flip" in (tree / "data.py").read_text()
    ends = [{"held": (1.0 if bad else 0.5) + 0.01 * seed} for seed in range(seeds)]
    twins = [{"seed": seed + 1, "starts": {"held": 1.5}, "ends": end} for seed, end in enumerate(ends)]
    return Answer(steps or 20, [{**twin, "measured_on": "held", "raised": ""} for twin in twins])


@pytest.fixture
def judge_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "train_commit", by_text)


@pytest.mark.usefixtures("judge_by_text")
def test_a_commit_beside_one_that_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are candidates, as for git."""
    folder = started(tmp_path / "program")
    for number in range(3):
        committed(folder, f"Notes {number}", notes=f"TEXT = {number}\n")
    committed(folder, "Broken import", train="import steadyrun_has_none\n" + TRAIN)
    committed(folder, "Tidy up the rate", rate=SLOW, train=TRAIN)
    committed(folder, "Last notes", notes="TEXT = 4\n")
    monkeypatch.chdir(folder)
    search = bisect_commits("train:task", "HEAD~6", "HEAD", **TIME)
    assert search.kind == UNDECIDED
    assert search.exit_code == 3
    assert [commit.subject for commit in search.candidates] == ["Tidy up the rate", "Broken import"]
    text = str(search)
    assert "1 commit could not be judged, so 2 commits are left." in text
    assert "possible commits:" in text


@pytest.mark.usefixtures("judge_by_text")
def test_a_commit_that_came_with_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = started(tmp_path / "program")
    git(folder, "checkout", "--quiet", "-b", "side")
    guilty = committed(folder, "Tidy the labels", data=SHUFFLED)
    git(folder, "checkout", "--quiet", "main")
    committed(folder, "Notes", notes="TEXT = 1\n")
    git(folder, "merge", "--quiet", "--no-edit", "side")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    search = bisect_commits("../train.py:task", "HEAD~2", "HEAD", **TIME)
    assert search.commit is not None
    assert search.commit.hash == guilty
    assert "targets.flip(0)" in search.diff
    assert search.tried[0].mean == pytest.approx(0.505)


@pytest.mark.usefixtures("judge_by_text")
def test_neighbours(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is nothing between the ends, BAD itself is the answer."""
    monkeypatch.chdir(repository)
    search = bisect_commits("train:task", "HEAD~2", "HEAD~1", **TIME)
    assert search.commit is not None
    assert search.commit.subject == "Tidy up the rate"
    assert len(search.tried) == 2


@pytest.mark.usefixtures("judge_by_text")
def test_ends_that_are_alike_decide_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    search = bisect_commits(str(repository / "train.py:task"), "good", "HEAD~2", **TIME)
    assert search.kind == UNDECIDED
    assert len(search.tried) == 2
    assert "not larger than the spread between seeds" in search.message
    assert not search.candidates
    assert "possible commit" not in str(search)


@pytest.mark.usefixtures("judge_by_text")
def test_an_end_that_cannot_be_built_is_an_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    with pytest.raises(UsageError, match=r"the good end, cannot be measured: .*ModuleNotFoundError"):
        bisect_commits("train:task", "HEAD~4", "HEAD", **TIME)
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_time_that_is_up_leaves_a_range(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    search = bisect_commits("train:task", "good", "HEAD", steps=20, seeds=2, budget=0.3)
    assert search.kind == UNDECIDED
    assert len(search.candidates) == 8
    assert search.message == "The budget ended with 8 commits left."
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_ctrl_c_removes_the_worktree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the search: what is left is said, and git knows no second worktree."""
    monkeypatch.chdir(repository)
    places: list[Path] = []

    def interrupted(program: object, tree: Path, *given: Any) -> Answer:
        places.append(tree)
        if len(places) > 4:
            raise KeyboardInterrupt
        return by_text(program, tree, *given)

    monkeypatch.setattr(commits, "train_commit", interrupted)
    search = bisect_commits("train:task", "good", "HEAD", **TIME)
    assert search.interrupted
    assert 1 < len(search.candidates) < 8
    assert "stopped with Ctrl-C" in str(search)
    assert not places[0].parent.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("text", ["", "a", "a..", "..b", "a...b", "a..b..c"])
def test_a_range_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"must look like GOOD\.\.BAD"):
        parse_range(text)


def test_a_range() -> None:
    assert parse_range("v1.2..HEAD") == ("v1.2", "HEAD")


def test_what_cannot_be_searched(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    git(repository, "branch", "side", "HEAD~3")
    git(repository, "checkout", "--quiet", "side")
    committed(repository, "Aside", notes="TEXT = 9\n")
    git(repository, "checkout", "--quiet", "main")
    for good, bad, message in [
        ("nothing", "HEAD", "has no commit 'nothing'"),
        ("--all", "HEAD", "has no commit '--all'"),
        ("HEAD", "HEAD", "are the same commit"),
        ("HEAD", "good", "HEAD is newer than good"),
        ("side", "main", "side is not an ancestor of main"),
    ]:
        with pytest.raises(UsageError, match=message):
            bisect_commits("train:task", good, bad, **TIME)
    with pytest.raises(UsageError, match="at least 2 seeds"):
        bisect_commits("train:task", "good", "HEAD", seeds=1)
    with pytest.raises(UsageError, match="on here, local or local:N"):
        bisect_commits("train:task", "good", "HEAD", on="ray")
    (tmp_path / "outside.py").write_text(TRAIN)
    with pytest.raises(UsageError, match="not in a git repository"):
        bisect_commits("../outside.py:task", "good", "HEAD")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="not in a git repository"):
        bisect_commits("train:task", "good", "HEAD")


def tried(*ends: float, start: float = 2.0) -> TriedCommit:
    return TriedCommit(Commit("0" * 40, "2026-01-01", "x", "y"), ends, start)


INF = float("inf")


@pytest.mark.parametrize(
    ("good", "bad", "commit", "verdict"),
    [
        ((0.5, 0.52, 0.51), (1.0, 1.03, 1.01), (0.55, 0.6, 0.58), GOOD),
        ((0.5, 0.52, 0.51), (1.0, 1.03, 1.01), (0.9, 0.95, 0.92), BAD),
        ((0.5, 0.52, 0.51), (5.0, 500.0, 5e9), (0.6, 0.61, 0.6), GOOD),  # how far it diverges is chance
        ((0.5, 0.52, 0.51), (5.0, 500.0, 5e9), (3.6, 70.0, 4e4), BAD),
        ((0.5, 0.52, 0.51), (0.1, 0.11, 0.12), (0.1, 0.11, 0.1), BAD),  # lower than it should be: a leak
        ((0.5, 0.52, 0.51), (INF, INF, INF), (INF, INF, 0.5), BAD),
        ((0.5, 0.52, 0.51), (INF, INF, INF), (0.5, 0.5, INF), GOOD),
        ((0.5, 0.52, 0.51), (1.0, 1.03, 1.01), (INF, INF, 0.5), SKIPPED),
        ((0.5, 0.52, 0.51), (1.0, 1.03, 1.01), (), SKIPPED),
    ],
)
def test_on_which_side_a_commit_is(
    good: tuple[float, ...], bad: tuple[float, ...], commit: tuple[float, ...], verdict: str
) -> None:
    ends = Ends(tried(*good), tried(*bad))
    assert ends.undecided is None
    judged = ends.judged(tried(*commit))
    assert judged.verdict == verdict
    assert not judged.unsure


def test_a_commit_halfway_is_not_sure() -> None:
    judged = Ends(tried(0.5, 0.52, 0.51), tried(1.0, 1.03, 1.01)).judged(tried(0.7, 0.8, 0.79))
    assert judged.unsure


def test_ends_within_the_noise_say_how_many_seeds() -> None:
    undecided = Ends(tried(0.5, 0.6, 0.7), tried(0.62, 0.6, 0.72)).undecided
    assert undecided is not None
    assert "to resolve this difference" in undecided[1]


def test_a_good_end_that_fails() -> None:
    undecided = Ends(tried(INF, INF, 0.5), tried(0.6, 0.6, 0.7)).undecided
    assert undecided is not None
    assert "The twins of GOOD fail" in undecided[0]


def test_the_diff_of_a_commit(repository: Path) -> None:
    mine = Repository(repository)
    commit = mine.commit("HEAD~1")
    assert commit.subject == "Tidy up the rate"
    assert "+SCALE = 0.01" in mine.diff(commit)
    assert [each.subject for each in mine.described(mine.parents(commit))] == ["Data on their own"]
