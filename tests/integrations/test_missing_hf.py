"""Without the framework an integration says what to install."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("framework", "module"),
    [("transformers", "steadyrun.integrations.transformers"), ("accelerate", "steadyrun.integrations.accelerate")],
)
def test_a_missing_framework_is_named(framework: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each == framework or each.startswith(f"{framework}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'steadyrun\[{framework}\]'"):
        importlib.import_module(module)
