"""One thread each: tests side by side on few cores otherwise wait for each other's threads."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
