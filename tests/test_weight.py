"""`import steadyrun` is light: what it does not need it does not load."""

import subprocess
import sys


def test_import_loads_nothing_heavy() -> None:
    program = """
import sys, steadyrun
heavy = {"numpy", "pyarrow", "torch", "typer", "rich", "plotly", "jinja2", "starlette"} & set(sys.modules)
assert not heavy, heavy
assert sorted(steadyrun.__all__) == steadyrun.__all__
for name in steadyrun.__all__:
    getattr(steadyrun, name)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
