"""Repeat a replayed window, and collect what separates hardware from software."""

from __future__ import annotations

import hashlib
import math
import platform
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrun.errors import SteadyrunError
from steadyrun.program import snapshot as training
from steadyrun.replay.compare import ENVIRONMENT, apart, tolerance_of
from steadyrun.replay.experiments.judge import IncidentJudge
from steadyrun.replay.hardware import Evidence, FirstDifference, Hardware, decide, earlier_hosts
from steadyrun.replay.incident import Incident
from steadyrun.replay.result import Replay
from steadyrun.replay.session import Session
from steadyrun.store.incident_files import read
from steadyrun.store.joint_incidents import JOINED
from steadyrun.store.reader import open_run

_UNSEEN = frozenset({"asked", JOINED})  # kinds without a sign of their own
Losses = Mapping[int, float]
OnStep = Callable[[int, int, float], None]
"""Called after each step with the number of steps done, the number of all steps, and the loss."""


@dataclass(frozen=True)
class Repetition:
    """One execution of the window: its losses, the exception that ended it, and a checksum of the state at its end."""

    losses: Losses
    raised: str
    first_bad: int | None  # the first step with a non-finite loss or parameter
    state: str

    @property
    def bits(self) -> tuple[object, ...]:
        """Equal for repetitions that agree bit for bit."""
        losses = tuple((step, repr(loss)) for step, loss in sorted(self.losses.items()))
        return losses, self.raised, self.state


def first_execution(session: Session, result: Replay) -> Repetition:
    """The execution that has just ended under the recorder."""
    return Repetition(dict(result.losses), result.raised, result.first_bad, checksum(session))


def execute_again(session: Session, steps: list[int], on_step: OnStep | None) -> Repetition:
    """The window once more, without a recorder. It ends where the first execution does."""
    session.rewind()
    losses: dict[int, float] = {}
    raised, first_bad = "", None
    for done, step in enumerate(steps):
        try:
            losses[step] = float(session.execute(step))
        except SteadyrunError:
            raise
        except Exception as problem:
            raised, first_bad = f"{type(problem).__name__}: {problem}".splitlines()[0], step
            break
        if on_step is not None:
            on_step(done + 1, len(steps), losses[step])
        if first_bad is None and not (math.isfinite(losses[step]) and is_finite(session)):
            first_bad = step
            if step >= session.incident.step:
                break
    return Repetition(losses, raised, first_bad, checksum(session))


def is_finite(session: Session) -> bool:
    return training.all_finite(list(session.task.model.parameters()))


def checksum(session: Session) -> str:
    """A checksum of parameters, buffers and moments, bit for bit."""
    total = hashlib.sha256()
    for name, tensor in sorted(training.refer(session.objects).tensors.items()):
        total.update(name.encode())
        total.update(_bytes(tensor))
    return total.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def judge_repetitions(session: Session, result: Replay, repetitions: list[Repetition]) -> Hardware:
    """Decide by the table."""
    return decide(_evidence(session, result, repetitions))


def _evidence(session: Session, result: Replay, repetitions: list[Repetition]) -> Evidence:
    incident, proof = session.incident, result.proof
    common = Counter(repetition.bits for repetition in repetitions).most_common(1)[0][1]
    host, run_host = platform.node(), run_host_of(incident)
    environment = [difference.what for difference in proof.differences if difference.what in ENVIRONMENT]
    environment += ["host"] if run_host not in ("", host) else []
    first, equal_before = _first_difference(session, result)
    return Evidence(
        times=len(repetitions),
        repeated=sum(shows(incident, repetition) for repetition in repetitions),
        agree=common == len(repetitions),
        majority=common,
        holds=proof.holds,
        of="what was recorded" if incident.kind in _UNSEEN else "the incident",
        host=host,
        run_host=run_host,
        deterministic=_is_deterministic(session),
        equal_before=equal_before,
        first=first,
        environment=tuple(dict.fromkeys(environment)),
        explained=result.explained,
        alone=session.alone,
        elsewhere=earlier_hosts(read(incident.folder, ("replay",)).replay, host),
    )


