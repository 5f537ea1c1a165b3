"""The verdicts on a GPU: healthy and faulty runs of the tutor in bf16 and fp16, recorded there, monitor on.

    python benchmarks/gpu_verdicts.py            (needs torch with CUDA, and tokenizers; --device cpu for comparison)

Prints one line per run and fails where a verdict is not the one that the same program gets on the CPU, or where
the monitor and the check disagree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import steadyrun
from steadyrun.questions.form import FAULT
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.train import train_recorded

RUNS = (
    ("healthy", "bf16"),
    ("healthy", "fp16"),
    ("log-of-zero", "bf16"),
    ("broken-mask", "bf16"),
    ("no-warmup", "bf16"),
    ("fp16-overflow-constant-scale", "fp16"),
    ("lr-jump", "fp16"),
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--steps", type=int, default=600)
    given = options.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for fault, dtype in RUNS:
            root = Path(folder) / f"{fault}-{dtype}"
            train_recorded(load_recipe(fault, dtype=dtype, device=given.device, steps=given.steps, seed=1), root)
            report = steadyrun.check(root, all=True)
            leaf = report.leaf.question.code if report.leaf is not None else ""
            faults = {asked.question.code for asked in report.walk.path if asked.answer.kind == FAULT}
            view = steadyrun.open_run(root)
            announced = {event.fields["code"]: event.fields["noticed"] for event in view.events("fault")}
            right = leaf == FAULTS[fault].leaf and set(announced) == faults
            wrong += not right
            skipped = int(sum(view.series("skipped").values > 0)) if "skipped" in view.names() else 0
            sentence = report.leaf.answer.message if report.leaf is not None else "no fault"
            print(f"{'ok ' if right else 'NOT'} {fault} in {dtype}: {report.verdict} {leaf}; skipped steps {skipped};")
            print(f"    announced live (code: step) {announced}; {sentence}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
