"""Tries every documented `pip install` line in a fresh environment: what it brings is enough for what is shown with it.

A wheel of this checkout is built once. Then each line is installed for real, with the versions of constraints.txt, and
the example of its page, or the command that the line is about, runs there. `make test-frameworks` runs this; words
after it choose among the lines: `python tests/frameworks/install_lines.py keras`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"""pip install (?:--upgrade )?["']?(steadyrun(?:\[[a-z,]+\])?)["']?((?: [a-z][\w-]*)*)(?=\W)""")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

Command = list[str]


def program(page: str, beginning: str = "") -> Command:
    """The Python program that a page shows."""
    return ["python", "-c", re.findall(rf"```python\n({beginning}.*?)```", (ROOT / page).read_text(), re.DOTALL)[0]]


def forwarding(tracker: str) -> Command:
    *words, code = program("docs/forwarding.md")
    return [*words, code.replace('forward=["tensorboard"]', f'forward=["{tracker}"]')]


def workers(place: str) -> Command:
    *words, code = program("docs/workers.md")
    code = code.replace("print(", "assert not done.failure, done; print(")
    return [*words, code.replace('open_crew("local")', f'open_crew("{place}")')]


RECORDED = ["python", "-c", "import steadyrun\nwith steadyrun.record('run') as run:\n    run.log(loss=1.0)"]
SHOWN: dict[str, list[Command]] = {
    "steadyrun": [RECORDED, ["steadyrun", "dashboard", "run"], ["steadyrun", "explain", "C4.1"]],
    "steadyrun[torch]": [program("README.md", "import torch")],
    "steadyrun[tutor]": [["steadyrun", "demo", "log-of-zero", "--steps", "30"]],
    "steadyrun[transformers]": [program("docs/integrations/transformers.md")],
    "steadyrun[transformers] trl": [program("docs/integrations/trl.md")],
    "steadyrun[accelerate]": [program("docs/integrations/accelerate.md")],
    "steadyrun[lightning]": [program("docs/integrations/lightning.md")],
    "steadyrun[keras]": [program("docs/integrations/keras.md")],
    "steadyrun[jax]": [program("docs/integrations/jax.md")],
    "steadyrun[tensorboard]": [forwarding("tensorboard"), ["steadyrun", "import", "experiments/my-run/tensorboard"]],
    "steadyrun[wandb]": [program("docs/import/wandb.md"), ["steadyrun", "import", "wandb"], forwarding("wandb")],
    "steadyrun[mlflow]": [program("docs/import/mlflow.md"), ["steadyrun", "import", "mlflow.db"], forwarding("mlflow")],
    "steadyrun[alerts]": [program("docs/alerts.md")],
    "steadyrun[mcp]": [["steadyrun", "mcp", "."]],
    "steadyrun[png]": [RECORDED, ["steadyrun", "dashboard", "run", "--png"]],
    "steadyrun[ray]": [workers("ray")],
    "steadyrun[submitit]": [workers("slurm:local")],
    "steadyrun[gpu]": [["python", "-c", "import pynvml"]],
}


def documented() -> dict[str, str]:
    """Each line once, and a file that has it. Messages that fill in the extra's name repeat a line of a page."""
    found: dict[str, str] = {"steadyrun": "pyproject.toml"}
    for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]:
        for name, more in LINE.findall(file.read_text(encoding="utf-8")):
            found.setdefault(name + more, str(file.relative_to(ROOT)))
    return found


def tried(line: str, wheel: Path, place: Path) -> str:
    """Install the line into an empty environment and do what is shown with it; what went wrong, if anything did."""
    begun = time.perf_counter()
    environment = os.environ | {
        "PATH": f"{place / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db",
    }
    environment.pop("PYTHONPATH", None)  # the installed package is meant, not the checkout
    name, *more = line.split()
    asked = [f"{name} @ {wheel.as_uri()}", *more]
    interpreter = str(place / "env" / "bin" / "python")
    commands = [
        [sys.executable, "-m", "venv", "--without-pip", str(place / "env")],
        [*PIP, "--python", interpreter, "install", "--no-compile", "-c", str(ROOT / "constraints.txt"), *asked],
        *SHOWN[line],
    ]
    (place / "work").mkdir()
    for command in commands:
        done = subprocess.run(
            command, cwd=place / "work", env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            return f"{' '.join(command)[:200]} left with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
    print(f"ok  pip install {line}  ({time.perf_counter() - begun:.0f} s)", flush=True)
    return ""


def main() -> int:
    lines = documented()
    if unknown := [f"{line} ({file})" for line, file in lines.items() if line not in SHOWN]:
        print(f"not tried, add what they are for to SHOWN in {Path(__file__).name}: {', '.join(unknown)}")
        return 1

    def in_a_folder(line: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return tried(line, wheel, Path(folder))

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        subprocess.run([*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        order = [line for line in SHOWN if line in lines and all(word in line for word in sys.argv[1:])]
        problems = {line: said for line, said in zip(order, pool.map(in_a_folder, order), strict=True) if said}
    for line, said in problems.items():
        print(f"\nFAILED  pip install {line}  (as in {lines[line]})\n{said}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
