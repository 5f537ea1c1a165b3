"""Which incidents a run leaves: losses as they arrive, and the writing of their folders."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from steadyrun.capture import batch_tokens, incident_folder
from steadyrun.capture.batch_ring import KeptStep, Ring
from steadyrun.capture.capture_options import Settings
from steadyrun.capture.checkpoints import SOON, Rolling
from steadyrun.capture.incident_folder import Account
from steadyrun.capture.process_part import ProcessPart
from steadyrun.capture.writer_thread import Worker
from steadyrun.program.packing import arrived
from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, SIGMAS, WINDOW
from steadyrun.signals.run_signals import Points
from steadyrun.signals.spikes import spikes
from steadyrun.store.writer import RunWriter
from steadyrun.text import normally, shown

# Losses as they arrive: one that is not finite, and one that jumped by the rule of D2.1.


_TOGETHER = 25  # steps between two looks for spikes: the ring reaches back much further

Spotted = tuple[str, int, str, float]
"""Kind, step, why, severity."""


class Triggers:
    """Shown the numbers of each step once they are known."""

    def __init__(self) -> None:
        self._steps: deque[int] = deque(maxlen=WINDOW + _TOGETHER)
        self._losses: deque[float] = deque(maxlen=WINDOW + _TOGETHER)
        self._since = 0
        self._last = self._reported_until = -1
        self._non_finite = False

    def saw(self, step: int, loss: float | None) -> Iterable[Spotted]:
        """What stands out; a step that was shown before is passed over."""
        if loss is None or step <= self._last:
            return ()
        self._last = step
        if loss - loss != 0:  # not finite
            known, self._non_finite = self._non_finite, True
            return () if known else [("non-finite", step, f"the loss of step {step} is {loss}", math.inf)]
        self._non_finite = False
        self._steps.append(step)
        self._losses.append(loss)
        self._since += 1
        if self._since < _TOGETHER:
            return ()
        self._since = 0
        return self.spikes()

    def spikes(self) -> Iterator[Spotted]:
        """The spikes among the last losses that were not reported before."""
        values = np.array(self._losses)
        if len(values) <= WINDOW or not _may_spike(values):
            return
        for spike in spikes(Points("loss", np.array(self._steps), values), WINDOW, SIGMAS, BACK, SETTLED):
            if spike.start_step > self._reported_until:
                self._reported_until = spike.peak_step
                usual = normally(spike.level, spike.deviation)
                why = f"the loss jumped to {shown(spike.value)}, {usual} ({shown(spike.sigmas)} σ)"
                yield "spike", spike.start_step, why, spike.sigmas


_SLACK = 0.99  # of the limit: this estimate and the rule may count σ with 99 or 100 degrees of freedom


def _may_spike(values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Whether any value after the first window may be a spike: running sums, less than their rounding may hide.

    It costs a tenth of looking for spikes, and most stretches have none.
    """
    with np.errstate(all="ignore"):
        apart = values - values[0]
        sums, squares = np.cumsum(apart), np.cumsum(apart * apart)
        rounding = len(values) * np.finfo(np.float64).eps
        mean = (sums[WINDOW - 1 : -1] - np.concatenate([[0.0], sums[: -WINDOW - 1]])) / WINDOW
        square = (squares[WINDOW - 1 : -1] - np.concatenate([[0.0], squares[: -WINDOW - 1]])) / WINDOW
        variance = np.maximum(0.0, square - mean * mean - 4 * rounding * squares[-1])
        limit = mean + _SLACK * SIGMAS * np.sqrt(variance) - 4 * rounding * np.abs(apart).max()
        return not bool((apart[WINDOW:] < limit).all())


# Which incidents a run leaves, and the writing of their folders.


AFTER = 50  # steps after an incident that belong to it: whether a spike recovers is asked of these
MARGIN = 20  # steps by which a checkpoint should come before the incident: so may its cause
_APART = 100  # an incident so soon after another is part of it
_ALWAYS = frozenset({"exception", "out-of-memory"})


