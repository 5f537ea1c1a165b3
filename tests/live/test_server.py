"""The server in a process of its own, on runs that others write: nothing is missed, and it ends when it is told to."""

from __future__ import annotations

import base64
import json
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from servers import PATIENCE, Reader, Server, eventually, serving, writing
from terminal import PROGRAM

import steadyrun
from steadyrun.live import server as live_serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    root = tmp_path_factory.mktemp("served")
    with serving(root) as server:
        yield server, root


def losses(data: Any) -> list[float]:
    """The training losses in a page's data."""
    (panel,) = [panel for panel in data["panels"] if panel["number"] == 1]
    (trace,) = [trace for trace in panel["figure"]["data"] if trace.get("name") == "train" and "meta" not in trace]
    return numbers(trace["y"])


def numbers(array: dict[str, str]) -> list[float]:
    raw = base64.b64decode(array["bdata"])
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


def added(reader: Reader) -> list[float]:
    """The training losses that the patches brought, in order."""
    losses: list[float] = []
    for kind, _, data in list(reader.events):
        for panel in json.loads(data)["panels"] if kind == "patch" else []:
            if panel["number"] == 1 and "0" in panel.get("traces", {}):
                change = panel["traces"]["0"]
                losses = losses + numbers(change["add"]["y"]) if "add" in change else numbers(change["trace"]["y"])
    return losses


def test_new_points_arrive_and_none_is_missed(served: tuple[Server, Path]) -> None:
    server, root = served
    with writing(root / "run") as writer:
        writer.write(*range(100, 140))
        data = server.json("/api/run/run/data")
        assert losses(data) == list(range(100, 140))
        reader = Reader(server, f"/api/run/run/events?since={data['id']}")
        for value in range(140, 160):
            writer.write(value)
        eventually(lambda: added(reader)[-1:] == [159])
        assert added(reader) == list(range(140, 160))
        assert "refresh" not in {kind for kind, _, _ in reader.events}
        reader.close()
        again = Reader(server, f"/api/run/run/events?since={reader.events[0][1]}")  # as a browser that comes back
        eventually(lambda: added(again) == added(reader)[len(added_by(reader.events[0])) :])
        again.close()


def added_by(event: tuple[str, str, str]) -> list[float]:
    (panel,) = [panel for panel in json.loads(event[2])["panels"] if panel["number"] == 1]
    return numbers(panel["traces"]["0"]["add"]["y"])


def test_a_crash_and_a_resume_are_followed(served: tuple[Server, Path]) -> None:
    server, root = served
    with writing(root / "crash") as writer:
        writer.write(*[3.0] * 20)
        data = server.json("/api/run/crash/data")
        assert data["state"] == "running, last step 19"
        reader = Reader(server, f"/api/run/crash/events?since={data['id']}")
        writer.crash()
        eventually(lambda: any("killed" in event[2] for event in reader.events))
    with writing(root / "crash", first_step=10) as writer:
        writer.write(*[2.0] * 5)
        eventually(lambda: server.json("/api/run/crash/data")["state"] == "running, last step 14")
        assert losses(server.json("/api/run/crash/data")) == [3.0] * 10 + [2.0] * 5
        eventually(lambda: added(reader) == [3.0] * 10 + [2.0] * 5)
        writer.finish()
    eventually(lambda: any('"finished, last step 14"' in event[2] for event in reader.events))
    reader.close()


def test_a_run_that_vanishes_is_told(served: tuple[Server, Path]) -> None:
    server, root = served
    with steadyrun.record(root / "short") as run:
        run.log(loss=1.0)
    data = server.json("/api/run/short/data")
    reader = Reader(server, f"/api/run/short/events?since={data['id']}")
    (root / "short").rename(root / "elsewhere")
    eventually(lambda: "problem" in {kind for kind, _, _ in reader.events})
    assert server.get("/run/short")[0] == 404
    reader.close()


def test_the_list_streams(served: tuple[Server, Path]) -> None:
    server, root = served
    reader = Reader(server, f"/api/runs/events?since={server.json('/api/runs')['id']}")
    with steadyrun.record(root / "listed") as run:
        run.log(loss=1.25)
    eventually(lambda: any('"listed"' in event[2] and '"1.25"' in event[2] for event in reader.events))
    reader.close()


def test_several_readers_of_one_run(served: tuple[Server, Path]) -> None:
    """The short form of the load test in `make bench`."""
    server, root = served
    with writing(root / "many") as writer:
        writer.write(0.5)
        start = server.json("/api/run/many/data")["id"]
        readers = [Reader(server, f"/api/run/many/events?since={start}") for _ in range(5)]
        for value in range(1, 61):
            writer.write(value)
        for reader in readers:
            eventually(lambda reader=reader: added(reader)[-1:] == [60])
            assert [value for value in added(reader) if value >= 1] == list(range(1, 61))
        assert len({tuple(event[1] for event in reader.events) for reader in readers}) == 1
        for reader in readers:
            reader.close()


def test_a_token_is_made_up_for_other_hosts(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0") as server:
        token = server.address.partition("?token=")[2]
        assert len(token) >= 32
        assert server.get("/")[0] == 401
        assert server.get("/", Authorization=f"Bearer {token}")[0] == 200
        assert server.get(f"/?token={token}")[0] == 303


def test_ctrl_c_ends_it_quietly_though_it_is_read(tmp_path: Path) -> None:
    with writing(tmp_path / "run") as writer, serving(tmp_path) as server:
        writer.write(1.0)
        readers = [Reader(server, path) for path in ("/api/run/run/events", "/api/runs/events")]
        eventually(lambda: all(reader.events for reader in readers))
        server.process.send_signal(signal.SIGINT)
        _, messages = server.process.communicate(timeout=PATIENCE)
        assert server.process.returncode == 130
        for reader in readers:
            reader.close()
        assert messages.splitlines() == [
            f"serving the runs under {tmp_path}; press Ctrl-C to stop",
            "stopped with Ctrl-C",
        ]


def serve(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*PROGRAM, "serve", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_taken_port_names_a_free_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, messages = serve(str(tmp_path), "--port", str(port))
    assert code == 2
    assert f"127.0.0.1:{port}: Address already in use; --port " in messages
    assert "is free, --port 0 chooses a free one" in messages
    assert "Traceback" not in messages


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-here"], "nothing-here does not exist"),
        ([__file__], "is not a folder"),
        ([".", "--token", "short"], "--token needs at least 8"),
        ([".", "--host", "no such host"], "is not a name or address of this machine"),
    ],
)
def test_bad_input_is_said_clearly(arguments: list[str], said: str) -> None:
    code, messages = serve(*arguments)
    assert code == 2
    assert said in " ".join(messages.split())
    assert "Traceback" not in messages


def test_a_request_that_is_never_finished_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_serving, "_ASKING", 0.3)
    listening = live_serving.bound("127.0.0.1", 0)
    application = live_serving.application(live_serving.Live(tmp_path, {}))
    config = uvicorn.Config(application, http=live_serving._Prompt, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    half = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    try:
        for sent, answers in ((b"", 0), (half, 0), (half + b"\r\n" + half, 1)):
            with socket.create_connection(listening.getsockname(), timeout=PATIENCE) as connection:
                connection.sendall(sent)
                assert _until_the_end(connection).count(b"HTTP/1.1 200") == answers
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


def _until_the_end(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received
