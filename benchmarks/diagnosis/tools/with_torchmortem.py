"""torchmortem 0.1.1: an autopsy with its default sampling, told of every step right after the optimizer's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchmortem import Autopsy

from diagnosis.tools.findings import Finding, ranked
from diagnosis.tools.hooks import Hooked

LEVEL = {"INFO": "info", "WARNING": "warning", "CRITICAL": "error"}


class Watcher:
    def __init__(self, _folder: Path) -> None:
        self.found: list[Finding] = []

    def record(self, folder: Path, config: dict[str, Any] | None = None, **settings: Any) -> Examined:
        return Examined(self, folder, config, **settings)

    def findings(self) -> list[Finding]:
        seen: dict[str, Finding] = {}
        for each in ranked(self.found):
            seen.setdefault(each.name, each)
        return list(seen.values())


class Examined(Hooked):
    def __init__(self, watcher: Watcher, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.watcher: Watcher = watcher
        self.autopsy: Any = None

    def start(self, model: Any, optimizer: Any) -> None:
        self.autopsy = Autopsy(model, optimizer=optimizer)
        self.autopsy.attach()

    def after_step(self) -> None:
        self.autopsy.step(loss=self.loss)

    def finish(self) -> None:
        if self.autopsy is None:
            return
        self.autopsy.detach()
        report = self.autopsy.get_report()
        for insight in report.insights:
            self.watcher.found.append(Finding(insight.title, "error", insight.summary))
        for each in report.findings:
            name = each.title.split(" in ")[0]
            self.watcher.found.append(Finding(name, LEVEL[each.severity.name], each.summary, each.step_range[0]))
