"""Compare a replay with the recording, and the environment with that of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from steadyrun.capture.call_site import fingerprint
from steadyrun.capture.checkpoints import threads_and_flags
from steadyrun.replay.incident import Incident

EXACT, CLOSE, DIFFERENT, UNKNOWN = "bit-equal", "within-tolerance", "not-reproducible", "not-comparable"
_TOLERANCE = {"float32": 1e-4, "float64": 1e-8, "bfloat16": 2e-2, "float16": 5e-3}
_WORDS = {
    "threads": "the number of threads",
    "deterministic": "torch.use_deterministic_algorithms",
    "matmul_precision": "the precision of float32 matrix multiplication",
    "tf32": "TF32",
    "cudnn_benchmark": "cudnn.benchmark",
    "cudnn_deterministic": "cudnn.deterministic",
    "default_dtype": "the default dtype",
    "cpu_capability": "the CPU's vector instructions",
}


@dataclass(frozen=True)
class ReplayDifference:
    """A difference between the replay and the run."""

    # threads, versions, device, flags, data, random, raised, loss, learning-rate, code, nondeterminism or unknown
    what: str
    message: str
    then: Any = None
    now: Any = None


@dataclass(frozen=True)
class Proof:
    """How the replayed losses compare with the recorded ones."""

    verdict: str
    compared: int
    tolerance: float
    largest: float  # relative difference
    first_different: int | None = None
    differences: list[ReplayDifference] = field(default_factory=list)
    raised_again: bool = False  # the incident is an exception, and its step raised the same exception again

    @property
    def holds(self) -> bool:
        return self.verdict in {EXACT, CLOSE} or (self.verdict == UNKNOWN and self.raised_again)


ENVIRONMENT = frozenset({"threads", "flags", "versions", "device"})
"""What differs between the run and the replay, not between their programs."""


def tolerance_of(incident: Incident) -> float:
    """The relative difference that losses may have in the number format of the run."""
    return _TOLERANCE.get(dtype_of(incident), _TOLERANCE["float32"])


def dtype_of(incident: Incident) -> str:
    autocast: Mapping[str, Any] | None = incident.checkpoint.get("autocast")
    if autocast:
        return str(autocast["dtype"])
    model = incident.view.manifest.get("model")
    kinds = model.get("parameter_dtypes") if isinstance(model, dict) else None
    return str(kinds[0]) if isinstance(kinds, list) and len(kinds) == 1 else "float32"


def compare(replayed: Mapping[int, float], recorded: Mapping[int, float], dtype: str) -> Proof:
    """Bit-equal, within the tolerance of the number format, or different."""
    steps = sorted(set(replayed) & set(recorded))
    tolerance = _TOLERANCE.get(dtype, _TOLERANCE["float32"])
    if not steps:
        return Proof(UNKNOWN, 0, tolerance, math.nan)
    distances = {step: apart(replayed[step], recorded[step]) for step in steps}
    largest = max(distances.values())
    first = next((step for step in steps if distances[step] > 0), None)
    verdict = EXACT if first is None else CLOSE if largest <= tolerance else DIFFERENT
    return Proof(verdict, len(steps), tolerance, largest, first)


def environment(incident: Incident, device: torch.device) -> list[ReplayDifference]:
    """Versions, hardware and settings that differ from those of the run."""
    manifest = incident.view.manifest
    differences = []
    for name, then in incident.checkpoint.get("flags", {}).items():
        now = threads_and_flags().get(name)
        if now is not None and now != then:
            kind = "threads" if name == "threads" else "flags"
            differences.append(
                ReplayDifference(kind, f"{_WORDS.get(name, name)}: {then} in the run, {now} now", then, now)
            )
    versions = _table(manifest.get("versions"))
    differences += [
        ReplayDifference("versions", f"{name} {versions[name]} in the run, {now} now", versions[name], now)
        for name in ("torch", "numpy", "python")
        if (now := _version(name)) is not None and versions.get(name, now) != now
    ]
    then = {str(device_name).split(":")[0] for device_name in _table(manifest.get("model")).get("devices") or []}
    if then and device.type not in then:
        differences.append(
            ReplayDifference("device", f"the run used {', '.join(sorted(then))}, the replay uses {device.type}")
        )
    code = incident.code
    if code.get("sha256") and fingerprint(str(code.get("file"))) not in (None, code["sha256"]):
        differences.append(ReplayDifference("code", f"{code.get('file')} has changed since the run"))
    return differences


def _table(section: Any) -> dict[str, Any]:
    """A section of the manifest, empty if it is malformed: unknown values count as equal."""
    return section if isinstance(section, dict) else {}


def apart(replayed: float, recorded: float) -> float:
    """The relative difference; 0 if both are NaN, infinite if only one is finite."""
    if replayed == recorded or (math.isnan(replayed) and math.isnan(recorded)):
        return 0.0
    if not (math.isfinite(replayed) and math.isfinite(recorded)):
        return math.inf
    return abs(replayed - recorded) / max(abs(recorded), 1e-12)


def _version(name: str) -> str | None:
    import platform
    from importlib import metadata

    if name == "python":
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
