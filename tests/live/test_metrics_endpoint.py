"""`/metrics`: what Prometheus would read there, with a strict little parser of its text format."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE
from servers import eventually
from starlette.testclient import TestClient

import steadyrun
from steadyrun.live import run_list
from steadyrun.live.app import Live, application
from steadyrun.live.prometheus import KIND, exposition
from steadyrun.live.run_row import Figures, RunRow

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse(text: str) -> Samples:
    """Metrics by name and labels. Everything that the format does not allow is an error."""
    samples: Samples = {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in samples, f"{name} comes twice"
            samples[name] = {}
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {name} gauge"
        else:
            read, labels, value = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            assert read == name, "samples stand below their own name"
            key = parse_labels(labels or "")
            assert key not in samples[name], f"{line} comes twice"
            assert value in {"NaN", "+Inf", "-Inf"} or re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", value)
            samples[name][key] = float(value)
    return samples


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    labels, position = [], 0
    while position < len(text):
        match = _LABEL.match(text, position)
        assert match is not None, text[position:]
        labels.append((match[1], re.sub(r'\\["\\n]', lambda escaped: _UNESCAPED[escaped[0]], match[2])))
        position = match.end()
    return tuple(labels)


def client(root: Path, token: str | None = None) -> TestClient:
    return TestClient(application(Live(root, {}), token), base_url="http://localhost")


def scraped(browser: TestClient) -> Samples:
    answer = browser.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == KIND
    return parse(answer.text)


def test_what_prometheus_reads_of_a_run(tmp_path: Path) -> None:
    began = time.time()
    with steadyrun.record(tmp_path / "sub/run") as run:
        for step in range(5):
            run.log(loss=2.0 - 0.1 * step, lr=0.1, grad_norm=1.5)
        run.val(1.75)
    me = ("run", "sub/run")
    with client(tmp_path) as browser:
        first = scraped(browser)
        samples = eventually(lambda: (now := scraped(browser))["steadyrun_run_verdict"] and now)
    assert first["steadyrun_runs"] == {(): 1.0}
    assert first["steadyrun_run_loss"] == {(me,): pytest.approx(1.6)}  # it is there with the first answer
    assert samples["steadyrun_run_last_step"] == {(me,): 4.0}
    assert samples["steadyrun_run_learning_rate"] == {(me,): 0.1}
    assert samples["steadyrun_run_grad_norm"] == {(me,): 1.5}
    assert samples["steadyrun_run_val_loss"] == {(me,): 1.75}
    assert 0 <= samples["steadyrun_run_last_point_age_seconds"][(me,)] <= time.time() - began
    states = {dict(key)["state"]: value for key, value in samples["steadyrun_run_state"].items()}
    assert states["finished"] == 1.0
    assert sum(states.values()) == 1.0
    verdicts = {dict(key)["verdict"]: value for key, value in samples["steadyrun_run_verdict"].items()}
    assert sum(verdicts.values()) == 1.0
    assert samples["steadyrun_run_fault"] == {(me, ("leaf", "")): 0.0}


def test_a_fault_is_one(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "bad") as run:
        run.log(loss=math.nan)
    with (tmp_path / "bad/events/rank-00000.jsonl").open("a") as file:
        file.write('{"kind": "verdict", "step": 0, "time": 1, "verdict": "fault", "leaf": "D1.3"}\n')
    with client(tmp_path) as browser:
        samples = scraped(browser)
    assert samples["steadyrun_run_fault"] == {(("run", "bad"), ("leaf", "D1.3")): 1.0}


def test_it_follows_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "_FRESH", 0.0)
    monkeypatch.setattr(run_list, "_SCAN", 0.05)
    with client(tmp_path) as browser, steadyrun.record(tmp_path / "run", flush_steps=1) as run:
        assert scraped(browser)["steadyrun_run_loss"] == {}
        for loss in (3.0, 2.0):
            run.log(loss=loss)
            eventually(lambda loss=loss: list(scraped(browser)["steadyrun_run_loss"].values()) == [loss])


def test_asking_twice_reads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.log(loss=1.0)
    read: list[object] = []
    original = run_list._read
    monkeypatch.setattr(run_list, "_read", lambda *given: (read.append(given), original(*given)))
    with client(tmp_path) as browser:
        for _ in range(10):
            assert scraped(browser)["steadyrun_run_loss"]
    assert len(read) == 1


def test_the_pages_cause_no_such_reading(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.log(loss=1.0)
    live = Live(tmp_path, {})
    with TestClient(application(live), base_url="http://localhost") as browser:
        eventually(lambda: browser.get("/api/runs").json()["rows"][0]["loss"])
        (known,) = live.index._known.values()
        assert known.row.figures is None
        assert "figures" not in browser.get("/api/runs").json()["rows"][0]
        assert scraped(browser)["steadyrun_run_loss"]  # of a run that has ended, too


def test_it_is_behind_the_same_guard(tmp_path: Path) -> None:
    with client(tmp_path, token="x" * 20) as browser:
        assert browser.get("/metrics").status_code == 401
        assert browser.get("/metrics", headers={"Authorization": f"Bearer {'x' * 20}"}).status_code == 200
        assert browser.get("/metrics", headers={"Host": "evil.example"}).status_code == 400


def test_a_broken_run_is_unreadable_and_hides_no_other(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "good") as run:
        run.log(loss=1.0)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/manifest.json").write_text("{")
    with client(tmp_path) as browser:
        samples = scraped(browser)
    assert samples["steadyrun_run_state"][("run", "bad"), ("state", "unreadable")] == 1.0
    assert list(samples["steadyrun_run_loss"]) == [(("run", "good"),)]


def test_the_number_of_runs_is_bounded() -> None:
    rows = [RunRow(str(number), str(number), "running", step=number) for number in range(3)]
    samples = parse(exposition(rows, 40, 0.0))
    assert samples["steadyrun_runs"] == {(): 43.0}
    assert samples["steadyrun_runs_left_out"] == {(): 40.0}
    assert len(samples["steadyrun_run_last_step"]) == 3


def test_names_that_are_shown_alike_stay_apart() -> None:
    rows = [RunRow("a%0A", "a\\n", "running", step=1), RunRow("a%5Cn", "a\\n", "running", step=2)]
    samples = parse(exposition(rows, 0, 0.0))
    assert set(samples["steadyrun_run_last_step"]) == {(("run", "/run/a%0A"),), (("run", "/run/a%5Cn"),)}


@given(st.text(st.characters(), max_size=30), st.text(max_size=20), st.floats())
def test_any_name_is_one_label(name: str, leaf: str, value: float) -> None:
    row = RunRow("key", name, "finished", step=3, verdict="fault", leaf=leaf, figures=Figures(loss=value, at=value))
    samples = parse(exposition([row], 0, 5.0))
    shown = name.encode("utf-8", "backslashreplace").decode()
    assert list(samples["steadyrun_run_last_step"]) == [(("run", shown),)]
    assert [key[1] for key in samples["steadyrun_run_fault"]] == [("leaf", leaf)]
    (loss,) = samples["steadyrun_run_loss"].values()
    assert loss == value or (math.isnan(loss) and math.isnan(value))


def test_a_hostile_folder_name(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "|").replace("\0", "")[:100]
    with steadyrun.record(tmp_path / name) as run:
        run.log(loss=1.0)
    with client(tmp_path) as browser:
        assert len(scraped(browser)["steadyrun_run_loss"]) == 1


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parent.parent.parent / "docs/dashboard.md").read_text()
    assert set(parse(exposition([], 0, 0.0))) == set(re.findall(r"`(steadyrun_\w+)`", page))
