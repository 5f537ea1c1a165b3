"""The rare-token spike and its remedies, seed by seed: how high, how large the gradient, how long, and what is left.

python benchmarks/remedies.py --steps 1200 --seeds 1 2 3 4 5
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
import torch

from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, SIGMAS, WINDOW
from steadyrun.signals.clipping import suggested_clip
from steadyrun.signals.run_signals import Points
from steadyrun.signals.spikes import spikes
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.recipe import Recipe
from steadyrun.tutor.train import train


def measured(recipe: Recipe) -> tuple[dict[str, float | None], np.ndarray]:
    """The largest spike of a run, and the gradient norms of all its steps."""
    norms: list[float] = []
    result = train(recipe, on_step=lambda _step, _loss, _lr, norm: norms.append(norm.item()))
    losses, grads = np.array(result.losses), np.array(norms)
    found = spikes(Points("loss", np.arange(len(losses), dtype=float), losses), WINDOW, SIGMAS, BACK, SETTLED)
    worst = max(found, key=lambda spike: spike.sigmas, default=None)
    late = 3 * recipe.config.steps // 4
    row: dict[str, float | None] = {
        "val_loss": round(result.val_losses[-1], 3),
        "largest_norm_late": round(float(grads[late - 100 : late + 100].max()), 2),
    }
    if worst is not None:
        before = grads[worst.start - WINDOW : worst.start].mean()
        row |= {
            "step": worst.start_step,
            "before": round(worst.level, 3),
            "peak": round(worst.value, 2),
            "deviations": round(worst.sigmas, 1),
            "gradient_times": round(float(grads[worst.start : worst.peak + 1].max() / before), 1),
            "back_after": worst.length,
        }
    return row, grads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--apart", action="store_true", help="each remedy alone, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        settings = {"steps": arguments.steps, "seed": seed}
        faulty = load_recipe("rare-token-spike", **settings)
        row, norms = measured(faulty)
        late = 3 * arguments.steps // 4
        clip = suggested_clip(norms[late - 200 : late], 0.9)
        programs = {"remedied": load_recipe("rare-token-spike", remedied=True, clip=clip, **settings)}
        if arguments.apart:
            programs["clip alone"] = replace(faulty, config=replace(faulty.config, clip=clip))
            programs["batches alone"] = replace(programs["remedied"], config=faulty.config)
        print(json.dumps({"seed": seed, "program": "fault", "clip": None, **row}), flush=True)
        for name, recipe in programs.items():
            print(
                json.dumps({"seed": seed, "program": name, "clip": recipe.config.clip, **measured(recipe)[0]}),
                flush=True,
            )


if __name__ == "__main__":
    main()
