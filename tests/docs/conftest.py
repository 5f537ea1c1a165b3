"""The scripts in docs/ are imported by their file names, as `make docs` runs them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
