"""Lines in the style of public training programs: what a person reads in them is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from imported import points
from public_forms import BY_EPOCH, FORMS, WITHIN, printed


@pytest.mark.parametrize("name", FORMS)
def test_lines_of_public_programs(name: str, tmp_path: Path) -> None:
    form, expected = FORMS[name]
    (tmp_path / "train.log").write_text(printed(form), encoding="utf-8", newline="")
    found = points(tmp_path / "train.log")
    for series, (steps, values) in expected.items():
        if values:
            assert [value for _, value in found[series]] == pytest.approx(BY_EPOCH[values], rel=2e-3, abs=1e-4)
        if steps:
            assert [step for step, _ in found[series]] == WITHIN[steps]
        assert series in found
