"""The checks that every request must pass, and the headers of every response."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Checks host, method and token before calling the application."""

    def __init__(self, app: ASGIApp, token: str | None, host: str) -> None:
        self._app = app
        self._token = token
        self._hosts = {*LOOPBACK, host.lower(), *(_own_names() if host in _EVERYWHERE else ())}
        self._any_address = host in _EVERYWHERE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Names of runs need not be UTF-8; other names are decoded as on disk.
        scope["path"] = os.fsdecode(unquote_to_bytes(scope.get("raw_path") or scope["path"].encode()))
        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a rejected request; None if it may pass."""
        headers = Headers(scope=scope)
        if not self._known_host(headers.get("host", "")):
            return PlainTextResponse("This server does not accept this host name; set it with --host.", 400)
        if scope["method"] != "GET":
            return PlainTextResponse("Only GET is allowed.", 405, {"Allow": "GET"})
        if self._token is None:
            return None
        token, rest = _token_in(scope["query_string"])
        if token and self._is_token(token):
            return self._with_cookie(scope, rest)
        if any(self._is_token(presented) for presented in (_bearer(headers), self._in_cookie(headers))):
            return None
        said = "Unauthorized: open the address with the token that `steadyrun serve` printed."
        return PlainTextResponse(said, 401, {"WWW-Authenticate": "Bearer"})

    def _known_host(self, header: str) -> bool:
        """Whether the host name is ours: a foreign page may point its own name at this machine."""
        name = header.rpartition(":")[0] if _has_port(header) else header
        bare = name.lower().removeprefix("[").removesuffix("]")
        return bare in self._hosts or (self._any_address and _is_address(bare))

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    @property
    def _cookie(self) -> str:
        """The cookie's name, one per token: all ports of a machine share cookies."""
        return f"steadyrun-{hashlib.sha256((self._token or '').encode()).hexdigest()[:8]}"

    def _in_cookie(self, headers: Headers) -> str:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    def _with_cookie(self, scope: Scope, rest: str) -> Response:
        """Store the token in a cookie and redirect to the same address without it."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = "/" + raw.decode("ascii", "replace").lstrip("/\\")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        answer.set_cookie(self._cookie, self._token or "", httponly=True, samesite="strict", path="/")
        return answer


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sender


def _token_in(query: bytes) -> tuple[str, str]:
    """The token of a query, "" if there is none, and the query without it."""
    fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="utf-8", errors="surrogateescape")
    tokens = [value for name, value in fields if name == "token"]
    rest = urlencode([field for field in fields if field[0] != "token"], encoding="utf-8", errors="surrogateescape")
    return (tokens[0].encode("utf-8", "replace").decode() if tokens else ""), rest


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _has_port(header: str) -> bool:
    return header.rpartition(":")[2].isdecimal() and (header.count(":") == 1 or "]:" in header)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_names() -> Iterable[str]:
    return {socket.gethostname().lower(), socket.getfqdn().lower()}
