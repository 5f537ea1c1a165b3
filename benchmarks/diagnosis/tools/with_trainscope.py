"""trainscope 1.8.1: told of every step before the optimizer's, default detector; then its post-mortem report."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from trainscope import TrainScope
from trainscope.core.config import TrainScopeConfig
from trainscope.report import build_run_report

from diagnosis.tools.findings import Finding
from diagnosis.tools.hooks import Hooked

ODD_STEPS = (150, 200)  # where the programs with one odd batch have it
SIGNALS = {"grad_norm": "gradient norm", "kurtosis": "kurtosis of activations", "concentration": "routing"}


class Watcher:
    def __init__(self, folder: Path) -> None:
        self.folder, self.attempts = folder, 0

    def record(self, folder: Path, config: dict[str, Any] | None = None, **settings: Any) -> Scoped:
        self.attempts += 1
        return Scoped(self, folder, config, **settings)

    def findings(self) -> list[Finding]:
        found: list[Finding] = []
        for number in range(1, self.attempts + 1):
            report = asyncio.run(build_run_report(self.folder / f"attempt-{number}"))
            for step in report["spike_steps"]:
                odd = any(0 <= step - place <= 2 for place in ODD_STEPS)
                name = "spike at the odd batch" if odd else "spike"
                found.append(Finding(name, "warning", f"loss spike at step {step}", step))
            signature = report["signal_signature"]
            if signature["explosion_step"] is not None:
                step = signature["explosion_step"]
                found.append(Finding("explosion", "error", f"the loss exploded at step {step}", step))
            # Signals without a spike or an explosion are context in its report, not a warning.
            fired = [name for name in signature["fired"] if name != "loss"]
            found += [Finding(name, "info", f"{SIGNALS.get(name, name)} crossed its margin") for name in fired]
        return found


class Scoped(Hooked):
    def __init__(self, watcher: Watcher, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.watcher: Watcher = watcher
        self.scope: Any = None

    def start(self, model: Any, optimizer: Any) -> None:
        logging.getLogger("trainscope").setLevel(logging.ERROR)
        settings = TrainScopeConfig(run_dir=str(self.watcher.folder), run_name=f"attempt-{self.watcher.attempts}")
        self.scope = TrainScope(model, optimizer, config=settings).attach()

    def before_step(self) -> None:
        self.scope.step(self.loss)

    def finish(self) -> None:
        if self.scope is not None:
            self.scope.detach()
