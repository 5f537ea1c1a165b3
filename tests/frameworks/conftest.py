"""Tests that need a framework: `make test-frameworks` runs them in an environment that has all of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A pipe by name: reading it waits for a job, and its end is the end of the job's processes."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Ray cluster of two nodes, both on this machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster.address
    cluster.shutdown()