def _is_deterministic(session: Session) -> bool:
    return torch.are_deterministic_algorithms_enabled() or (
        session.device.type == "cpu" and torch.get_num_threads() == 1
    )


def run_host_of(incident: Incident) -> str:
    """The machine on which this rank ran; "" if it is not recorded."""
    if (events := incident.events("process")) and isinstance(host := events[-1].fields.get("host"), str):
        return host
    process = incident.view.manifest.get("process")
    host = process.get("host") if isinstance(process, dict) else None
    return host if isinstance(host, str) else ""


def shows(incident: Incident, repetition: Repetition) -> bool:
    """Whether a repetition has the incident of the run."""
    if incident.raised:
        kind = incident.why.partition(":")[0]
        return repetition.raised.partition(":")[0] == kind and repetition.first_bad == incident.step
    recorded = {step: loss for step, loss in incident.recorded("loss").items() if step <= incident.step}
    if incident.kind == "non-finite" or not all(map(math.isfinite, recorded.values())):
        return repetition.first_bad is not None and repetition.first_bad <= incident.step
    if repetition.raised or repetition.first_bad is not None:
        return False
    judge = IncidentJudge(incident, None, "")
    if judge.spike is not None:
        return any(judge.shows(loss) for step, loss in repetition.losses.items() if step >= judge.spike.start_step)
    common = set(recorded) & set(repetition.losses)
    return bool(common) and all(
        apart(repetition.losses[step], recorded[step]) <= tolerance_of(incident) for step in common
    )


def _first_difference(session: Session, result: Replay) -> tuple[FirstDifference | None, int]:
    """The first step at which a rank's recording differs from the replay, and the bit-equal losses before it."""
    own, limit = session.incident, tolerance_of(session.incident)
    found = []
    for part, replayed in ((own, result.losses), *((part, result.other_losses[part.rank]) for part in session.ranks)):
        step, what = _in_losses(replayed, part.recorded("loss")), "loss"
        at_norm = None if session.ranks else _in_norms(part, result, limit)  # there it is of one rank's own gradients
        if at_norm is not None and (step is None or at_norm < step):
            step, what = at_norm, "gradient norm"
        if step is not None:
            rank = part.rank if own.world > 1 else None
            found.append((FirstDifference(step, what, rank), _equal_before(part, replayed, step, what, limit)))
    first = min(found, key=lambda pair: pair[0].step, default=(None, 0))
    return _with_digest(result, *first)


def _with_digest(
    result: Replay, first: FirstDifference | None, equal_before: int
) -> tuple[FirstDifference | None, int]:
    """Name the blocks, if a digest shows the difference before any loss does: after the update that was wrong."""
    seen = None if result.digests is None else result.digests.first
    if first is None or seen is None or seen.step >= first.step or not equal_before:
        return first, equal_before
    before = sum(step <= seen.step for step in result.losses)
    return FirstDifference(seen.step, "parameters", seen.rank, seen.blocks), before


def _in_losses(replayed: Losses, recorded: Losses) -> int | None:
    """The step of the first loss that is not bit-equal."""
    return next((step for step in sorted(set(replayed) & set(recorded)) if apart(replayed[step], recorded[step])), None)


def _equal_before(part: Incident, replayed: Losses, step: int, what: str, limit: float) -> int:
    """The bit-equal losses up to the first difference; 0 if that is within the tolerance, as rounding would be."""
    recorded = part.recorded("loss")
    if what == "loss" and apart(replayed[step], recorded[step]) <= limit:
        return 0
    return sum(before < step + (what != "loss") for before in set(replayed) & set(recorded))


def _in_norms(part: Incident, result: Replay, limit: float) -> int | None:
    """The first step whose recorded gradient norm differs from the replay's beyond the tolerance."""
    view = open_run(result.folder)
    if "grad_norm" not in view.names():
        return None
    series, recorded = view.series("grad_norm"), part.recorded("grad_norm")
    pairs = zip(series.steps.tolist(), series.values.tolist(), strict=True)
    return next((step for step, norm in pairs if step in recorded and apart(norm, recorded[step]) > limit), None)
