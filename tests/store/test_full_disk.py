"""A disk that refuses costs recording, never training; what was written before stays readable."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun

# A file-size limit makes the kernel refuse writes for real, without needing rights to mount a small disk.
LIMITED = """
import resource, signal, sys, steadyrun
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with steadyrun.record(sys.argv[1], flush_steps=10) as run:
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    for step in range(5_000):
        run.log(**{f"series {place}": step * 1.1 + place for place in range(20)})
        run.step(float(step))
print("trained to the end")
"""


def test_the_kernel_refuses_writes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert "trained to the end" in done.stdout
    assert done.returncode == 0
    assert "training is not affected" in done.stderr
    view = steadyrun.open_run(tmp_path)
    loss = view.series("loss")
    assert loss.values.tolist() == [float(step) for step in loss.steps.tolist()]
    assert len(loss) > 100


def test_rows_wait_for_the_disk_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, full = os.write, [False]

    def write(descriptor: int, data: memoryview) -> int:
        if full[0]:
            written = real(descriptor, data[:5])  # a torn write, then the refusal
            raise OSError(errno.ENOSPC, f"No space left on device after {written} bytes")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    with steadyrun.record(tmp_path, flush_steps=5) as run:
        for step in range(60):
            full[0] = 20 <= step < 40
            run.step(float(step))
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.tolist() == [float(step) for step in range(60)]
    assert "No space left" in view.events("probe-failed")[0].fields["why"]


def test_memory_stays_bounded_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.store import writer

    monkeypatch.setattr(writer, "PENDING_ROWS", 50)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    real = os.write
    with steadyrun.record(tmp_path, flush_steps=5) as run:
        monkeypatch.setattr(os, "write", refuse)
        for step in range(300):
            run.step(float(step))
        monkeypatch.setattr(os, "write", real)
    view = steadyrun.open_run(tmp_path)
    kept = view.series("loss").steps.tolist()
    assert kept == list(range(300 - len(kept), 300))
    assert 50 <= len(kept) <= 60
    assert view.events("rows-lost")[0].fields["rows"] == {"steps": 300 - len(kept)}


def test_a_small_disk(tmp_path: Path) -> None:
    """The same on a real small filesystem, where this machine lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a tmpfs here")
    try:
        with steadyrun.record(disk / "run", flush_steps=10) as run:
            for step in range(3_000):
                run.log(**{f"series {number}": step * 1.1 + number for number in range(20)})
                run.step(float(step))
        loss = steadyrun.open_run(disk / "run").series("loss")
        assert loss.values.tolist() == [float(step) for step in loss.steps.tolist()]
        assert len(loss) > 100
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
