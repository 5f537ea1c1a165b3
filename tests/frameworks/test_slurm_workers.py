"""Workers of submitit: in its processes on this machine, and with commands that stand in for those of Slurm."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from steadyrun.errors import UsageError
from steadyrun.workers import Job, open_crew

JOBS = str(Path(__file__).parents[1] / "workers")


def job(key: str, function: str, **arguments: Any) -> Job:
    return Job(key, f"worker_jobs:{function}", {name: str(value) for name, value in arguments.items()})


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(JOBS)
    monkeypatch.setattr(sys, "argv", ["train.py", "--width", "5"])
    monkeypatch.setenv("STEADYRUN_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def test_jobs_and_a_killed_worker(
    scratch: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("submitit.LocalJob._results_timeout_s", 1)  # files of this machine need no longer
    with open_crew("slurm:local") as crew:
        crew.start(job("once", "die_once", marker=tmp_path / "marker"))
        crew.start(job("about", "about_me"))
        crew.start(job("raises", "fail", words="no such thing"))
        crew.start(job("prints", "prints"))
        ended = {done.job.key: done for done in crew.finished()}
        assert len([*scratch.iterdir()]) == 1
    assert [*scratch.iterdir()] == []
    assert (ended["once"].result, ended["once"].retried) == ("done", 1)
    assert (ended["about"].result["arguments"], ended["about"].result["threads"][0]) == (sys.argv, 1)
    assert ended["about"].result["process"] != os.getpid()
    assert ended["raises"].failure.startswith("ValueError: no such thing (")
    out, err = capfd.readouterr()
    assert out == ""
    assert "steadyrun: job once: its worker (job " in err


def test_leaving_early_ends_the_jobs(scratch: Path, fifo: Path) -> None:
    with open_crew("slurm:local") as crew:
        crew.start(job("held", "hold_alone", fifo=fifo))
        reader = fifo.open()
        assert int(reader.readline()) > 0
    with reader:
        assert reader.read() == ""  # the end of the pipe: the job's process has ended
    assert [*scratch.iterdir()] == []


SLURM = {
    "sbatch": """
cp "$1" "$(dirname "$0")/submitted"
export SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
setsid bash -c 'export SLURM_JOB_ID=$$; exec bash "$0"' "$1" > /dev/null 2>&1 &
echo "Submitted batch job $!"
""",
    "srun": """
shift  # --unbuffered, then --output FILE --error FILE
exec "${@:5}"
""",
    "sacct": """
echo "JobID|State|NodeList"
for word in "$@"; do
    [[ $word =~ ^[0-9]+$ ]] && echo "$word|$(kill -0 $word 2> /dev/null && echo RUNNING || echo FAILED)|one"
done
true
""",
    "scancel": 'kill -9 -- "-$1"',
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands that submitit calls, for this machine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in SLURM.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def test_slurm_jobs(slurm: Path, scratch: Path) -> None:
    with open_crew("slurm") as crew:
        assert crew.size == 64
        crew.start(job("about", "about_me"))
        crew.start(job("raises", "fail", words="no such thing"))
        ended = {done.job.key: done for done in crew.finished()}
    assert (ended["about"].result["arguments"], ended["about"].result["threads"][0]) == (sys.argv, 1)
    assert ended["raises"].failure.startswith("ValueError: no such thing (")
    assert "#SBATCH --cpus-per-task=1\n" in (slurm / "submitted").read_text()
    assert [*scratch.iterdir()] == []


def test_leaving_early_cancels_slurm_jobs(slurm: Path, scratch: Path, fifo: Path) -> None:
    with open_crew("slurm") as crew:
        crew.start(job("held", "hold_alone", fifo=fifo))
        reader = fifo.open()
        assert int(reader.readline()) > 0
    with reader:
        assert reader.read() == ""
    assert [*scratch.iterdir()] == []


def test_no_slurm_on_this_machine(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="Slurm is not available here"), open_crew("slurm"):
        pass
    assert [*scratch.iterdir()] == []
