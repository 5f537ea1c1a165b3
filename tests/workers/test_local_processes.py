"""Workers in processes of this machine: they stay, they are replaced, and they leave."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import worker_jobs

from steadyrun.workers import Job, open_crew


def job(key: str, function: str, **arguments: Any) -> Job:
    return Job(key, f"worker_jobs:{function}", {name: str(value) for name, value in arguments.items()})


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_worker_does_many_jobs_with_one_thread_and_sees_what_we_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--width", "5"])
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.chdir(tmp_path)
    with open_crew("local:1") as crew:
        for index in range(3):
            crew.start(job(str(index), "about_me"))
        seen = [done.result for done in crew.finished()]
    assert seen == [seen[0]] * 3
    assert seen[0] == {
        "process": seen[0]["process"],
        "threads": [1, "1"],
        "arguments": ["train.py", "--width", "5"],
        "folder": str(tmp_path),
    }
    assert seen[0]["process"] != os.getpid()
    assert gone(seen[0]["process"])
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_local_alone_is_one_process_per_core() -> None:
    with open_crew("local") as crew:
        assert crew.size == len(os.sched_getaffinity(0))


def test_what_a_job_prints_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with open_crew("local:1") as crew:
        crew.start(job("prints", "prints"))
        assert [done.failure for done in crew.finished()] == [""]
    out, err = capfd.readouterr()
    assert out == ""
    assert "a job prints" in err
    assert "in C as well" in err


def test_a_killed_worker_is_replaced_and_its_job_done_again(
    fifo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_crew("local:2") as crew:
        crew.start(job("held", "hold_once", fifo=fifo, marker=tmp_path / "marker"))
        with fifo.open() as reader:
            process = int(reader.readline())
            os.kill(process, signal.SIGKILL)
            assert reader.read() == ""  # what the job had started has ended as well
        (done,) = crew.finished()
    assert (done.result, done.failure, done.retried) == ("done", "", 1)
    assert capsys.readouterr().err == (
        f"steadyrun: job held: its worker (process {process}) was killed (signal 9); another worker retries it\n"
    )
    assert gone(process)


def test_the_second_death_is_a_failure_of_this_job_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with open_crew("local:1") as crew:
        crew.start(Job("killed", "os:kill", {}))  # without arguments it raises, and the worker lives
        crew.start(Job("leaves", "worker_jobs:leave", {"code": 3}))
        crew.start(Job("sum", "worker_jobs:add", {"one": 1, "other": 2}))
        ended = {done.job.key: done for done in crew.finished()}
    assert ended["killed"].failure.startswith("TypeError: ")
    assert (ended["leaves"].failure, ended["leaves"].retried) == ("its worker exited (code 3) twice", 1)
    assert ended["leaves"].seconds > 0
    assert ended["sum"].result == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_leaving_early_ends_everything(fifo: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_crew("local:2") as crew:
        crew.start(job("held", "hold", fifo=fifo))
        crew.start(Job("quick", "os:getpid"))
        quick = next(crew.finished()).result
        crew.start(job("held as well", "hold", fifo=fifo))
        crew.start(job("waiting", "hold", fifo=fifo))
        with fifo.open() as reader:
            processes = [int(reader.readline()) for _ in range(2)]
            raise ZeroDivisionError
    assert all(gone(process) for process in [quick, *processes])


SCRIPT = f"""
import sys
sys.path.append({str(Path(worker_jobs.__file__).parent)!r})
from steadyrun.workers import Job, open_crew

if __name__ == "__main__":
    with open_crew("local:2") as crew:
        for key in "ab":
            crew.start(Job(key, "worker_jobs:hold", {{"fifo": sys.argv[1]}}))
        for _ in crew.finished():
            pass
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_program_that_started_them(how: signal.Signals, fifo: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    program = subprocess.Popen([sys.executable, tmp_path / "script.py", fifo], stderr=subprocess.PIPE, text=True)
    with fifo.open() as reader:
        assert [int(reader.readline()) > 0 for _ in "ab"] == [True, True]
        program.send_signal(how)
        assert reader.read() == ""  # the end of the pipe: nobody has it open any more
    _, said = program.communicate()
    assert program.returncode == -how
    assert said.count("Traceback") == (1 if how == signal.SIGINT else 0)


UNGUARDED = """
from steadyrun.workers import Job, open_crew

print("begins")
with open_crew("local:2") as crew:
    crew.start(Job("a", "os:getpid"))
    crew.start(Job("b", "os:getpid"))
    print([done.result for done in crew.finished()])
"""


def test_a_script_without_a_guard_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "[" not in done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert str(script) in last
    assert 'move the code that starts it under if __name__ == "__main__":' in last
    assert done.stderr.count("Traceback") == 1
