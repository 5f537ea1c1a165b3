"""torch-audit 0.3.0: its zero-touch mode, at every tenth optimizer step; its checks of static and initial state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch_audit import autopatch

from diagnosis.tools.findings import Finding, ranked
from diagnosis.tools.hooks import Hooked

LEVEL = {"INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}


class Watcher:
    def __init__(self, _folder: Path) -> None:
        self.found: list[Finding] = []

    def record(self, folder: Path, config: dict[str, Any] | None = None, **settings: Any) -> Audited:
        return Audited(self, folder, config, **settings)

    def findings(self) -> list[Finding]:
        seen: dict[str, Finding] = {}
        for each in ranked(self.found):
            seen.setdefault(each.name, each)
        return list(seen.values())


class Audited(Hooked):
    def __init__(self, watcher: Watcher, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.watcher, self.auditor = watcher, None

    def start(self, model: Any, optimizer: Any) -> None:
        self.auditor = autopatch(model, optimizer=optimizer, every_n_steps=10, reporters=[])

    def finish(self) -> None:
        if self.auditor is None:
            return
        for each in self.auditor.finish().findings:
            if not each.rule_id.startswith("TA2"):  # hints about speed
                self.watcher.found.append(Finding(each.rule_id, LEVEL[each.severity.value], each.message, each.step))
        self.auditor.unpatch()
