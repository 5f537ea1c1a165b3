"""Which runs are found under a folder, and that nothing outside of it is."""

import os
from pathlib import Path

import pytest

import steadyrun
from steadyrun.store.discover import Root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("inside/a", "inside/deep/er/b", "outside"):
        with steadyrun.record(tmp_path / name) as run:
            run.log(loss=1.0)
    return tmp_path / "inside"


def test_runs_at_any_depth(root: Path) -> None:
    assert sorted(run.key for run in Root(root).runs()) == ["a", "deep/er/b"]


def test_a_root_that_is_itself_a_run(root: Path) -> None:
    (run,) = Root(root / "a").runs()
    assert (run.key, run.name, run.path) == ("", "a", root / "a")
    assert Root(root / "a").find("") == run


def test_too_deep_is_not_searched(root: Path) -> None:
    (root / "1/2/3/4/5/6/7").mkdir(parents=True)
    (root / "a").rename(root / "1/2/3/4/5/6/7/a")
    assert [run.key for run in Root(root).runs()] == ["deep/er/b"]


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../outside", "a/..", "a/../a", "deep/../../outside", "/a", "a/", "deep//er/b", "./a", "a\0",
        "a\\b", "..\\outside", "nothing", "deep", "a/manifest.json", "a/metrics",
    ],
)  # fmt: skip
def test_what_is_no_run_or_leads_out_is_not_found(root: Path, name: str) -> None:
    assert Root(root).find(name) is None


def test_absolute_paths_are_not_found(root: Path) -> None:
    assert Root(root).find(str(root / "a")) is None


@pytest.mark.parametrize("linked", ["run", "manifest.json", "metrics", "metrics/rank-00000", "events", "one file"])
def test_links_are_not_followed(root: Path, linked: str) -> None:
    outside = root.parent / "outside"
    if linked == "run":
        (root / "link").symlink_to(outside)
        assert Root(root).find("link") is None
        assert len(Root(root).runs()) == 2
        return
    names = [path.name for path in (root / "a/metrics/rank-00000").glob("*.parquet")]
    part = f"metrics/rank-00000/{names[0]}" if linked == "one file" else linked
    (root / "a" / part).rename(root / "kept")
    (root / "a" / part).symlink_to(outside / part)
    assert Root(root).find("a") is None
    assert [run.key for run in Root(root).runs()] == ["deep/er/b"]


@pytest.mark.parametrize("part", ["replay.json", "replay", "replay/metrics", "replay/metrics/rank-00000/steps.parquet"])
def test_links_in_incidents_are_not_followed(root: Path, part: str) -> None:
    """A walk reads what replays have found, and a post-mortem the run that one left."""
    link = root / "a/incidents/step-0000001" / part
    link.parent.mkdir(parents=True)
    assert Root(root).find("a") is not None
    link.symlink_to(root.parent / "outside" / "manifest.json")
    assert Root(root).find("a") is None
    assert [run.key for run in Root(root).runs()] == ["deep/er/b"]


@pytest.mark.parametrize("part", ["events/rank-00000.jsonl", "events"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_at(root: Path, part: str) -> None:
    (root / "a" / part).rename(root / "kept")
    os.mkfifo(root / "a" / part)
    assert Root(root).find("a") is None
    assert [run.key for run in Root(root).runs()] == ["deep/er/b"]


def test_a_root_behind_a_link_is_served(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    assert Root(root.parent / "link").find("a") is not None


def test_odd_names_have_addresses(root: Path) -> None:
    for name in ("<script>alert(1)</script>".replace("/", "|"), "per cent%2f", "line\nbreak", "ü", "\udcff", "a?b#c"):
        (root / "a").rename(root / name)
        run = Root(root).find(name)
        assert run is not None
        assert run.key.isascii()
        assert not set(run.key) & set("<>\"' \n?#")
        (root / name).rename(root / "a")
