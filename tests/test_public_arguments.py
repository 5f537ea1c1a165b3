"""The public surface: arguments named alike, old names accepted for one version, nothing shadowed."""

from __future__ import annotations

import builtins
import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest

import steadyrun
from steadyrun.data import StratifiedBatchSampler
from steadyrun.renamed_arguments import renamed

# Other words for what has a name already.
REPLACED = {
    "val_batches": "val_loader",
    "dataloader": "loader",
    "train_loader": "loader",
    "data_loader": "loader",
    "valid_loader": "val_loader",
    "sample_every": "every",
    "interval": "every",
    "cadence": "every",
    "frequency": "every",
    "progress": "on_probe",
    "run_dir": "run",
    "directory": "run",
}


def public_callables() -> dict[str, Any]:
    """Every function, class and public method of the surface."""
    found: dict[str, Any] = {}
    for name in [*steadyrun.__all__, "StratifiedBatchSampler"]:
        thing = getattr(steadyrun, name, StratifiedBatchSampler)
        if isinstance(thing, type) and issubclass(thing, Exception):
            continue
        found[name] = thing
        for method, function in vars(thing).items() if isinstance(thing, type) else ():
            if inspect.isfunction(function) and not method.startswith("_"):
                found[f"{name}.{method}"] = function
    return found


@pytest.mark.parametrize("name", public_callables())
def test_arguments_are_named_alike_and_shadow_no_builtin(name: str) -> None:
    arguments = inspect.signature(public_callables()[name]).parameters
    shadowing = set(arguments) & set(dir(builtins))
    other = {argument: REPLACED[argument] for argument in arguments if argument in REPLACED}
    assert (shadowing, other) == (set(), {})


@pytest.mark.parametrize("name", public_callables())
def test_every_public_name_has_a_docstring_whose_first_line_is_a_sentence(name: str) -> None:
    first = (inspect.getdoc(public_callables()[name]) or "").partition("\n")[0]
    assert first[:1].isupper() or first[:1] == "`", first
    assert not first.startswith(("What ", "Where ", "How ", "Whom "))


def test_the_surface_is_listed() -> None:
    assert set(dir(steadyrun)) == {*steadyrun.__all__, "__version__"}
    assert {"check", "postmortem", "verify", "replay", "trial", "preflight"} <= set(dir(steadyrun))


@renamed(old="new")
def doubled(new: int = 1) -> int:
    return 2 * new


def test_an_old_name_is_accepted_with_a_warning_that_names_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="'old' is now 'new'") as caught:
        assert doubled(old=3) == 6
    assert caught[0].filename == __file__
    assert list(inspect.signature(doubled).parameters) == ["new"]


def test_the_new_name_warns_of_nothing_and_both_are_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (doubled(), doubled(2), doubled(new=3)) == (2, 4, 6)
    with pytest.raises(steadyrun.UsageError, match="old name of 'new'"):
        doubled(new=1, old=2)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with steadyrun.record(tmp_path / "run") as run:
        for step in range(30):
            run.log(loss=1 / (1 + step))
    return tmp_path / "run"


def test_old_names_of_the_surface_do_what_the_new_ones_do(recorded: Path, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="'everything'"):
        old = steadyrun.check(recorded, all=True)
    assert old.to_dict() == steadyrun.check(recorded, everything=True).to_dict()
    with pytest.warns(DeprecationWarning, match="'run'"):
        assert steadyrun.open_run(path=recorded).root == recorded
    log = tmp_path / "metrics.csv"
    log.write_text("step,train/ce\n" + "".join(f"{n},{1 / (n + 1)}\n" for n in range(9)))
    given: dict[str, Any] = {"format": "csv", "map": {"loss": "train/ce"}, "run": 1}
    with pytest.warns(DeprecationWarning, match="'log_format'|'mapping'|'number'") as caught:
        view = steadyrun.import_log(log, tmp_path / "imported", **given)
    assert len(caught) == 3
    assert len(view.series("loss")) == 9
