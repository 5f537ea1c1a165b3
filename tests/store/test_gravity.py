"""One order of incidents: replay, the post-mortem and the clip threshold choose the same one."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from steadyrun.replay import incident
from steadyrun.store.joint_incidents import gravest, gravity
from steadyrun.store.jsonio import dumps

KINDS = ["non-finite", "exception", "out-of-memory", "fault", "rollback", "asked", "spike", "of-another-version"]
SEVERITIES = st.one_of(st.none(), st.floats(0, 100), st.sampled_from([math.inf, math.nan]))
INCIDENTS = st.dictionaries(
    st.integers(0, 20) | st.sampled_from([9_999_999, 10_000_000, 10_000_001]),
    st.tuples(st.sampled_from(KINDS), SEVERITIES),
    min_size=1,
    max_size=7,
)


def write(run: Path, step: int, kind: str, severity: float | None) -> None:
    content: dict[str, Any] = {"schema": 1, "step": step, "kind": kind, "why": "", "missing": "", "batches": []}
    folder = run / "incidents" / f"step-{step:07d}"
    folder.mkdir(parents=True)
    (folder / "incident.json").write_text(dumps(content | ({} if severity is None else {"severity": severity})))


@settings(max_examples=200)
@given(INCIDENTS)
def test_replay_and_post_mortem_choose_the_same_incident(incidents: dict[int, tuple[str, float | None]]) -> None:
    with TemporaryDirectory() as folder:
        run = Path(folder)
        for step, (kind, severity) in incidents.items():
            write(run, step, kind, severity)
        chosen = gravest(run)
        assert chosen is not None
        assert incident.choose(run).step == chosen.incident["step"]


def test_the_order() -> None:
    assert [gravity(kind, math.inf, 0)[0] for kind in KINDS] == list(range(len(KINDS)))
    assert gravity("spike", 9.0, 5) < gravity("spike", 8.0, 1)
    assert gravity("spike", 9.0, 1) < gravity("spike", 9.0, 5)
    assert gravity("rollback", math.inf, 9) < gravity("asked", math.inf, 1)
    for unknown in (None, "?", math.nan, [], 10**400):
        assert gravity("spike", unknown, 5) == gravity("spike", math.inf, 5)
