"""What a script reports by itself, on its terminal or to a tracker: which number is which, and where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

from steadyrun.importers.formats.dialects.printed_names import measured
from steadyrun.importers.log_rows import LONGEST_NAME
from steadyrun.importers.loss_parts import OPPOSED, losses_of
from steadyrun.importers.series_roles import EPOCH, STEP, TIME, rank
from steadyrun.signals.success import is_held_out
from steadyrun.store.series_catalogue import entry_for

_MOST_NAMES = 300  # different names: more are not metrics
_MEASURED_BY_US = ("lr", "grad_norm", "loss_scale")
_AXES = (STEP, EPOCH, TIME)


class Recorder(Protocol):
    """The part of a recorder that reported numbers go to."""

    @property
    def step(self) -> int:
        """Optimizer steps so far."""

    @property
    def active(self) -> bool:
        """Whether this recorder records."""

    @property
    def own_names(self) -> set[str]:
        """Names of series that the recorder fills itself."""

    @property
    def on_end(self) -> list[Callable[[], None]]:
        """What is called before a run closes."""

    @property
    def on_cell(self) -> list[Callable[[], None]]:
        """What is called before each cell of a notebook."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record numbers under their own names."""

    def val(self, loss: float | None, step: int, metrics: Mapping[str, float]) -> None:
        """Record a validation."""

    def printed_loss(self, value: float, step: int) -> None:
        """Record the training loss that the script reports."""

    def note(self, text: str) -> None:
        """Record one line about the recording itself."""

    def take_over(self, by: str) -> None:
        """Go silent: something else records this training."""


def values_of(recorder: Recorder) -> ReportedValues:
    """The values of a recorder: printed lines and trackers share them, so that nothing is recorded twice."""
    known = _known.get(recorder)
    if known is None:
        known = _known[recorder] = ReportedValues(recorder)
    return known


class ReportedValues:
    """Hands reported numbers to a recorder: each once, whether it is printed, sent to a tracker or both."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._names: dict[str, int] = {}
        self._best: dict[str, tuple[int, str]] = {}  # role: rank and name of what has it
        self._validation: tuple[int, str, float] | None = None  # step, source, loss: the last of its step counts

    def take(self, values: Mapping[str, float], step: int, source: str, *, deliberate: bool) -> None:
        """Numbers reported after `step` optimizer steps; `deliberate` if they were sent to a tracker."""
        if not self._recorder.active:
            return
        self.settle(step)
        names = {name: value for name, value in values.items() if self._is_metric(name, step, deliberate)}
        opposed = losses_of(names, {}).objective == OPPOSED
        own: dict[str, float] = {}
        for name, value in names.items():
            role = None if opposed else self._role(name)
            if role == "val_loss":
                self._validated(value, step, source)
            elif role == "loss":
                self._recorder.printed_loss(value, step)
            elif role is None and name not in self._recorder.own_names:
                own[_free(name)] = value
        if own:
            self._recorder.log(step, own)

    def settle(self, step: int | None = None) -> None:
        """Record the validation that was reported at an earlier step than this one, or the last."""
        if self._validation is not None and step != self._validation[0]:
            at, _, loss = self._validation
            self._validation = None
            self._recorder.val(loss, at, {})

    def _is_metric(self, name: str, step: int, deliberate: bool) -> bool:
        """Whether a name is worth a series; what is printed before training is a setting, unless it is a validation."""
        if len(name) > LONGEST_NAME or any(rank(role, name) is not None for role in _AXES):
            return False
        if name not in self._names and len(self._names) >= _MOST_NAMES:
            return False
        if not deliberate and (not measured(name) or (step == 0 and not is_held_out(name))):
            return False
        self._names[name] = self._names.get(name, 0) + 1
        return True

    def _role(self, name: str) -> str | None:
        """The role of a name: of several names for the same the one that fits best; "" if nobody needs it."""
        if any(rank(role, name) is not None for role in _MEASURED_BY_US):
            return ""
        for role in ("val_loss", "loss"):
            fit = rank(role, name)
            if fit is not None:
                best = min(self._best.get(role, (fit, name)), (fit, name))
                self._best[role] = best
                return role if best[1] == name else None
        return None

    def _validated(self, loss: float, step: int, source: str) -> None:
        if self._validation is None or self._validation[1] == source:
            self._validation = step, source, loss


def _free(name: str) -> str:
    """A name that is not one of the recorder's own series."""
    return f"logged/{name}" if entry_for(name) is not None or name == "step" else name


_known: WeakKeyDictionary[Recorder, ReportedValues] = WeakKeyDictionary()
