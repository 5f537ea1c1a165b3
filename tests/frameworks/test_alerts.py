"""Alerts through apprise, to a real web server on this machine."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from servers import eventually

import steadyrun
from steadyrun.forwarding import alerts, sink

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise imports it
ROOT = Path(__file__).parent.parent.parent
SECRET = "s3cr3t-t0ken"


class Service(ThreadingHTTPServer):
    """Takes what is posted; `answers` are the codes that it answers with, then 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.hold = threading.Event()
        self.hold.set()

    @property
    def address(self) -> str:
        return f"json://user:{SECRET}@127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.hold.wait(30)
        code = self.server.answers.pop(0) if self.server.answers else 200
        if code == 200:
            self.server.posted.append(body)
        self.send_response(code)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.hold.set()
        found.shutdown()
        thread.join()


def train(path: Path, alert: Any, *, bad_at: int = 60, steps: int = 80) -> None:
    """A loss that becomes NaN."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_fn(model: Any, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).square().mean()
        return loss

    with steadyrun.record(path, alert=alert) as run:
        run.watch(model, optimizer, loss_fn=loss_fn)
        for step in range(steps):
            batch = torch.randn(8, 4) * (math.nan if step == bad_at else 1.0)
            loss = loss_fn(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batch)


def test_a_fault_is_told_with_its_numbers_and_the_incident(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "_COMPANY", 1000.0)  # however slow this machine is
    train(tmp_path / "run", service.address)
    view = steadyrun.open_run(tmp_path / "run")
    faults, incidents = view.events("fault"), view.events("incident")
    (sent,) = service.posted  # one message for all that belongs together
    assert faults
    assert sent["title"].startswith(f"steadyrun: fault {faults[0].fields['code']} ")
    for event in faults:
        assert event.fields["code"] in sent["message"]
        assert event.fields["message"] in sent["message"]
        assert event.fields["fix"] in sent["message"]
    assert incidents
    assert str(tmp_path / "run" / incidents[0].fields["path"]) in sent["message"]
    assert f"Run: {tmp_path / 'run'}" in sent["message"]
    assert sent["type"] == "failure"


def test_a_healthy_run_sends_nothing(tmp_path: Path, service: Service) -> None:
    train(tmp_path / "run", service.address, bad_at=-1)
    assert service.posted == []
    assert not steadyrun.open_run(tmp_path / "run").events("forward-failed")


def test_the_first_goes_at_once_and_the_next_are_held_back(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "_COMPANY", 0.0)
    with steadyrun.record(tmp_path / "run", alert=steadyrun.Alerts(service.address, every=1000)) as run:
        run.log(loss=1.0)
        run.incident("the first")
        eventually(lambda: service.posted)
        for number in range(150):
            run.incident(f"number {number}")
        run.note("nothing for anyone")
    first, second = service.posted
    assert "the first" in first["message"]
    assert "number 0" in second["message"]
    assert "130 more" in second["message"]
    assert "(and 149 more)" in second["title"]
    assert "nothing for anyone" not in second["message"]


def test_a_crash_is_told_and_ctrl_c_is_not(tmp_path: Path, service: Service) -> None:
    def crash(path: Path, problem: BaseException) -> None:
        with steadyrun.record(path, alert=service.address) as run:
            run.log(loss=1.0)
            raise problem

    with pytest.raises(KeyboardInterrupt):
        crash(tmp_path / "stopped", KeyboardInterrupt())
    assert service.posted == []
    with pytest.raises(RuntimeError):
        crash(tmp_path / "crashed", RuntimeError("<b>boom</b>\x1b[31m\n# not a heading"))
    (sent,) = service.posted
    assert "RuntimeError: <b>boom</b>" in sent["message"]
    assert "\x1b" not in sent["message"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the connection that is given up
def test_text_from_a_run_is_text(tmp_path: Path, service: Service) -> None:
    hostile = "<!channel> *bold* <a href='http://evil'>x</a>\x1b]0;t\x07\u202e" + "x" * 5000
    with steadyrun.record(tmp_path / "run", alert=service.address + "?format=html") as run:
        run.log(loss=1.0)
        run.incident(hostile)
    (sent,) = service.posted
    assert "<a href" not in sent["message"]  # an HTML service gets it escaped
    assert "&lt;a" in sent["message"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", sent["message"])
    assert len(sent["message"]) < 5000


def test_a_service_that_fails_is_tried_again(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sink, "_AGAIN", 0.01)
    service.answers = [500, 500]
    with steadyrun.record(tmp_path / "run", alert=service.address) as run:
        run.log(loss=1.0)
        run.incident("look")
    assert len(service.posted) == 1
    said = capsys.readouterr().err
    assert said.count("alerting through 'json://…' failed") == 1
    assert SECRET not in said


def test_a_service_that_never_answers_is_left_behind(
    tmp_path: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.hold.clear()
    with steadyrun.record(tmp_path / "run", alert=steadyrun.Alerts(service.address, wait=0.3)) as run:
        run.log(loss=1.0)
        run.incident("look")
    said = capsys.readouterr().err
    assert said.count("The run directory has everything") == 1
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "finished"
    (event,) = view.events("forward-failed")
    assert event.fields["to"] == "alerting through 'json://…'"


PROGRAM = """
import sys, steadyrun
address = sys.argv[2]
with steadyrun.record(sys.argv[1], config={"alert": address, "all": vars(steadyrun.Alerts([address]))},
                      alert=[address]) as run:
    run.log(loss=1.0)
    run.incident("look")
    run.close()
