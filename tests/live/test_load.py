"""Twenty readers on one live run for a minute: nothing missed, no memory gained. Run by `make bench`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from servers import Reader, Server, eventually, serving, writing
from test_server import added

SECONDS = 60
READERS = 20


def resident(server: Server) -> float:
    """The server's memory in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.slow
def test_twenty_readers_for_a_minute(tmp_path: Path) -> None:
    with serving(tmp_path) as server, writing(tmp_path / "run") as writer:
        writer.write(0.5)
        start = server.json("/api/run/run/data")["id"]
        readers = [Reader(server, f"/api/run/run/events?since={start}") for _ in range(READERS)]
        began, written, memory = time.monotonic(), 0, []
        while time.monotonic() - began < SECONDS:
            written += 1
            writer.write(written)
            if written % 100 == 0:
                memory.append(resident(server))
            time.sleep(0.03)
        for reader in readers:
            eventually(lambda reader=reader: added(reader)[-1:] == [written])
            assert [value for value in added(reader) if value >= 1] == list(range(1, written + 1))
            assert {kind for kind, _, _ in reader.events} == {"patch"}
            reader.close()
        warm = memory[len(memory) // 4]
        print(f"{written} points, {READERS} readers: {warm:.1f} MiB, {memory[-1]:.1f} MiB at the end")
        assert memory[-1] - warm < 15
        eventually(lambda: resident(server) < memory[-1] + 5)
