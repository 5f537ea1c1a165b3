"""Which incidents a run leaves, and the writing of their folders."""

from __future__ import annotations

from typing import Any

from steadyrun.capture import batch_tokens, incident_folder
from steadyrun.capture.batch_ring import KeptStep, Ring
from steadyrun.capture.capture_options import Settings
from steadyrun.capture.checkpoints import Rolling
from steadyrun.capture.incident_folder import Account
from steadyrun.capture.previous_attempt import SOON
from steadyrun.capture.writer_thread import Worker
from steadyrun.program.packing import arrived
from steadyrun.store.writer import RunWriter

AFTER = 50  # steps after an incident that belong to it: whether a spike recovers is asked of these
MARGIN = 20  # steps by which a checkpoint should come before the incident: its cause may, too
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
    ) -> None:
        self._writer, self._settings, self._worker, self._rolling = writer, settings, worker, rolling
        self._root = writer.root / incident_folder.INCIDENTS
        self._counts = counts
        self.resumed_at: int | None = None  # the first step of an attempt that goes on with another
        self.seam = 0  # the step after the last rollback
        self._open: list[Account] = []

    def open(self, account: Account, ring: Ring) -> None:
        """Leave a folder for what happened, unless one is there already or there are enough."""
        if not self._wanted(account):
            if account.kind == "asked":
                self._note(account)
            return
        account.until = account.step + AFTER
        if account.step < self.seam:  # what came after a rollback does not follow from what came before it
            account.until = min(account.until, self.seam - 1)
        self._open.append(account)
        steps = [each for each in ring.steps() if each.step <= account.until]
        seen = self._counts.before() if self._counts is not None else []
        self._worker.do(lambda: self._write(account, steps, seen))

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
                self._hand_over(account, [each for each in ring.steps() if each.step <= account.until])

    def _hand_over(self, account: Account, steps: list[KeptStep]) -> None:
        account.until = 0
        self._worker.do(lambda: self._add(account, steps))

    def _wanted(self, account: Account) -> bool:
        if any(each.step == account.step for each in self._open):
            return False
        if account.kind in _ALWAYS:
            return True
        if account.kind == "asked":
            return sum(each.kind == "asked" for each in self._open) < self._settings.asked
        near = [each for each in self._open if abs(account.step - each.step) < _APART]
        if any(each.severity >= account.severity for each in near):
            return False
        mere = [each for each in self._open if each.kind == "spike"]
        found = [each for each in self._open if each.kind not in {"spike", "asked"}]
        if account.kind == "spike":
            return len(mere) < self._settings.spikes or self._makes_room(mere, account.severity)
        if len(found) >= self._settings.incidents:
            return False
        for spike in set(near) & set(mere):  # it was the first sign of this
            self._drop(spike)
        return True

    def _makes_room(self, mere: list[Account], severity: float) -> bool:
        """A larger spike takes the place of the smallest."""
        least = min(mere, key=lambda each: each.severity)
        if least.severity >= severity:
            return False
        self._drop(least)
        return True

    def _drop(self, account: Account) -> None:
        self._open.remove(account)
        self._worker.do(lambda: incident_folder.remove(self._root / account.name))

    # -- in the writing thread ---------------------------------------------------------------------

    def _write(self, account: Account, steps: list[KeptStep], seen: list[int]) -> None:
        place = self._root / account.name
        place.mkdir(parents=True, exist_ok=True)
        own = next((each for each in steps if each.step == account.step and each.batch is not None), None)
        if own is not None:
            incident_folder.write_batch(place, self._batch(own, seen))
        soon = self.resumed_at is not None and 0 <= account.step - self.resumed_at <= SOON
        earlier = self._rolling.earlier if soon else None
        incident_folder.write_first(place, account, self._rolling.choose(account.step, MARGIN), steps, earlier)
        self._writer.event(
            "incident",
            account.step,
            cause=account.kind,
            why=account.why,
            severity=account.severity,
            path=f"{incident_folder.INCIDENTS}/{account.name}",
            replayable=not account.missing,
        )

    def _add(self, account: Account, steps: list[KeptStep]) -> None:
        place = self._root / account.name
        if place.is_dir():
            first = account.checkpoint if account.checkpoint is not None else account.step
            incident_folder.add_steps(place, account, [each for each in steps if each.step >= first])

    def _batch(self, own: KeptStep, seen: list[int]) -> dict[str, Any]:
        assert own.batch is not None
        arrived(own.batch)
        content: dict[str, Any] = {"step": own.step, "batch_index": own.values.get("batch_index")}
        if self._counts is not None and seen:
            content |= batch_tokens.describe(own.batch, self._counts, seen, own=1 if own.values else 0)
        if (losses := batch_tokens.losses_of(own.token_losses)) is not None:
            content["token_losses"] = losses
        return content
