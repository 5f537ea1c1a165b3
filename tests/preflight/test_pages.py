"""What probes say of themselves."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from steadyrun.preflight import ON_RANKS, PROBES
from steadyrun.questions.aliases import code_of
from steadyrun.questions.form import FAULT, NOTE, PASS, Question
from steadyrun.report.limits import everything
from steadyrun.report.question_page import SECTIONS, page_as_dict

CODES = everything()


@pytest.mark.parametrize("probe", (PROBES | ON_RANKS).values(), ids=PROBES | ON_RANKS)
def test_a_probe_is_complete(probe: Question) -> None:
    assert probe.asks.endswith("?")
    wanted = {PASS, NOTE} if probe.code == "P5.5" else {PASS, FAULT}  # what is not repeatable may be meant so
    assert {outcome.answer for outcome in probe.outcomes} >= wanted
    for outcome in probe.outcomes:
        assert outcome.fix or outcome.answer != FAULT, outcome.name
        for named in outcome.explains:
            trees = {code[0] for code in CODES}
            code = named.partition(":")[0]  # an outcome is named with its question
            assert code_of(code) in CODES or named in SECTIONS or named in trees, named
    for threshold in probe.thresholds:
        assert threshold.meaning
        assert threshold.decision
    for need in page_as_dict(probe)["needs"]:
        assert need["how_to_record"], need


def test_every_probe_is_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "preflight.md").read_text()
    assert set(re.findall(r"\| \[([ACPS]\d\.\d+)\]", guide)) == set(PROBES)
    assert set(re.findall(r"\| \[(R\d\.\d+)\]", guide)) == set(ON_RANKS) - set(PROBES)


def test_pages_are_read_without_torch() -> None:
    program = (
        "import sys; from steadyrun.report.limits import everything; everything(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
