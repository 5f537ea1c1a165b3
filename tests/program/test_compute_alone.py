"""A thread of ours computes without OpenMP helpers of its own; the program's threads keep theirs."""

import threading
from pathlib import Path

import pytest
import torch

from steadyrun.program.torch_compat import compute_alone


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_only_the_calling_thread_computes_alone() -> None:
    before = torch.get_num_threads()
    seen: dict[str, int] = {}

    def ours() -> None:
        compute_alone()
        torch.ones(1_000_000).add_(1)
        seen["ours"] = torch.get_num_threads()

    def theirs() -> None:
        seen["theirs"] = torch.get_num_threads()

    torch.set_num_threads(2)
    try:
        for work in (ours, theirs):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {"ours": 1, "theirs": 2}
