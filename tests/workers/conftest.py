import os
from pathlib import Path

import pytest


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A pipe by name: reading it waits for a job, and its end is the end of the job's processes."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"