class IncidentLog:
    """The incidents of one run. `open` and `passed` are called by the training loop; the worker writes."""

    def __init__(
        self,
        writer: RunWriter,
        settings: Settings,
        worker: Worker,
        rolling: Rolling,
        counts: batch_tokens.TokenCounts | None,
        part: ProcessPart,
    ) -> None:
        self._writer, self._settings, self._worker, self._rolling = writer, settings, worker, rolling
        self._root = writer.root / incident_folder.INCIDENTS
        self._counts, self._part = counts, part
        self.resumed_at: int | None = None  # the first step of an attempt that goes on with another
        self.seam = 0  # the step after the last rollback
        self._open: list[Account] = []

    def open(self, account: Account, ring: Ring) -> None:
        """Leave a folder for what happened, unless one is there already or there are enough."""
        if not self._gets_folder(account):
            if account.kind == "asked":
                self._note(account)
            return
        account.until = account.step + AFTER if self._part.whole else account.step
        account.missing = self._part.why_not_whole
        account.facts |= self._part.facts
        if account.step < self.seam:  # what came after a rollback does not follow from what came before it
            account.until = min(account.until, self.seam - 1)
        self._open.append(account)
        first = 0 if self._part.whole else account.step - 1
        steps = [kept_step for kept_step in ring.steps() if first <= kept_step.step <= account.until]
        token_counts = self._counts.before() if self._counts is not None else []
        self._worker.do(lambda: self._write(account, steps, token_counts))

    def _note(self, account: Account) -> None:
        """An incident that was asked for and gets no folder is at least an event."""
        self._worker.do(
            lambda: self._writer.event(
                "incident", account.step, cause=account.kind, why=account.why, path=None, replayable=False
            )
        )

    def passed(self, step: int | None, ring: Ring) -> None:
        """Hand over the steps that came after an incident, when there are enough or (None) no more will come."""
        for account in self._open:
            if account.until and (step is None or step >= account.until):
                first = 0 if self._part.whole else account.step - 1
                kept = [kept_step for kept_step in ring.steps() if first <= kept_step.step <= account.until]
                self._hand_over(account, kept)

    def _hand_over(self, account: Account, steps: list[KeptStep]) -> None:
        account.until = 0
        self._worker.do(lambda: self._add(account, steps))

    def _gets_folder(self, account: Account) -> bool:
        if any(incident.step == account.step for incident in self._open):
            return False
        if account.kind in _ALWAYS:
            return True
        if account.kind == "asked":
            return sum(incident.kind == "asked" for incident in self._open) < self._settings.asked
        near = [incident for incident in self._open if abs(account.step - incident.step) < _APART]
        if any(incident.severity >= account.severity for incident in near):
            return False
        spikes = [incident for incident in self._open if incident.kind == "spike"]
        incidents = [incident for incident in self._open if incident.kind not in {"spike", "asked"}]
        if account.kind == "spike":
            return len(spikes) < self._settings.spikes or self._makes_room(spikes, account.severity)
        if len(incidents) >= self._settings.incidents:
            return False
        for spike in set(near) & set(spikes):  # it was the first sign of this
            self._drop(spike)
        return True

    def _makes_room(self, spikes: list[Account], severity: float) -> bool:
        """A larger spike replaces the smallest."""
        smallest = min(spikes, key=lambda spike: spike.severity)
        if smallest.severity >= severity:
            return False
        self._drop(smallest)
        return True

    def _drop(self, account: Account) -> None:
        self._open.remove(account)
        self._worker.do(lambda: incident_folder.remove(self._folder(account)))

    def _folder(self, account: Account) -> Path:
        return self._part.inside(self._root / account.name)

    # -- in the writing thread ---------------------------------------------------------------------

    def _write(self, account: Account, steps: list[KeptStep], token_counts: list[int]) -> None:
        folder = self._folder(account)
        folder.mkdir(parents=True, exist_ok=True)
        own = next(
            (kept_step for kept_step in steps if kept_step.step == account.step and kept_step.batch is not None), None
        )
        if own is not None:
            incident_folder.write_batch(folder, self._batch(own, token_counts))
        soon = self.resumed_at is not None and 0 <= account.step - self.resumed_at <= SOON
        earlier = self._rolling.earlier if soon else None
        incident_folder.write_first(folder, account, self._rolling.choose(account.step, MARGIN), steps, earlier)
        self._writer.event(
            "incident",
            account.step,
            cause=account.kind,
            why=account.why,
            severity=account.severity,
            path=folder.relative_to(self._writer.root).as_posix(),
            replayable=not account.missing,
        )

    def _add(self, account: Account, steps: list[KeptStep]) -> None:
        folder = self._folder(account)
        if folder.is_dir():
            first = account.checkpoint if account.checkpoint is not None else account.step
            incident_folder.add_steps(folder, account, [kept_step for kept_step in steps if kept_step.step >= first])

    def _batch(self, own: KeptStep, token_counts: list[int]) -> dict[str, Any]:
        assert own.batch is not None
        arrived(own.batch)
        content: dict[str, Any] = {"step": own.step, "batch_index": own.values.get("batch_index")}
        if self._counts is not None and token_counts:
            content |= batch_tokens.describe(own.batch, self._counts, token_counts, own=1 if own.values else 0)
        if (losses := batch_tokens.losses_of(own.token_losses)) is not None:
            content["token_losses"] = losses
        return content
