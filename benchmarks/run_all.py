"""Run the CPU benchmarks one after another; each prints JSON lines. Nothing else should run meanwhile.

make bench
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = (
    ["import_time.py"],
    ["store.py"],
    ["check_size.py"],
    ["importing.py"],
    ["dashboard_size.py"],
    ["dashboard_size.py", "--worst"],
    ["live.py"],
    ["leaves.py"],
    ["overhead.py", "tutor", "--steps", "2000", "--threads", "1"],
    ["overhead.py", "tutor", "--steps", "2000", "--threads", "2"],
    ["overhead.py", "gpt17m", "--steps", "200"],
    ["overhead.py", "tutor", "--steps", "2000", "--threads", "1", "--monitor"],
    ["capture.py", "gpt17m", "--steps", "600"],
    ["capture.py", "tutor", "--steps", "2000", "--threads", "1"],
    ["hunt.py"],
    ["replay.py"],
    ["diagnosis"],
)

if __name__ == "__main__":
    for number, command in enumerate(COMMANDS, start=1):
        print(f"[{number}/{len(COMMANDS)}] {' '.join(command)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]], check=True)
