"""The picture is drawn of whatever a run holds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postmortem_cases import case_of, incident, spiky
from samples import HOSTILE
from synthetic import Synthetic

from steadyrun.postmortem.document import compose
from steadyrun.postmortem.document_files import png

ODD = {
    "spike": spiky(**{"class_loss/a": np.ones(400), f"activation/$x_{HOSTILE}": np.ones(400)}),
    "one point": Synthetic(loss=[2.0]),
    "no loss": Synthetic(grad_norm=[1.0, 2.0]),
    "nothing finite": Synthetic(loss=[float("nan")] * 5, grad_norm=[float("inf")] * 5),
    "huge and negative": Synthetic(loss=[1e300, -1e300, 0.0, 1.0], **{"lr/0": [0.0, 0.0, 0.0, 0.0]}),
    "sparse": Synthetic(loss=([0, 5000], [2.0, 9.0])),
}


@pytest.mark.parametrize("name", ODD)
def test_any_run(name: str, tmp_path: Path) -> None:
    source = ODD[name]
    last = max(int(source.series(name).steps[-1]) for name in source.names())
    assert png(compose(case_of(source, tmp_path, min(last, 200)))).startswith(b"\x89PNG")


@pytest.mark.parametrize("losses", [[2.0, 12.0, "nan"], ["nan", "inf"], [1.0], []])
def test_any_histogram(losses: list[Any], tmp_path: Path) -> None:
    incident(tmp_path, 200, batch={"token_losses": losses}, incident={"step": 200, "kind": "spike", "why": HOSTILE})
    assert png(compose(case_of(spiky(), tmp_path))).startswith(b"\x89PNG")
