"""Coroutines in tests: a browser that another test has opened keeps an event loop running in the main thread."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_alone(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a thread of its own; what it raises is raised here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(main())).result()
