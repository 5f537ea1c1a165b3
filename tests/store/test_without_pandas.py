"""Between numpy and Arrow without pandas, which Arrow imports for every conversion if it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from steadyrun.store import segment


@pytest.mark.parametrize("values", [[1.0, None, float("nan"), -2.5], [None, None], [], [0.0] * 70 + [None]])
def test_arrays_become_what_arrow_makes_of_them(values: list[float | None]) -> None:
    """Slices have offsets in their buffers."""
    array = pa.array(values, pa.float64())
    for part in (array, array.slice(1), array.slice(0, max(0, len(array) - 1))):
        np.testing.assert_array_equal(segment.to_numpy(part), part.to_numpy(zero_copy_only=False))
        assert segment.is_present(part).tolist() == part.is_valid().to_pylist()
    whole = pa.array([3, -1, 2**60], pa.int64()).slice(1)
    assert segment.to_numpy(whole).tolist() == [-1, 2**60]


def test_writing_and_reading_need_no_pandas(tmp_path: Path) -> None:
    """The import would take a third of a second in the middle of training."""
    (tmp_path / "pandas.py").write_text("raise AssertionError('pandas was imported')")
    program = """if True:
        import numpy, steadyrun
        with steadyrun.record('run') as run:
            for step in range(50):
                run.log(**{'score': 1, 'mixed': step if step % 2 else numpy.float32(0.5), 'odd': numpy.float64(2)})
                run.step(1.0 / (step + 1))
        assert len(steadyrun.open_run('run').series('mixed')) == 50"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
