"""The server's read-only routes: pages, their files and their data."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from steadyrun.errors import SteadyrunError
from steadyrun.live import pages, prometheus
from steadyrun.live.compare_page import ComparePage
from steadyrun.live.followed_run import Watch
from steadyrun.live.guard import Guard
from steadyrun.live.page_patches import dumps, encoded
from steadyrun.live.run_list import Index
from steadyrun.live.subscriptions import PollPace, Tailer, Tailers
from steadyrun.live.threads import Workers
from steadyrun.panels.board import BUILDERS
from steadyrun.panels.plotly_figure import outline
from steadyrun.report.incidents import incidents
from steadyrun.report.phrases import one_line
from steadyrun.store.discover import Root, RunPlace
from steadyrun.trees.walker import Changes

_PATIENCE = 30.0  # seconds after which an idle reader is disconnected
_THREADS = 3


class _AnyPath(Convertor[str]):
    """Like starlette's `path`, but names may contain line breaks."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anypath", _AnyPath())


class Live:
    """Shared by the routes: the folder, the list, and the followed runs."""

    def __init__(self, root: Path, changes: Changes, pace: PollPace | None = None) -> None:
        self.root = Root(root)
        self.shown_root = one_line(str(root))
        self._changes = changes
        self.workers = Workers(_THREADS)
        self.index = Index(self.root, Workers(1), changes)
        self.tailers = Tailers(self.workers, pace)

    def close(self) -> None:
        self.index.close()
        self.tailers.close()

    def find_run(self, name: str) -> RunPlace:
        run = self.root.find(name)
        if run is None:
            raise HTTPException(404, "This run does not exist.")
        return run

    @asynccontextmanager
    async def following(self, run: RunPlace) -> AsyncIterator[Tailer]:
        try:
            async with self.tailers.watching(run.key, lambda: Watch(run.path, run.name, self._changes)) as tailer:
                yield tailer
        except (SteadyrunError, OSError) as problem:
            raise HTTPException(409, one_line(f"Cannot read this run: {problem}")) from problem

    async def index_page(self, _: Request) -> Response:
        return HTMLResponse(pages.index_page(self.shown_root))

    async def runs(self, _: Request) -> Response:
        return _json(await self.index.whole())

    async def runs_events(self, request: Request) -> Response:
        self.index.want()
        return _events(self.index.feed.follow(_since(request)))

    async def metrics(self, _: Request) -> Response:
        rows, left_out = await self.index.measured()
        return Response(prometheus.exposition(rows, left_out, time.time()), headers={"Content-Type": prometheus.KIND})

    async def run_page(self, request: Request) -> Response:
        run = self.find_run(request.path_params["run"])
        async with self.following(run) as tailer:
            return HTMLResponse(await self.workers.do(pages.run_page, await tailer.ready(), run))

    async def run_data(self, request: Request) -> Response:
        async with self.following(self.find_run(request.path_params["run"])) as tailer:
            return _json(tailer.whole())

    async def run_events(self, request: Request) -> Response:
        run = self.find_run(request.path_params["run"])

        async def events() -> AsyncIterator[Any]:
            async with self.following(run) as tailer:
                async for event in tailer.feed.follow(_since(request)):
                    yield event

        return _events(events())

    async def run_panel(self, request: Request) -> Response:
        number, (first, last) = _panel(request), _range(request)
        async with self.following(self.find_run(request.path_params["run"])) as tailer:
            board = await tailer.ready()
            panel = await self.workers.do(tailer.watch.panel, number, first, last)
            echo = board.leaf.step if board.leaf else None
            return _json(dumps({"number": number, "figure": encoded(outline(panel, board.span, echo))}))

    async def run_postmortem(self, request: Request) -> Response:
        run, step = self.find_run(request.path_params["run"]), int(request.path_params["step"])
        name = next((card.postmortem for card in incidents(run.path) if card.step == step and card.postmortem), None)
        if name is None:
            raise HTTPException(404, "This incident has no post-mortem. To write it: steadyrun postmortem RUN")
        return PlainTextResponse(await self.workers.do((run.path / name).read_text, "utf-8", "replace"))

    async def compare_page(self, request: Request) -> Response:
        async with self._comparing(request) as comparison:
            return HTMLResponse(await self.workers.do(comparison.page))

    async def compare_data(self, request: Request) -> Response:
        async with self._comparing(request) as comparison:
            return _json(await self.workers.do(comparison.data))

    async def compare_panel(self, request: Request) -> Response:
        number, (first, last) = _panel(request), _range(request)
        async with self._comparing(request) as comparison:
            return _json(await self.workers.do(comparison.panel, number, first, last))

    @asynccontextmanager
    async def _comparing(self, request: Request) -> AsyncIterator[ComparePage]:
        query = request.scope["query_string"].decode("latin-1")
        fields = parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="surrogateescape")
        names = dict.fromkeys(value for name, value in fields if name == "run")
        runs = [self.find_run(name) for name in names]
        async with AsyncExitStack() as stack:
            tailers = [await stack.enter_async_context(self.following(run)) for run in runs]
            try:
                yield ComparePage(runs, [(tailer.watch, await tailer.ready()) for tailer in tailers])
            except SteadyrunError as problem:
                raise HTTPException(400, str(problem)) from problem


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in pages.ASSETS:
        raise HTTPException(404, "This file does not exist.")
    body, kind = pages.asset(name)
    headers = {"Cache-Control": "private, max-age=31536000, immutable", "Content-Encoding": "gzip"}
    return Response(body, headers=headers, media_type=kind)


def application(live: Live, token: str | None = None, host: str = "127.0.0.1") -> Guard:
    """The ASGI application behind its guard."""
    routes = {
        "/": live.index_page,
        "/run/{run:anypath}": live.run_page,
        "/compare": live.compare_page,
        "/assets/{name}": _asset,
        "/metrics": live.metrics,
        "/api/runs": live.runs,
        "/api/runs/events": live.runs_events,
        "/api/run/{run:anypath}/data": live.run_data,
        "/api/run/{run:anypath}/events": live.run_events,
        "/api/run/{run:anypath}/panel/{number:int}": live.run_panel,
        "/api/run/{run:anypath}/postmortem/{step:int}": live.run_postmortem,
        "/api/compare": live.compare_data,
        "/api/compare/panel/{number:int}": live.compare_panel,
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        live.close()

    app = Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()],
        exception_handlers={HTTPException: _said},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return Guard(app, token, host)


async def _said(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return PlainTextResponse(problem.detail, problem.status_code)


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


def _events(events: AsyncIterator[Any]) -> Response:
    async def sent() -> AsyncIterator[ServerSentEvent]:
        async for event in events:
            yield ServerSentEvent(event.data, event=event.kind, id=event.id)

    return EventSourceResponse(sent(), send_timeout=_PATIENCE)


def _since(request: Request) -> str:
    """The id of the last event that a reconnecting browser has seen, from its header."""
    return request.headers.get("last-event-id") or request.query_params.get("since", "")


def _panel(request: Request) -> int:
    number = int(request.path_params["number"])
    if not 1 <= number <= len(BUILDERS):
        raise HTTPException(404, "This panel does not exist.")
    return number


def _range(request: Request) -> tuple[float, float]:
    try:
        first, last = (float(request.query_params[name]) for name in ("from", "to"))
    except (KeyError, ValueError):
        raise HTTPException(400, "Give two steps: from= and to=.") from None
    if not first <= last:
        raise HTTPException(400, "from= is larger than to=.")
    return first, last
