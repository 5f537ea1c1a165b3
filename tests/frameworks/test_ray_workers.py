"""Workers on a Ray cluster of two nodes, both on this machine."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from steadyrun.errors import UsageError
from steadyrun.workers import Job, open_crew

JOBS = str(Path(__file__).parents[1] / "workers")


def job(key: str, function: str, **arguments: Any) -> Job:
    return Job(key, f"worker_jobs:{function}", {name: str(value) for name, value in arguments.items()})


@pytest.fixture(autouse=True)
def job_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(JOBS)
    monkeypatch.setattr(sys, "argv", ["train.py", "--width", "5"])


def test_jobs_use_both_nodes(address: str, fifo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with open_crew(f"ray:{address}") as crew:
        assert crew.size == 2
        crew.start(job("reads", "read_all", fifo=fifo))  # ends only if the other one runs meanwhile, on the other CPU
        crew.start(job("writes", "write_line", file=fifo, line="both"))
        crew.start(job("prints", "prints"))
        crew.start(job("about", "about_me"))
        crew.start(job("raises", "fail", words="no such thing"))
        ended = {done.job.key: done for done in crew.finished()}
    assert not ray.is_initialized()
    assert ended["reads"].result == "both\n"
    about = ended["about"].result
    assert about["process"] != os.getpid()
    assert about["threads"] == [1, "1"]
    assert (about["arguments"], about["folder"]) == (["train.py", "--width", "5"], str(Path.cwd()))
    assert ended["raises"].failure.startswith("ValueError: no such thing (")
    assert "a job prints" not in capfd.readouterr().out


def test_a_killed_worker(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_crew(f"ray:{address}") as crew:
        crew.start(job("once", "die_once", marker=tmp_path / "marker"))
        crew.start(job("always", "die"))
        crew.start(job("sum", "about_me"))
        ended = {done.job.key: done for done in crew.finished()}
    assert (ended["once"].result, ended["once"].retried) == ("done", 1)
    assert (ended["always"].failure, ended["always"].retried) == ("its worker died (WorkerCrashedError) twice", 1)
    assert ended["sum"].failure == ""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("steadyrun: ")]
    assert sorted(line.split(":")[1] for line in said) == [" job always", " job once"]


def test_leaving_early_ends_the_jobs_and_a_connection_of_the_user_stays(address: str, fifo: Path) -> None:
    ray.init(address=address, log_to_driver=False)
    try:
        with open_crew("ray") as crew:
            crew.start(job("held", "hold_alone", fifo=fifo))
            reader = fifo.open()
            assert int(reader.readline()) > 0
        with reader:
            assert reader.read() == ""  # the end of the pipe: the job's process has ended
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_a_node_that_dies(fifo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        with open_crew(f"ray:{cluster.address}") as crew:
            crew.start(job("held", "hold_once_alone", fifo=fifo, marker=tmp_path / "marker"))
            with fifo.open() as reader:
                assert int(reader.readline()) > 0
                cluster.add_node(num_cpus=1)
                cluster.remove_node(node, allow_graceful=False)
                (done,) = crew.finished()
    finally:
        cluster.shutdown()
    assert (done.result, done.retried) == ("done", 1)
    assert "job held: its worker (of Ray) died (" in capsys.readouterr().err


def test_a_cluster_of_its_own() -> None:
    with open_crew("ray") as crew:
        assert crew.size == os.cpu_count()
        crew.start(Job("sum", "worker_jobs:add", {"one": 1, "other": 2}))
        assert [done.result for done in crew.finished()] == [3]
    assert not ray.is_initialized()


def test_no_cluster_at_the_address() -> None:
    with pytest.raises(UsageError, match="no Ray cluster answers at"), open_crew("ray:127.0.0.1:1"):
        pass
