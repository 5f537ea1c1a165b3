"""`steadyrun mcp` as a client sees it: the real server as a process, spoken to by the mcp package's own client."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from samples import HOSTILE
from terminal import PROGRAM

import steadyrun
from steadyrun.agents.bounded_json import MOST
from steadyrun.report.file_formats import document

DOCS = Path(__file__).parents[2] / "docs" / "agents.md"
PATIENCE = 300.0  # seconds


class Client:
    """A session with the server; every answer is held to the bounds."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def asked(self, tool: str, /, **arguments: Any) -> tuple[dict[str, Any], bool]:
        result = await self.session.call_tool(tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        assert len(content.text) <= MOST
        assert content.text.isascii()
        assert content.text.isprintable()
        found = json.loads(content.text)
        assert found["schema"] == 2
        return found, bool(result.is_error)

    async def ask(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        found, failed = await self.asked(tool, **arguments)
        assert not failed, found
        return found

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        found, failed = await self.asked(tool, **arguments)
        assert failed, found
        assert list(found) == ["schema", "error", "message", "next"]
        return str(found["error"])


@asynccontextmanager
async def connected(parameters: StdioServerParameters) -> AsyncIterator[Client]:
    # A real file: the server's messages must not land in pytest's replacement of stderr, which has no number.
    with tempfile.TemporaryFile("w+") as told, anyio.fail_after(PATIENCE):
        async with (
            stdio_client(parameters, errlog=told) as (incoming, outgoing),
            ClientSession(incoming, outgoing) as s,
        ):
            await s.initialize()
            yield Client(s)
        told.seek(0)
        assert "Traceback" not in told.read()


def with_server(root: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        program, *rest = PROGRAM
        parameters = StdioServerParameters(command=program, args=[*rest, "mcp", str(root)], env=dict(os.environ))
        async with connected(parameters) as client:
            await talk(client)

    anyio.run(run)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, tutor_run: Callable[..., steadyrun.RunView]) -> Path:
    """Two runs of the tutor, one that only logs, a long one, and a hostile one."""
    folder = tmp_path_factory.mktemp("mcp") / "runs"
    for fault in ("healthy", "bad-init"):
        shutil.copytree(tutor_run(fault, steps=220).root, folder / fault)
    with steadyrun.record(folder / "logged", config={"vocab_size": 50}) as run:
        for step in range(300):
            run.log(loss=math.nan if step > 200 else 3.9 / (1 + step / 50), lr=0.1)
    with steadyrun.record(folder / "deep" / "long") as run:
        for step in range(100_000):
            run.log(loss=9.0 if step == 54_321 else 1.0, lr=0.1)
    with steadyrun.record(folder / f"x{HOSTILE.replace('/', '|')}".replace("\0", "")) as run:
        run.log(**{"loss": 1.0, HOSTILE: 2.0})
        run.note(HOSTILE)
    return folder


def test_the_tools_are_those_of_the_docs(root: Path) -> None:
    async def talk(client: Client) -> None:
        tools = (await client.session.list_tools()).tools
        rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| [^|]* \|", DOCS.read_text(), re.MULTILINE)
        documented = {name: set(re.findall(r"`(\w+)`", takes)) for name, takes in rows}
        assert {tool.name: set(tool.input_schema["properties"]) for tool in tools} == documented
        assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["postmortem"]

    with_server(root, talk)


def test_every_tool_on_runs_that_were_recorded(root: Path) -> None:
    async def talk(client: Client) -> None:
        runs = await client.ask("list_runs")
        verdicts = {row["run"]: row["verdict"] for row in runs["runs"]}
        assert (verdicts["healthy"], verdicts["bad-init"]) == ("healthy", "fault")
        assert verdicts["logged"] is None  # no monitor without watch
        assert (await client.ask("check", run="logged"))["leaf"]["step"] == 201

        faulty = await client.ask("check", run="bad-init")
        assert faulty["headline"]["code"] == "C5.1"
        whole = document(steadyrun.check(root / "bad-init"))
        assert faulty["verdict"] == whole["verdict"]
        assert faulty["headline"]["message"] == whole["headline"]["message"]
        fixed = await client.ask("check", run="healthy", after="bad-init")
        assert (fixed["verdict"], fixed["after"]["leaf_gone"]["code"]) == ("healthy", "C5.1")

        assert "Initialise" in (await client.ask("explain", code=faulty["headline"]["code"]))["text"]
        assert "loss" in (await client.ask("series", run="healthy", pattern="l*"))["names"]
        assert (await client.ask("events", run="bad-init", kind="fault"))["events"][0]["fields"]["code"] == "C5.1"
        told = await client.ask("postmortem", run="bad-init")
        assert told["root_cause"]["known"]
        assert told["markdown"].startswith("# Fault post-mortem")

    with_server(root, talk)


def test_a_long_run(root: Path) -> None:
    async def talk(client: Client) -> None:
        found = await client.ask("series", run="deep/long", name="loss", points=500)
        assert (found["total"], found["shown"]) == (100_000, len(found["points"]))
        assert len(found["points"]) <= 500
        assert [54_321, 9] in found["points"]
        assert (await client.ask("check", run="deep/long"))["last_step"] == 99_999

    with_server(root, talk)


def test_hostile_and_missing_runs(root: Path) -> None:
    with steadyrun.record(root.parent / "outside") as run:
        run.log(loss=1.0)

    async def talk(client: Client) -> None:
        names = [row["run"] for row in (await client.ask("list_runs"))["runs"]]
        (hostile,) = [name for name in names if name.startswith("x")]
        assert hostile.isprintable()
        assert (await client.ask("check", run=hostile))["run"] == hostile
        (note,) = (await client.ask("events", run=hostile, kind="note"))["events"]
        assert "\\x1b" in json.dumps(note)
        for name in ("../outside", "nothing", "", str(root.parent / "outside"), "%2e%2e/outside"):
            assert await client.refused("check", run=name) == "no-such-run"
        assert await client.refused("check") == "bad-argument"
        assert await client.refused("series", run="healthy", name="los") == "no-such-series"
        assert await client.refused("format_disk") == "no-such-tool"
        assert await client.refused("postmortem", run="healthy") == "nothing-to-tell"

    with_server(root, talk)


def test_answers_are_the_same_each_time(root: Path) -> None:
    async def talk(client: Client) -> None:
        for tool, arguments in (("list_runs", {}), ("check", {"run": "bad-init", "all": True})):
            first = await client.session.call_tool(tool, arguments)
            second = await client.session.call_tool(tool, arguments)
            assert first.content == second.content

    with_server(root, talk)


def test_writing_is_asked_for(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "logged", tmp_path / "logged")

    async def talk(client: Client) -> None:
        await client.ask("postmortem", run="logged")
        assert not (tmp_path / "logged/postmortems").exists()
        written = (await client.ask("postmortem", run="logged", write=True))["written"]
        assert len(written) == 2
        assert all((tmp_path / name).is_file() for name in written)
        assert not (tmp_path / "lessons.md").exists()

    with_server(tmp_path, talk)


def test_the_registration_in_the_docs_starts_a_server(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    entry = json.loads(example)["mcpServers"]["steadyrun"]
    assert entry["command"] == "steadyrun"
    monkeypatch.chdir(root.parent)
    shutil.copytree(root / "logged", root.parent / "experiments" / "logged")
    program, *rest = PROGRAM
    parameters = StdioServerParameters(command=program, args=[*rest, *entry["args"]], env=dict(os.environ))

    async def run() -> None:
        async with connected(parameters) as client:
            assert [row["run"] for row in (await client.ask("list_runs"))["runs"]] == ["logged"]

    anyio.run(run)


def test_the_answer_in_the_docs_is_the_documented_one(root: Path) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", DOCS.read_text(), re.MULTILINE))

    async def talk(client: Client) -> None:
        given = {
            "list_runs": {},
            "check": {"run": "healthy", "after": "bad-init"},
            "series": {"run": "healthy", "name": "loss"},
            "events": {"run": "healthy"},
            "postmortem": {"run": "bad-init"},
            "explain": {"code": "C5.1"},
        }
        for tool, arguments in given.items():
            found = await client.ask(tool, **arguments)
            assert re.findall(r"`(\w+)`", rows[tool]) == list(found)[1:]

    with_server(root, talk)


def test_stdin_that_ends_ends_the_server(root: Path) -> None:
    done = subprocess.run([*PROGRAM, "mcp", str(root)], input="", capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "")
    assert "serving the runs under" in done.stderr


def test_nonsense_on_stdin_ends_nothing(root: Path) -> None:
    ping = '{"jsonrpc": "2.0", "id": 7, "method": "ping"}'
    done = subprocess.run(
        [*PROGRAM, "mcp", str(root)], input=f"nonsense\n{ping}\n", capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(line.get("id") == 7 and "result" in line for line in lines)


def test_ctrl_c_ends_it(root: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "mcp", str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        assert "serving the runs under" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


@pytest.mark.parametrize("version", ["", "1.27.0"])
def test_without_the_extra_it_names_it(tmp_path: Path, version: str) -> None:
    """An older mcp is as good as none."""
    if version:
        old = tmp_path / f"mcp-{version}.dist-info"
        old.mkdir()
        (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mcp\nVersion: {version}\n")
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    else:
        program = "import sys; sys.modules['mcp'] = None\n"
    program += f"sys.argv = ['steadyrun', 'mcp', {str(tmp_path)!r}]\nfrom steadyrun.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install 'steadyrun[mcp]'" in done.stderr
    assert version in done.stderr
