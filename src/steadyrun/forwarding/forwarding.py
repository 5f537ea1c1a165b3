"""`record(forward=…, alert=…)`: validated before training starts, started and stopped with the run."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.forwarding.alerts import Alerting, through_apprise, through_function
from steadyrun.forwarding.outgoing_text import Hidden, masked, trouble
from steadyrun.forwarding.sink import About, Follower, Own, Sink
from steadyrun.forwarding.to_mlflow import Mlflow
from steadyrun.forwarding.to_tensorboard import TensorBoard
from steadyrun.forwarding.to_wandb import Wandb
from steadyrun.records import Alerts, Forward
from steadyrun.store.events import read_events
from steadyrun.store.jsonio import jsonable
from steadyrun.store.layout import events_file
from steadyrun.store.tail import EventTail, RowTail
from steadyrun.store.writer import RunWriter

TRACKERS: dict[str, Callable[[str], Sink]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": Mlflow}


class Forwarding:
    """All forwarders of one run."""

    def __init__(self, forward: Forward | None, sinks: list[Sink], alerts: Alerts | None, alerting: list[Sink]) -> None:
        self._forward, self._sinks = forward, sinks
        self._alerts, self._alerting = alerts, alerting
        self._followers: list[Follower] = []
        self._hidden = Hidden(_listed(alerts.to) if alerts else [])

    def without_secrets(self, fields: dict[str, Any]) -> dict[str, Any]:
        """A value to be stored, without the addresses of alerts."""
        cleaned: dict[str, Any] = self._hidden.out_of(jsonable(fields))
        return cleaned

    def start(self, writer: RunWriter, config: dict[str, Any]) -> None:
        """Start following the run."""
        writer.clean = self._hidden.out_of
        for sink in self._sinks:
            assert self._forward is not None
            rows = RowTail(writer.root, writer.attempt, _wanted(self._forward.leave_out), self._forward.every)
            self._follow(sink, writer, config, rows, self._forward.wait)
        for sink in self._alerting:
            assert self._alerts is not None
            self._follow(sink, writer, config, None, self._alerts.wait)

    def close(self) -> None:
        """The run is on disk: let all forwarders finish in parallel, up to the given wait."""
        ends = [(follower, follower.ending()) for follower in self._followers]
        for follower, until in ends:
            follower.finish(until)

    def _follow(self, sink: Sink, writer: RunWriter, config: dict[str, Any], rows: RowTail | None, wait: float) -> None:
        name = sink.name

        def keep(what: str) -> None:
            writer.event("forwarding", None, to=name, id=what)

        about = About(writer.root, self.without_secrets(config), writer.attempt, _kept(writer.root, name), keep)
        self._followers.append(Follower(sink, about, EventTail(writer.root), rows, wait, writer.event))


def prepare(forward: Any, alert: Any, alert_on: str | None = None) -> Forwarding:
    """Validate everything and import what is needed; raise an error if something is missing or wrong."""
    settings = forward if isinstance(forward, Forward) or forward is None else Forward(forward)
    alerts = alert if isinstance(alert, Alerts) or alert is None else Alerts(alert)
    if alerts is not None and alert_on is not None:
        alerts = replace(alerts, on=alert_on)
    if alerts is not None and alerts.on not in {"fault", "suspect"}:
        raise UsageError(f'alert_on must be "fault" or "suspect", not {alerts.on!r}')
    sinks = [] if settings is None else _trackers(settings)
    alerting = [] if alerts is None else _services(alerts)
    return Forwarding(settings, sinks, alerts, alerting)


def _trackers(settings: Forward) -> list[Sink]:
    if isinstance(settings.every, bool) or not isinstance(settings.every, int) or settings.every < 1:
        raise UsageError(f"forward: every must be an integer of at least 1, not {settings.every!r}")
    if isinstance(settings.leave_out, str) or not all(isinstance(pattern, str) for pattern in settings.leave_out):
        raise UsageError("forward: leave_out must be a list of name patterns, such as ['histogram/*']")
    _check_seconds("forward", "wait", settings.wait)
    return [_tracker(tracker) for tracker in _listed(settings.to)]


def _tracker(tracker: Any) -> Sink:
    if not isinstance(tracker, str):
        if callable(getattr(tracker, "scalars", None)) and callable(getattr(tracker, "finding", None)):
            return Own(tracker)
        raise UsageError(
            f"forward: {type(tracker).__name__} lacks the methods scalars(step, values) and finding(event); "
            f"give an object with both, or one of {', '.join(TRACKERS)}"
        )
    name, _, target = tracker.partition(":")
    if name not in TRACKERS:
        raise UsageError(f"forward: unknown tracker {tracker!r}; use {', '.join(TRACKERS)}, or an object of your own")
    sink: Sink = _with_extra("forward", name, lambda: TRACKERS[name](target))
    return sink


def _services(alerts: Alerts) -> list[Sink]:
    _check_seconds("alert", "every", alerts.every)
    _check_seconds("alert", "wait", alerts.wait)
    return [_service(service, alerts) for service in _listed(alerts.to)]


def _service(address: Any, alerts: Alerts) -> Sink:
    if callable(address):
        return Alerting(
            "alerting through your function",
            through_function(address),
            alerts.every,
            alerts.warnings,
            suspects=alerts.on == "suspect",
        )
    if not isinstance(address, str) or not address.strip():
        raise UsageError(f"alert: give an address such as 'slack://…' or a function, not {type(address).__name__}")
    send = _with_extra("alert", "alerts", lambda: through_apprise(address))
    return Alerting(
        f"alerting through {masked(address)}", send, alerts.every, alerts.warnings, suspects=alerts.on == "suspect"
    )


def _with_extra(argument: str, extra: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except UsageError:
        raise
    except ImportError as problem:
        raise UsageError(
            f"{argument}: a package is missing ({trouble(problem)}): pip install 'steadyrun[{extra}]'"
        ) from problem
    except Exception as problem:
        raise UsageError(f"{argument}: {extra} failed to start: {trouble(problem)}") from None


def _check_seconds(argument: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise UsageError(f"{argument}: {name} must be a number of seconds, not {value!r}")


def _listed(given: Any) -> Sequence[Any]:
    return list(given) if isinstance(given, list | tuple | set | frozenset) else [given]


def _wanted(leave_out: Sequence[str]) -> Callable[[str], bool]:
    patterns = [re.compile(fnmatch.translate(pattern)) for pattern in leave_out]
    return lambda name: not any(pattern.match(name) for pattern in patterns)


def _kept(root: Path, name: str) -> str | None:
    """What a tracker stored in an earlier attempt: the id of its run."""
    events = [event for event in read_events(events_file(root, 0), 0)[0] if event.kind == "forwarding"]
    ids = [event.fields.get("id") for event in events if event.fields.get("to") == name]
    return str(ids[-1]) if ids and ids[-1] else None
