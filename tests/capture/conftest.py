"""The planted programs live with the benchmarks, which run them on a GPU, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
