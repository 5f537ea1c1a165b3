"""Where and how the run was started. Knows no torch of its own; what is not there is left out."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

_LIBRARIES = ("torch", "numpy", "pyarrow", "transformers", "lightning", "accelerate", "tokenizers", "jax")
_SECRET = re.compile(r"(token|secret|password|passwd|api[-_]?key)", re.IGNORECASE)


def describe_environment() -> dict[str, Any]:
    """Versions, hardware, git commit, command line, process."""
    return {
        "versions": _versions(),
        "hardware": _hardware(),
        "git": _git(Path.cwd()),
        "command_line": _without_secrets(sys.argv),
        "process": {"pid": os.getpid(), "host": platform.node(), "started": time.time()},
    }


def _versions() -> dict[str, str]:
    from steadyrun.version import __version__

    versions = {"python": platform.python_version(), "steadyrun": __version__}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _hardware() -> dict[str, Any]:
    hardware: dict[str, Any] = {"platform": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count()}
    torch = sys.modules.get("torch")
    if torch is not None:
        hardware["torch_threads"] = torch.get_num_threads()
        if torch.cuda.is_available():
            hardware["gpus"] = [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())]
    return hardware


def _git(folder: Path) -> dict[str, Any] | None:
    commit = _ask_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(_ask_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def _ask_git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _without_secrets(words: list[str]) -> list[str]:
    """The command line, with the values of options that look like credentials left out."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next:
            shown.append("…")
        elif equals and _SECRET.search(name):
            shown.append(f"{name}=…")
        else:
            shown.append(word)
        hide_next = word.startswith("-") and not equals and bool(_SECRET.search(name))
    return shown