with steadyrun.record(sys.argv[1], alert=address) as run:
    run.log(loss=1.0)
"""


def test_the_address_is_written_nowhere(tmp_path: Path, service: Service) -> None:
    service.answers = [500] * 50
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), service.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "The run directory has everything" in done.stderr
    assert SECRET not in done.stderr + done.stdout
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    assert "…" in json.dumps(steadyrun.open_run(tmp_path / "run").manifest["command_line"], ensure_ascii=False)


@pytest.mark.parametrize(
    ("alert", "says"),
    [
        (f"nonsense://{SECRET}", "apprise does not understand 'nonsense://…'"),
        (f"slack://{SECRET}", "apprise does not understand 'slack://…'"),
        (SECRET, "apprise does not understand the given address"),
        ([], None),
        (["json://localhost", 3], "or a function, not int"),
        ("", "give an address"),
        (steadyrun.Alerts("json://localhost", every=-1), "every must be a number of seconds"),
    ],
)
def test_a_bad_address_is_told_before_training(
    tmp_path: Path, alert: Any, says: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    if says is None:
        steadyrun.record(tmp_path / "run", alert=alert).close()
        return
    with pytest.raises(steadyrun.UsageError, match=says) as raised:
        steadyrun.record(tmp_path / "run", alert=alert)
    assert SECRET not in str(raised.getrepr())
    assert SECRET not in "".join(capfd.readouterr())
    assert not (tmp_path / "run").exists()


def test_a_function_of_ones_own(tmp_path: Path) -> None:
    told: list[str] = []

    def broken(_: str) -> None:
        raise ValueError(SECRET)

    with steadyrun.record(tmp_path / "run", alert=steadyrun.Alerts([told.append, broken], wait=5)) as run:
        run.log(loss=1.0)
        run.incident("look")
    assert len(told) == 1
    assert told[0].startswith("steadyrun: incident asked at step 0 in run\n\nincident asked at step 0\nlook\n")
    (event,) = steadyrun.open_run(tmp_path / "run").events("forward-failed")
    assert SECRET not in str(event)


def test_an_alerts_address_is_not_in_its_repr() -> None:
    assert SECRET not in repr(steadyrun.Alerts(f"slack://{SECRET}"))


def test_the_pages_examples_run(tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    example, options = re.findall(r"```python\n(.*?)```", (ROOT / "docs/alerts.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(example.replace("localhost:8080", f"localhost:{service.server_address[1]}"), {})
    (sent,) = service.posted
    assert sent["title"] == "steadyrun: incident asked at step 99 in my-run"
    assert "the loss looks odd" in sent["message"]
    changed: Any = eval(options, {"steadyrun": steadyrun})
    steadyrun.record("checked", alert=changed).close()  # apprise takes both addresses
