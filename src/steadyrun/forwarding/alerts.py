"""Alerts: what went wrong, as plain text to people. The first immediately, later ones at intervals."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from steadyrun.errors import UsageError
from steadyrun.forwarding.outgoing_text import masked, message
from steadyrun.forwarding.sink import About, Sink
from steadyrun.records import Event

_TOLD = {"fault", "incident", "crash", "out-of-memory", "stopped"}
_COMPANY = 3.0  # seconds that a first message waits for related events, such as the incident of a fault
_MOST = 100  # pending events

Send = Callable[[str, str], None]  # title, text


class Unsent(Exception):  # noqa: N818  said as "Unsent: the service did not take it"
    """An alert was not sent. The service's message is omitted, because it may contain the secret address."""


class Alerting(Sink):
    """Collects events into messages."""

    def __init__(self, name: str, send: Send, every: float, warnings: bool, suspects: bool = False) -> None:
        self.name = name
        self._send, self._every = send, every
        self._kinds = _TOLD | ({"warning"} if warnings else set()) | ({"suspect"} if suspects else set())
        self._waiting: list[Event] = []
        self._left_out = 0
        self._since = 0.0  # when the first pending event arrived
        self._next = 0.0  # when the next message may be sent

    def open(self, about: About) -> None:
        self._root = about.root

    def finding(self, event: Event) -> None:
        if event.kind not in self._kinds or _wanted_to_end(event):
            return
        if not self._waiting:
            self._since = time.monotonic()
        if len(self._waiting) < _MOST:
            self._waiting.append(event)
        else:
            self._left_out += 1

    def flush(self) -> None:
        now = time.monotonic()
        if now >= self._next and now >= self._since + _COMPANY:
            self._tell()

    def close(self, state: str) -> None:  # noqa: ARG002
        self._tell()

    def _tell(self) -> None:
        if not self._waiting:
            return
        self._send(*message(self._root, self._waiting, self._left_out))
        self._waiting, self._left_out = [], 0
        self._next = time.monotonic() + self._every


def _wanted_to_end(event: Event) -> bool:
    return event.kind == "crash" and str(event.fields.get("why")).startswith(("KeyboardInterrupt", "SystemExit"))


def through_apprise(address: str) -> Send:
    """Sends to one address; an error without the address if apprise does not accept it."""
    import apprise

    service = apprise.Apprise()
    with _Hushed():
        if not service.add(address):
            raise UsageError(
                f"alert: apprise does not understand {masked(address)}; "
                "see https://appriseit.com/services/ for the form of each service"
            )

    def send(title: str, text: str) -> None:
        with _Hushed():
            try:
                taken = service.notify(
                    body=text,
                    title=title,
                    notify_type=apprise.NotifyType.FAILURE,
                    body_format=apprise.NotifyFormat.TEXT,
                )
            except Exception as problem:
                raise Unsent(type(problem).__name__) from None
        if not taken:
            raise Unsent("the service rejected it")

    return send


def through_function(function: Callable[[str], object]) -> Send:
    """Calls the user's function with the text."""

    def send(title: str, text: str) -> None:
        try:
            function(f"{title}\n\n{text}")
        except Exception as problem:
            raise Unsent(f"the function raised {type(problem).__name__}") from None

    return send


class _Hushed(logging.Filter):
    """Hides apprise's log messages in this thread, since they may contain addresses; failures are reported once."""

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        logging.getLogger("apprise").addFilter(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread
