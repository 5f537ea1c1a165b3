"""What every crew does, wherever its jobs are done."""

import importlib.util
import math
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import worker_jobs

from steadyrun.errors import UsageError
from steadyrun.workers import Crew, Done, Job, open_crew


def job(key: str, function: str, **arguments: Any) -> Job:
    return Job(key, f"worker_jobs:{function}", arguments)


def done(crew: Crew, *jobs: Job) -> dict[str, Done]:
    for each in jobs:
        crew.start(each)
    return {ended.job.key: ended for ended in crew.finished()}


@pytest.fixture(scope="module", params=["here", "local:2", "threads", "processes"])
def place(request: pytest.FixtureRequest) -> Iterator[str | Executor]:
    if request.param == "threads":
        with ThreadPoolExecutor(2) as executor:
            yield executor
    elif request.param == "processes":
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
            yield executor
    else:
        yield request.param


def test_results_and_failures(place: str | Executor) -> None:
    with open_crew(place) as crew:
        ended = done(
            crew,
            job("sum", "add", one=1, other=2.5),
            job("odd", "odd_numbers", given=math.inf),
            job("raises", "fail", words="no\nsuch thing"),
            job("object", "not_json"),
            job("nothing", "no_such_function"),
            Job("no module", "no_such_module:function"),
            Job("exit", "sys:exit"),
        )
        assert [*crew.finished()] == []
    assert ended["sum"].result == 3.5
    assert ended["sum"].seconds > 0
    assert str(ended["odd"].result) == "[inf, nan, -inf]"
    assert ended["raises"].failure.startswith(f"ValueError: no such thing ({worker_jobs.__file__}:")
    assert ended["object"].failure == "its result is not JSON: Object of type object is not JSON serializable"
    assert ended["nothing"].failure == "AttributeError: module 'worker_jobs' has no attribute 'no_such_function'"
    assert ended["no module"].failure.startswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert ended["exit"].failure == "SystemExit"
    assert not any(each.retried for each in ended.values())


def test_what_jobs_print_is_not_in_the_output(place: str | Executor, capsys: pytest.CaptureFixture[str]) -> None:
    with open_crew(place) as crew:
        crew.start(job("prints", "print_only"))
        for ended in crew.finished():
            print(f"{ended.job.key} has ended")
    assert capsys.readouterr().out == "prints has ended\n"


@pytest.mark.parametrize("on", ["here", "local:1"])
def test_jobs_begin_in_their_order(on: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    with open_crew(on) as crew:
        done(crew, *(job(str(index), "write_line", file=str(file), line=str(index)) for index in range(8)))
    assert file.read_text().split() == [str(index) for index in range(8)]


def test_no_more_at_once_than_it_has_workers(tmp_path: Path) -> None:
    with open_crew("local:2") as crew:
        ended = done(
            crew, *(job(str(index), "neighbours", folder=str(tmp_path), name=str(index)) for index in range(20))
        )
    assert crew.size == 2
    assert {each.result for each in ended.values()} <= {1, 2}


def test_more_may_be_started_while_others_end(place: str | Executor) -> None:
    results = []
    with open_crew(place) as crew:
        crew.start(job("0", "add", one=0, other=0))
        for ended in crew.finished():
            results.append(ended.result)
            if ended.result < 4:
                crew.start(job(str(ended.result + 1), "add", one=ended.result, other=1))
    assert results == [0, 1, 2, 3, 4]


def test_a_job_that_has_not_begun_can_be_dropped(fifo: Path) -> None:
    with open_crew("local:1") as crew:
        crew.start(job("waits", "read_all", fifo=str(fifo)))
        for index in range(4):
            crew.start(job(str(index), "add", one=index, other=0))
        dropped = [crew.drop(key) for key in ("1", "3", "3", "never started")]
        with fifo.open("w") as pipe:
            begun = crew.drop("waits")
            pipe.write("go on")
        ended = [done.result for done in crew.finished()]
        assert not crew.drop("2")
    assert dropped == [True, True, False, False]
    assert not begun
    assert ended == ["go on", 0, 2]


def test_nothing_is_left_if_all_are_dropped() -> None:
    with open_crew("here") as crew:
        crew.start(job("one", "fail", words=""))
        assert crew.drop("one")
        assert [*crew.finished()] == []


def test_an_executor_that_is_closed_or_broken_fails_its_jobs() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor, open_crew(executor) as crew:
        broken = done(crew, job("one", "leave", code=3), job("two", "add", one=1, other=1))
    assert [each.failure.partition(":")[0] for each in broken.values()] == ["BrokenProcessPool"] * 2
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with open_crew(closed) as crew:
        assert "after shutdown" in done(crew, job("one", "add", one=1, other=1))["one"].failure


@pytest.mark.parametrize(
    ("on", "words"), [("cloud", "unknown workers 'cloud'"), ("local:0", "at least 1"), ("local:x", "at least 1")]
)
def test_places_that_do_not_exist(on: str, words: str) -> None:
    with pytest.raises(UsageError, match=words), open_crew(on):
        pass


@pytest.mark.parametrize(("on", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_package_that_is_not_installed(on: str, package: str) -> None:
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(UsageError, match=rf'pip install "steadyrun\[{package}\]"'), open_crew(on):
        pass


def test_bad_jobs_are_refused_at_once() -> None:
    with open_crew("here") as crew:
        crew.start(job("one", "add", one=1, other=2))
        with pytest.raises(UsageError, match="already has a job one"):
            crew.start(job("one", "add", one=1, other=2))
        with pytest.raises(UsageError, match="the arguments of job two are not JSON"):
            crew.start(job("two", "add", one=object(), other=2))
