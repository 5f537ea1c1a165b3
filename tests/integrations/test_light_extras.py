"""Lightning, Keras and JAX may be absent: the message names the extra to install."""

import importlib
import sys

import pytest

FRAMEWORKS = {
    "lightning": ["lightning", "lightning.pytorch", "pytorch_lightning"],
    "keras": ["keras"],
    "jax": ["jax", "jax.numpy"],
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_absent_framework_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in [each for each in sys.modules if each.startswith(f"steadyrun.integrations.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    for package in FRAMEWORKS[name]:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'steadyrun\[{name}\]'"):
        importlib.import_module(f"steadyrun.integrations.{name}")
