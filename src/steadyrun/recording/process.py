"""This process among those of the job: its rank and their number, from torch.distributed or the launcher."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any


def own_rank() -> int:
    """This process's rank: from torch.distributed, else from the launcher's environment variables."""
    if (group := _initialised()) is not None:
        return int(group.get_rank())
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdigit() and own_world() > 1 else 0


def own_world() -> int:
    """The number of processes of the job, 1 if nothing shows more."""
    if (group := _initialised()) is not None:
        return int(group.get_world_size())
    given = os.environ.get("WORLD_SIZE", "1")
    return max(1, int(given)) if given.isdigit() else 1


def describe_process(rank: int) -> dict[str, Any]:
    """The fields of the event `process`."""
    local = os.environ.get("LOCAL_RANK", "")
    return {
        "rank": rank,
        "world": own_world(),
        "local_rank": int(local) if local.isdigit() else None,
        "host": platform.node(),
        "pid": os.getpid(),
        "started": time.time(),
    }


def _initialised() -> Any | None:
    """torch.distributed, if the program has set it up."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    known = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if known else None
