"""Writes an incident folder: the last good checkpoint, the batches since, what was in the batch, where the code is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from steadyrun.capture.batch_ring import KeptStep
from steadyrun.capture.checkpoints import Checkpoint
from steadyrun.program import tensor_files
from steadyrun.program.packing import arrived
from steadyrun.program.random_state import to_tensors
from steadyrun.store.jsonio import dumps, replace_file

INCIDENTS = "incidents"
INCIDENT = "incident.json"
CHECKPOINT = "checkpoint"
BEFORE_SEAM = "before_seam"
BATCH = "batch.json"
REPLAY = "replay"
_MOST_LOST = 20
RAISED = frozenset({"exception", "out-of-memory"})


@dataclass(eq=False)
class Account:
    """One incident: what is known of it, and the steps that are in its folder already."""

    step: int
    kind: str
    why: str
    noticed: int
    severity: float = float("inf")
    facts: dict[str, Any] = field(default_factory=dict)
    until: int = 0  # batches are added up to this step
    written: list[int] = field(default_factory=list)
    recorded: dict[str, dict[int, float]] = field(default_factory=dict)
    checkpoint: int | None = None
    missing: str = ""

    @property
    def name(self) -> str:
        return f"step-{self.step:07d}"


def write_first(
    folder: Path,
    account: Account,
    checkpoint: Checkpoint | None,
    steps: Sequence[KeptStep],
    earlier: Checkpoint | None = None,
) -> None:
    """Make the folder. The incident file comes last: a folder that has one is whole.

    `earlier` is the checkpoint of the attempt before, where the incident comes soon after a resume.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("batches-*"), *folder.glob(f"{CHECKPOINT}.*")):  # an earlier attempt also failed here
        old.unlink(missing_ok=True)
    if checkpoint is not None:
        _link(checkpoint, folder / CHECKPOINT)
        account.checkpoint = checkpoint.step
    if earlier is not None:
        _link(earlier, folder / BEFORE_SEAM)
        account.facts[BEFORE_SEAM] = earlier.step
    account.missing = account.missing or _missing(account, checkpoint, steps)
    account.facts["lost"] = lost(steps)[:_MOST_LOST]
    since = [kept_step for kept_step in steps if checkpoint is None or kept_step.step >= checkpoint.step]
    add_steps(folder, account, since)


def _link(checkpoint: Checkpoint, base: Path) -> None:
    for source in checkpoint.files():
        target = base.with_name(f"{base.name}{source.suffix}")
        target.unlink(missing_ok=True)
        tensor_files.place(source, target)


def add_steps(folder: Path, account: Account, steps: Sequence[KeptStep]) -> None:
    """Add batches that are not there yet, then renew the incident file."""
    new = [
        kept_step for kept_step in steps if kept_step.step not in set(account.written) and kept_step.batch is not None
    ]
    if new:
        _write_batches(folder, new)
        account.written += [kept_step.step for kept_step in new]
    for kept_step in steps:
        for name, value in dict(kept_step.values).items():  # a copy: the training loop still fills it
            if value is not None:
                account.recorded.setdefault(name, {})[kept_step.step] = value
    replace_file(folder / INCIDENT, dumps(_content(account), indent=1))


def remove(folder: Path) -> None:
    """Remove the files of an incident that a larger one replaces, unless someone has worked with them."""
    if (folder / REPLAY).exists() or not folder.is_dir():
        return
    with suppress(OSError):
        for path in folder.iterdir():
            if not path.is_dir():  # the parts of other ranks
                path.unlink(missing_ok=True)
        folder.rmdir()


def write_batch(folder: Path, content: dict[str, Any]) -> None:
    """What was in the incident's batch, for people."""
    replace_file(folder / BATCH, dumps({"schema": tensor_files.SCHEMA, **content}, indent=1))


def _missing(account: Account, checkpoint: Checkpoint | None, steps: Sequence[KeptStep]) -> str:
    """Why the incident cannot be replayed; empty if it can."""
    if checkpoint is None:
        return "no finite checkpoint from before it was kept"
    available = {kept_step.step for kept_step in steps if kept_step.batch is not None}
    # Of a step that raised the batch may be unknown: the window then ends before it.
    needed = set(range(checkpoint.step, account.step + (account.kind not in RAISED or account.step in available)))
    if not needed:
        return "the batch of the step that raised was not found, and no step lies between it and the checkpoint"
    if not needed <= available:
        first = min(needed - available)
        return f"the batch of step {first} was not kept (give run.step its batch, or a larger capture batch_bytes)"
    nothing = any(
        kept_step.batch is not None and kept_step.batch.lost and not kept_step.batch.tensors for kept_step in steps
    )
    return f"the batches hold more than tensors in plain containers: {', '.join(lost(steps)[:3])}" if nothing else ""


def lost(steps: Sequence[KeptStep]) -> list[str]:
    """The parts of batches that could not be kept. A step that does not use them can still be replayed."""
    return sorted({name for kept_step in steps if kept_step.batch is not None for name in kept_step.batch.lost})


def _write_batches(folder: Path, steps: list[KeptStep]) -> None:
    tensors: dict[str, Tensor] = to_tensors([kept_step.random for kept_step in steps])
    tensors |= to_tensors([kept_step.forward or kept_step.random for kept_step in steps], "forward")
    entries = []
    if steps[-1].batch is not None:
        arrived(steps[-1].batch)  # and so are those before it
    for kept_step in steps:
        assert kept_step.batch is not None
        prefix = f"{kept_step.step:07d}/"
        tensors.update({prefix + name: tensor for name, tensor in kept_step.batch.tensors.items()})
        entries.append(
            {"step": kept_step.step, "tree": kept_step.batch.tree, "input_hash": _number(kept_step.input_hash)}
        )
    tensor_files.save(folder / f"batches-{steps[0].step:07d}-{steps[-1].step:07d}", tensors, {"steps": entries})


def _number(scalar: Any) -> int | None:
    return None if scalar is None else int(scalar)


def _content(account: Account) -> dict[str, Any]:
    steps = sorted({step for values in account.recorded.values() for step in values})
    recorded = {
        name: [values.get(step) for step in steps] for name, values in sorted(account.recorded.items()) if values
    }
    return {
        "schema": tensor_files.SCHEMA,
        "step": account.step,
        "kind": account.kind,
        "why": account.why,
        "noticed": account.noticed,
        "severity": account.severity,
        "checkpoint": account.checkpoint,
        "batches": sorted(account.written),
        "missing": account.missing,
        **account.facts,
        "recorded": {"steps": steps, **recorded},
    }
