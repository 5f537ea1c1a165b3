"""Start and stop the server; report a busy port clearly."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from sse_starlette.sse import SendTimeoutError
from uvicorn.protocols.http.h11_impl import H11Protocol

from steadyrun.errors import UsageError
from steadyrun.live.app import Live, application
from steadyrun.trees.walker import Changes

_ADDRESSES = "use --host 127.0.0.1, or --host 0.0.0.0 for all addresses"
_GRACE = 1  # seconds for open pages when the server stops
_TRIED = 50  # ports to try after a busy one
_ASKING = 10.0  # seconds within which a request must be complete


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; an error with the next step if it is not available."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _listening(family, address)
    except socket.gaierror:
        raise UsageError(f"{host} is not a name or address of this machine; {_ADDRESSES}") from None
    except OverflowError:
        raise UsageError(f"{port} is not a valid port: use 0 to 65535; 0 chooses a free one") from None
    except PermissionError:
        raise UsageError(f"port {port} needs root privileges: use a port above 1023, or --port 0") from None
    except OSError as problem:
        if problem.errno == errno.EADDRNOTAVAIL:
            raise UsageError(f"{host} is not an address of this machine; {_ADDRESSES}") from None
        free = _free_after(host, port)
        hint = f"--port {free} is free, " if free else ""
        raise UsageError(f"{host}:{port}: {problem.strerror}; {hint}--port 0 chooses a free one") from None


def serve(
    root: Path, listening: socket.socket, host: str, token: str | None, changes: Changes, started: Callable[[], None]
) -> None:
    """Serve until Ctrl-C."""
    live = Live(root, changes)
    config = uvicorn.Config(
        application(live, token, host),
        log_level="warning",
        access_log=False,
        lifespan="on",
        http=_Prompt,
        timeout_graceful_shutdown=_GRACE,
        server_header=False,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    _Server(config, live, started).run(sockets=[listening])


class _Prompt(H11Protocol):
    """Closes a connection without a complete request in time; uvicorn would wait forever."""

    _until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._forget()
        self._until = self.loop.call_later(_ASKING, self._let_go)

    def _forget(self) -> None:
        if self._until is not None:
            self._until.cancel()

    def _let_go(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Releases open pages as soon as a stop is requested."""

    def __init__(self, config: uvicorn.Config, live: Live, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._live, self._tell = live, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.close()
        await super().shutdown(sockets)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether to print a message: not for pages closed at the end, nor for idle readers."""
    asleep = record.exc_info is not None and isinstance(record.exc_info[1], SendTimeoutError)
    return not asleep and "graceful shutdown exceeded" not in record.getMessage()


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def _free_after(host: str, port: int) -> int | None:
    for candidate in range(port + 1, min(port + _TRIED, 65536)):
        try:
            family, _, _, _, address = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0]
            _listening(family, address).close()
        except OSError:
            continue
        return candidate
    return None
