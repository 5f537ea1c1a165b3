"""The programs of the scoreboard live with the benchmarks, which run them to their end."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
