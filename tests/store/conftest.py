"""A run that was closed and one that was killed, for tests that damage copies of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import write_run


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("closed"), close=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("killed"), close=False)
