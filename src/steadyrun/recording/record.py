"""`steadyrun.record`: every argument is checked here, before training starts."""

from __future__ import annotations

import os
import platform
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.probes.cadence import parse_cadence
from steadyrun.probes.problems import say
from steadyrun.program.task import TrainsAtImport, only_imported
from steadyrun.recording.declared_config import check_config
from steadyrun.recording.process import own_rank
from steadyrun.recording.run import Run
from steadyrun.store.layout import MANIFEST, plain_name, read_manifest
from steadyrun.store.reader import open_run, process_is_gone

if TYPE_CHECKING:
    from steadyrun.forwarding.forwarding import Forwarding


_open_runs: weakref.WeakValueDictionary[tuple[Path, int], Run] = weakref.WeakValueDictionary()
recorded_folders: list[Path] = []  # of all runs of this process, in order


def record(
    path: str | os.PathLike[str],
    config: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    every: int | Mapping[str, int] | None = None,
    flush_steps: int = 500,
    flush_seconds: float = 2.0,
    resume: bool = True,
    first_step: int | None = None,
    rank: int | None = None,
    forward: Any = None,
    alert: Any = None,
    alert_on: str | None = None,
    stall_seconds: float | None = None,
) -> Run:
    """Start recording into the run directory `path` (or `path/name`).

    `config` is a dict that states your intent (`lr_max`, `schedule`, `total_steps`, …) and is kept whole; names of your
    own are fine. A name or value that looks like a known one is answered in one line, in the event log and in `check`.

    `every` is how often the sampled probes measure, in steps: one number, or a number per probe (see
    `docs/recording.md`). A killed process loses at most `flush_steps` steps or `flush_seconds` seconds, whichever is
    less.

    A directory that already holds a run is continued, and the seam is recorded. Pass `first_step` if the new attempt
    starts at another step than the one after the last recorded; `resume=False` raises an error instead. `rank` is the
    number of this process, read from torch.distributed or the environment if left out.

    `forward` sends scalars and findings to trackers: "tensorboard", "wandb", "mlflow", an object of your own, a list of
    these, or a `steadyrun.Forward`. `alert` sends faults, incidents and crashes to people: an apprise address, a
    function, a list of these, or a `steadyrun.Alerts`; `alert_on="suspect"` includes suspects. Training waits for
    neither.

    With several processes every rank leaves a heartbeat. A step that lasts longer than `stall_seconds` is recorded as
    stalled, with the Python stacks of the process; without it, one that lasts longer than 30 s and 10 times the longest
    of the last 100 steps.
    """
    if only_imported.get():
        raise TrainsAtImport
    root = _run_folder(path, name)
    declared = check_config(config)
    cadence = parse_cadence(every)
    _check_flush(flush_steps, flush_seconds)
    _check_stall(stall_seconds)
    if first_step is not None and (isinstance(first_step, bool) or not isinstance(first_step, int) or first_step < 0):
        raise UsageError(f"first_step must be a whole number of at least 0, not {first_step!r}")
    my_rank = _rank(rank)
    forwarding = _forwarding(forward, alert, alert_on, my_rank)
    _close_earlier(root, my_rank)
    run = Run(
        root,
        declared,
        cadence,
        flush_steps=flush_steps,
        flush_seconds=flush_seconds,
        last_step=_last_recorded_step(root, my_rank, resume=resume),
        first_step=first_step,
        rank=my_rank,
        stall_seconds=stall_seconds,
        forwarding=forwarding,
    )
    _open_runs[(root.resolve(), my_rank)] = run
    if root not in recorded_folders:
        recorded_folders.append(root)
    return run


def open_folders() -> list[Path]:
    """The folders of the runs that this process is recording now."""
    return [run.path for run in list(_open_runs.values()) if not run.closed]


def _forwarding(forward: Any, alert: Any, alert_on: str | None, rank: int) -> Forwarding | None:
    """Trackers and alerts follow the first rank; a tracker that is not installed is reported here, before training."""
    if rank != 0 or (forward is None and alert is None):
        return None
    from steadyrun.forwarding.forwarding import prepare

    return prepare(forward, alert, alert_on)


def _run_folder(path: str | os.PathLike[str], name: str | None) -> Path:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UsageError(f"path must be the folder to record into, such as 'experiments/my-run', not {path!r}")
    folder = Path(path).expanduser().absolute()  # the program may change its working directory
    root = folder if name is None else folder / plain_name(name)
    if root.exists() and not root.is_dir():
        raise RunDirectoryError(f"{root} is a file; give a folder to record into")
    return root


def _check_flush(steps: int, seconds: float) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"flush_steps must be a whole number of at least 1, not {steps!r}")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise UsageError(f"flush_seconds must be a number of at least 0, not {seconds!r}")


def _check_stall(seconds: float | None) -> None:
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise UsageError(f"stall_seconds must be a number above 0, or None, not {seconds!r}")


def _last_recorded_step(root: Path, rank: int, *, resume: bool) -> int | None:
    """The last step of the run in `root`, None if it does not hold a run yet."""
    if not (root / MANIFEST).exists():
        return None
    manifest = read_manifest(root)
    if not resume and rank == 0:
        raise UsageError(f"{root} already holds a run: choose another folder, or leave out resume=False")
    if rank == 0 and manifest.get("state") == "running":
        _warn_of_another(root, manifest.get("process", {}))
    return open_run(root).last_step(rank)


def _warn_of_another(root: Path, process: Any) -> None:
    here = isinstance(process, dict) and process.get("host") == platform.node() and process.get("pid") != os.getpid()
    if here and not process_is_gone(process):
        say(f"process {process['pid']} seems to be recording into {root} as well; both are kept as attempts")


def _close_earlier(root: Path, rank: int) -> None:
    """A notebook cell that is run again: the run it opened before ends here."""
    earlier = _open_runs.pop((root.resolve(), rank), None)
    if earlier is not None:
        earlier.close()


def _rank(rank: int | None) -> int:
    if rank is None:
        return own_rank()
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        raise UsageError(f"rank must be a whole number of at least 0, not {rank!r}")
    return rank
