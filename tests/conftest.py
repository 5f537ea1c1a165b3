"""Shared by all tests: one thread, no deadlines, warnings are errors, runs that are trained once."""

import fcntl
import hashlib
import os
import signal
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsing import chromium as chromium
from browsing import show as show
from hypothesis import HealthCheck, settings

import steadyrun

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, metavar="N", help="run the first of every N tests of each file")


@pytest.fixture(autouse=True)
def left_modes() -> Iterator[None]:
    """End what a test's open run has put around torch's functions: the next test may count calls."""
    yield
    torch = sys.modules.get("torch")
    while torch is not None and torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = config.getoption("--every")
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    chosen = {item for tests in files.values() for item in tests[::every]}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


@pytest.fixture(autouse=True)
def _no_trace_of_the_compiler() -> Iterator[None]:
    """Where torch.compile was at work, the mode in validation is not looked at: not so in the tests that come later."""
    yield
    if (utils := sys.modules.get("torch._dynamo.utils")) is not None:
        utils.counters.clear()


@pytest.fixture(scope="session")
def tutor_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., steadyrun.RunView]:
    """`tutor_run(fault, **config)`: a recorded run of the grammar tutor, trained once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tutor"

    def run(fault: str = "healthy", **config: object) -> steadyrun.RunView:
        from steadyrun.tutor.faults import load_recipe
        from steadyrun.tutor.train import train_recorded

        settings = hashlib.sha256(repr(sorted(config.items())).encode()).hexdigest()[:16]
        folder = shared / f"{fault}-{settings}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "trained").exists():
                train_recorded(load_recipe(fault, **config), folder / fault)
                (folder / "trained").touch()
        return steadyrun.open_run(folder / fault)

    return run
