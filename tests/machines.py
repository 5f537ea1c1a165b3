"""Other machines, emulated by settings that change the last bits of what torch computes.

python tests/machines.py           shows which results each setting changes
python tests/machines.py --test    then runs the whole suite under each of them
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

SETTINGS = (
    "ATEN_CPU_CAPABILITY=default",
    "ATEN_CPU_CAPABILITY=avx2",
    "MKL_CBWR=COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA=SSE41",
    "OMP_NUM_THREADS=2",
)

_RESULTS = """
import hashlib, json, torch
from torch.nn import functional as F

generator = torch.Generator().manual_seed(0)
a, b = torch.rand(64, 128, generator=generator) - 0.5, torch.rand(128, 96, generator=generator) - 0.5
picture, kernel = torch.rand(4, 3, 32, 32, generator=generator), torch.rand(8, 3, 3, 3, generator=generator)
found = {
    "randn": torch.randn(1000, generator=generator),
    "softmax": a.softmax(1),
    "layer_norm": F.layer_norm(a, (128,)),
    "matmul": a @ b,
    "conv2d": F.conv2d(picture, kernel),
    "bfloat16 matmul": (a.bfloat16() @ b.bfloat16()).float(),
    "sum": torch.rand(1_000_000, generator=generator).sum(),
    "linear's gradient": (a.repeat(40, 1).T @ a.repeat(40, 1)),
}
digests = {name: hashlib.sha256(held.numpy().tobytes()).hexdigest() for name, held in found.items()}
print(json.dumps({"capability": torch.backends.cpu.get_cpu_capability(), **digests}))
"""


def results(setting: str = "") -> dict[str, str]:
    """Digests of a few results in a process of its own, and the instructions torch chose."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = os.environ | threads | environment_of(setting)
    done = subprocess.run([sys.executable, "-c", _RESULTS], env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def environment_of(setting: str) -> dict[str, str]:
    name, _, value = setting.partition("=")
    if name == "OMP_NUM_THREADS":
        return {name: value, "MKL_NUM_THREADS": value}
    return {name: value} if setting else {}


def changed(setting: str) -> list[str]:
    """Which results have other bits under this setting."""
    here, there = results(), results(setting)
    return [name for name in here if name != "capability" and here[name] != there[name]]


def main() -> int:
    for setting in SETTINGS:
        print(f"{setting:30} changes {', '.join(changed(setting)) or 'nothing on this CPU'}", flush=True)
    failed = []
    for setting in SETTINGS if "--test" in sys.argv else ():
        print(f"\n{setting} make test", flush=True)
        if subprocess.run(["make", "test"], env=os.environ | environment_of(setting), check=False).returncode:
            failed.append(setting)
    print(f"\nfailed under: {', '.join(failed)}" if failed else "\nno failure")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
