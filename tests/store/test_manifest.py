"""What cannot be opened says why and what to do."""

import json
from pathlib import Path

import pytest

import steadyrun
from steadyrun.store.jsonio import dumps


def test_newer_schema(tmp_path: Path) -> None:
    steadyrun.record(tmp_path).close()
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with pytest.raises(steadyrun.NewerSchemaError, match=r"schema 99.*pip install --upgrade"):
        steadyrun.open_run(tmp_path)
    with pytest.raises(steadyrun.NewerSchemaError):
        steadyrun.record(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("", "cannot read"), ("[1]", "no schema"), ("{}", "no schema"), ("{", "cannot read")]
)
def test_not_a_manifest(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(steadyrun.RunDirectoryError, match=message):
        steadyrun.open_run(tmp_path)


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.RunDirectoryError, match=r"no manifest\.json"):
        steadyrun.open_run(tmp_path)
    with pytest.raises(steadyrun.RunDirectoryError, match="not a folder"):
        steadyrun.open_run(tmp_path / "nothing")


def test_json_is_valid_everywhere() -> None:
    text = dumps({"a": float("nan"), "b": [float("inf"), -float("inf")], "c": Path("x"), "d": {1, 2}, 3: None})
    assert json.loads(text) == {"a": "nan", "b": ["inf", "-inf"], "c": "x", "d": [1, 2], "3": None}
