"""What the document says, and never says, of made-up runs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postmortem_cases import case_of, experiments, incident, replayed, spiky
from samples import HOSTILE
from synthetic import Synthetic

from steadyrun.errors import UsageError
from steadyrun.postmortem.causes.in_walk import _CHANGES, is_symptom
from steadyrun.postmortem.document import Document, compose, to_dict
from steadyrun.postmortem.document_files import add_lesson
from steadyrun.postmortem.document_markdown import markdown
from steadyrun.postmortem.remedies import lower_than
from steadyrun.preflight import PROBES
from steadyrun.questions.form import FAULT, SUSPECT, Answer
from steadyrun.records import Event
from steadyrun.report.file_formats import dumps
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked

SECTIONS = ("Symptoms", "Hypotheses", "Discriminating evidence", "Root cause", "Remediation", "Verification", "Lesson")


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## \d\. ", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


def whole(document: Document) -> None:
    """All seven sections are there and say something, in both forms."""
    text = markdown(document, "step.json", None)
    bodies = sections(text)
    assert [name for name in SECTIONS if any(title.startswith(name) for title in bodies)] == list(SECTIONS)
    assert all(len(body) > 10 for body in bodies.values()), bodies
    form = json.loads(dumps(to_dict(document)))
    for key in ("symptoms", "hypotheses", "evidence", "remediation", "lesson", "checklist"):
        assert form[key], key
    assert form["verification"]["expectations"]
    assert form["root_cause"]["sentence"]
    assert form["root_cause"]["known"] or form["root_cause"]["would_decide"]
    assert all(
        hypothesis["supported_by"] or hypothesis["contradicted_by"] or hypothesis["standing"] == "open"
        for hypothesis in form["hypotheses"]
    )


def document_of(run: Path, source: Synthetic, step: int | None = None) -> Document:
    document = compose(case_of(source, run, step))
    whole(document)
    return document


def top(document: Document) -> str:
    return document.hypotheses[0].cause.key


def standing(document: Document, key: str) -> str:
    return next(hypothesis.standing for hypothesis in document.hypotheses if hypothesis.cause.key == key)


def test_a_spike_without_any_proof_has_no_cause(tmp_path: Path) -> None:
    document = document_of(tmp_path, spiky())
    assert not document.root.known
    assert document.root.sentence.startswith("Not known yet")
    assert top(document) == "unusual-batch"
    assert any("run.watch the loss_fn" in step for step in document.root.would_decide)
    assert not any("steadyrun trial" in step for step in document.root.would_decide)
    assert "The incident was not replayed" in markdown(document, "x.json", None)
    assert document.case.moment.peak == 200
    symptom = {shown_symptom.key: shown_symptom for shown_symptom in document.symptoms}
    assert symptom["peak_loss"].value == 5.0
    assert symptom["grad_norm"].value == 47.2
    assert 2.0 < symptom["pre_loss"].value < 2.4
    assert 2.0 < symptom["recovery_loss"].value < 2.4


def test_numbers_only_in_the_symptoms(tmp_path: Path) -> None:
    document = document_of(tmp_path, spiky())
    words = " ".join(f"{symptom.label} {symptom.words}" for symptom in document.symptoms)
    assert not re.search(r"\b(cause|because|likely|probably|suspect|bug)\b", words)


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [
        ("data", "unusual-batch"),
        ("learning-rate", "learning-rate"),
        ("optimizer-state", "optimizer-state"),
        ("precision", "precision"),
        ("model", "model-numerics"),
    ],
)
def test_experiments_decide(tmp_path: Path, verdict: str, cause: str) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments(verdict))
    document = document_of(tmp_path, spiky())
    assert document.root.known
    assert (document.root.by, document.root.cause, top(document)) == ("experiments", cause, cause)
    assert f"only another {verdict}" in document.root.sentence
    assert document.remedies[0].purpose in {"fix", "containment"}
    others = {"unusual-batch", "learning-rate", "optimizer-state", "precision"} - {cause}
    assert {standing(document, cause) for cause in others} == {"ruled out"}
    assert "| another data | data |" in markdown(document, "x.json", None)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"verdict": "undecided", "why": "two factors help."}, "Two factors help."),
        ({"interaction": "the batch and the learning rate together."}, "The batch and the learning rate together."),
        ({"verdict": "not-reproducible", "why": "it does not come back."}, "It does not come back."),
    ],
)
def test_what_experiments_leave_open_is_said(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("data") | changed)
    document = document_of(tmp_path, spiky())
    assert not document.root.known
    assert document.root.sentence.startswith("Not known yet")
    assert sentence in document.root.sentence
    assert not [remedy for remedy in document.remedies if remedy.purpose == "fix"]


def jumping() -> Synthetic:
    """A spike after one step at a hundred times the declared learning rate."""
    rates = np.full(400, 3e-4)
    rates[199] = 3e-2
    source = spiky(**{"lr/0": rates})
    source.manifest["config"] = {"schedule": "constant", "lr_max": 3e-4, "total_steps": 400, "warmup_steps": 0}
    return source


def test_two_proofs_that_disagree_are_no_cause(tmp_path: Path) -> None:
    source = jumping()
    assert document_of(tmp_path, source).root.cause == "learning-rate"
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("data"))
    document = document_of(tmp_path, source)
    assert not document.root.known
    assert "different causes" in document.root.sentence


def test_a_fault_of_the_walk_stands_beside_undecided_experiments(tmp_path: Path) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("undecided", why="no single change removes it"))
    document = document_of(tmp_path, jumping())
    assert (document.root.known, document.root.by, document.root.cause) == (True, "walk", "learning-rate")
    assert "by experiment (undecided): no single change removes it" in document.root.sentence


def test_only_what_was_tested_is_ruled_out(tmp_path: Path) -> None:
    tests = experiments("model")
    rates = [row for row in tests["table"] if row["group"] == "learning-rate"]
    rates[0] |= {"gone": None, "note": "the loss is infinite before any update"}
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=culprit()), experiments=tests)
    document = document_of(tmp_path, broken())
    assert standing(document, "learning-rate") == "not tested"
    assert standing(document, "optimizer-state") == "ruled out"
    text = markdown(document, "x.json", None, with_checklist=True)
    assert "Not tested by experiment: experiment: with another learning-rate: not tested; the loss is infinite" in text
    assert "| another learning-rate | learning-rate | nan | 1 | not tested | the loss is infinite before any" in text
    assert "not tested: the loss is infinite before any update" in sections(text)["Lesson"]  # the checklist is below it
    tests["table"].append(rates[0] | {"factor": "lr/10", "gone": False, "note": ""})
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=culprit()), experiments=tests)
    assert standing(document_of(tmp_path, broken()), "learning-rate") == "ruled out"
    tests["table"].append(rates[0] | {"factor": "warmup", "gone": True, "note": ""})
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=culprit()), experiments=tests)
    assert standing(document_of(tmp_path, broken()), "learning-rate") not in {"ruled out", "not tested"}


def test_the_same_batch_elsewhere_counts_the_other_way_round(tmp_path: Path) -> None:
    tests = experiments("undecided")
    row = {"factor": "batch-elsewhere", "group": "data", "words": "the same batch at an earlier step", "gone": False}
    tests["table"] = [row]
    incident(tmp_path, 200, replay=replayed(), experiments=tests)
    assert standing(document_of(tmp_path, spiky()), "unusual-batch") == "supported"
    tests["table"] = [row | {"gone": True}]  # the batch alone is not enough; whether it is needed was not tested
    incident(tmp_path, 200, replay=replayed(), experiments=tests)
    assert standing(document_of(tmp_path, spiky()), "unusual-batch") != "ruled out"
    tests["table"] += [{"factor": "other-batch", "group": "data", "words": "another batch", "gone": False}]
    incident(tmp_path, 200, replay=replayed(), experiments=tests)
    assert standing(document_of(tmp_path, spiky()), "unusual-batch") == "ruled out"


def test_one_change_of_a_group_that_helps_is_enough(tmp_path: Path) -> None:
    tests = experiments("learning-rate")
    tests["table"].append({"factor": "lr/3", "group": "learning-rate", "words": "a third of it", "gone": False})
    incident(tmp_path, 200, replay=replayed(), experiments=tests)
    document = document_of(tmp_path, spiky())
    rate = next(hypothesis for hypothesis in document.hypotheses if hypothesis.cause.key == "learning-rate")
    assert rate.standing == "proved"
    assert not [sign for sign in rate.signs if "a third" in sign.observation.text]


@pytest.mark.parametrize(
    ("factor", "change"), [("lr/3", "lr_max: 3e-4 -> 1e-4"), ("lr/10", "-> 3e-5"), ("warmup", "warmup_steps: ")]
)
def test_the_rate_is_lowered_as_far_as_helped(tmp_path: Path, factor: str, change: str) -> None:
    tests = experiments("learning-rate")
    tests["table"] = [{"factor": factor, "group": "learning-rate", "words": factor, "gone": True}]
    incident(tmp_path, 200, replay=replayed(), experiments=tests)
    document = document_of(tmp_path, spiky())
    assert document.remedies[0].purpose == "fix"
    assert change in document.remedies[0].change


def culprit(**parts: Any) -> dict[str, Any]:
    defaults = {
        "stage": "loss",
        "module": "",
        "operation": "log",
        "value": "nan",
        "where": "train.py:12 in loss_fn",
        "message": "In the loss function, log of zero.",
        "fix": "Use log_softmax.",
    }
    return defaults | parts


def broken(steps: int = 300, at: int = 200) -> Synthetic:
    source = spiky(steps=steps, at=150, height=2.4)
    loss, norm = source.series("loss").values, source.series("grad_norm").values
    loss[at:] = np.nan
    norm[at - 1 :] = np.nan
    return source


def test_the_hunt_proves_a_cause(tmp_path: Path) -> None:
    violent = {"step": 199, "parameter": "head.weight", "ratio": "nan", "typical": 0.002, "times": "nan"}
    precision = {"dtype": "float32", "outcome": "structural", "message": "in float32 already"}
    replay = replayed(culprit=culprit(), violent=violent, precision=precision, first_bad=199)
    incident(tmp_path, 200, "non-finite", replay=replay)
    document = document_of(tmp_path, broken())
    assert (document.root.by, document.root.cause) == ("replay", "model-numerics")
    assert "train.py:12" in document.root.sentence
    assert "train.py:12 in loss_fn: x.log()" in document.remedies[0].change
    assert standing(document, "precision") == "ruled out"
    text = markdown(document, "x.json", None)
    assert "wrote a non-finite value into a parameter" in text
    assert "head.weight becomes non-finite" in text
    assert "did not recover: NaN" in text
    assert any("incidents/step-0000200/checkpoint.safetensors" in remedy.change for remedy in document.remedies)


def test_examples_that_are_not_finite_are_named_and_left_out(tmp_path: Path) -> None:
    rows = [{"row": 3, "dataset_index": 323, "file": "cat.png"}, {"row": 5, "dataset_index": None, "file": None}]
    guilty = culprit(stage="data", module="image", operation="", examples=[*rows, {"row": ""}])
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=guilty, first_bad=200), batch={"step": 200})
    document = document_of(tmp_path, broken())
    fix = document.remedies[0]
    assert document.root.cause == "unusual-batch"
    assert "row 3 of the batch (dataset index 323, cat.png), row 5 of the batch, or repair" in fix.text
    assert "torch.isfinite(each['image']).all()" in fix.change
    assert "row 3 of the batch (dataset index 323, cat.png)" in document.lesson
    text = markdown(document, "x.json", None, with_checklist=True)
    assert not [word for word in ("tratified", "token", "clip: ") if word in text]


def test_an_overflow_of_float32_is_no_cause_by_itself(tmp_path: Path) -> None:
    guilty = culprit(operation="mse_loss", cause="float32-overflow", fix="The numbers have exploded.")
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=guilty, first_bad=200))
    document = document_of(tmp_path, broken())
    assert not document.root.known
    assert standing(document, "model-numerics") == "supported"


def test_a_stable_form_in_half_precision_is_one_there(tmp_path: Path) -> None:
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=culprit(dtype="float16"), first_bad=200))
    assert "clamp_min(1e-4)" in document_of(tmp_path, broken()).remedies[0].change


@pytest.mark.parametrize("violent", [None, 145])
def test_a_checkpoint_of_torn_weights_is_not_clean(tmp_path: Path, violent: int | None) -> None:
    change = None if violent is None else {"step": violent, "parameter": "w", "ratio": 9.0, "typical": 0.1}
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=culprit(), violent=change))
    source = broken()
    source._events += [Event("checkpoint", step, 0.0, fields={"path": f"ckpt-{step}.pt"}) for step in (140, 180)]
    changes = [remedy.change for remedy in document_of(tmp_path, source).remedies]
    assert f"resume from: ckpt-{180 if violent is None else 140}.pt" in changes


def test_a_replay_that_is_not_the_same_proves_nothing(tmp_path: Path) -> None:
    differences = [{"what": "threads", "message": "4 threads then, 1 now"}]
    proof = {"verdict": "not-reproducible", "compared": 9, "largest": 0.5, "differences": differences}
    incident(tmp_path, 200, "non-finite", replay=replayed(proof=proof, culprit=culprit()))
    document = document_of(tmp_path, broken())
    assert not document.root.known
    assert standing(document, "nondeterminism") == "supported"
    assert "4 threads then, 1 now" in markdown(document, "x.json", None)


def test_overflow_is_precision(tmp_path: Path) -> None:
    precision = {"dtype": "float16", "outcome": "overflow", "message": "finite in float32"}
    incident(tmp_path, 200, "non-finite", replay=replayed(culprit=culprit(stage="forward"), precision=precision))
    source = broken()
    source.manifest["config"]["dtype"] = "fp16"
    document = document_of(tmp_path, source)
    assert document.root.cause == "precision"
    assert "fp16 -> bf16" in document.remedies[0].change


def test_nan_without_anything_captured(tmp_path: Path) -> None:
    document = document_of(tmp_path, broken())
    assert document.case.moment.non_finite
    assert not document.root.known
    assert any("lr_max: 3e-4 -> 1e-4" in remedy.change for remedy in document.remedies), document.remedies
    assert {"destructive-update"} <= {hypothesis.cause.key for hypothesis in document.hypotheses}


def test_the_most_recent_clean_checkpoint_is_named(tmp_path: Path) -> None:
    source = broken()
    saved = [Event("checkpoint", step, 0.0, fields={"path": f"ckpt-{step}.pt"}) for step in (100, 150, 250)]
    source._events += saved
    incident(tmp_path, 200, "non-finite")
    document = document_of(tmp_path, source)
    assert any("ckpt-150.pt" in remedy.change for remedy in document.remedies)


def test_a_repeated_batch_is_ruled_out_by_hashes(tmp_path: Path) -> None:
    document = document_of(tmp_path, spiky(batch_hash=np.arange(400.0), batch_index=np.arange(400.0)))
    assert standing(document, "repeated-batch") == "ruled out"
    hashes = np.arange(400.0)
    hashes[201] = hashes[200]
    document = document_of(tmp_path, spiky(batch_hash=hashes, batch_index=np.arange(400.0)))
    assert standing(document, "repeated-batch") == "supported"
    assert not document.root.known


def test_an_exception(tmp_path: Path) -> None:
    account = {
        "step": 200,
        "kind": "exception",
        "why": "IndexError: index out of range",
        "code": {"file": "t.py", "line": 3},
    }
    incident(tmp_path, 200, incident=account, replay=replayed(raised="IndexError: index out of range", first_bad=200))
    document = document_of(tmp_path, spiky(height=2.2))
    assert document.root.cause == "exception"
    assert document.remedies[0].change == "t.py:3"
    assert "at t.py:3 ended the run" in document.lesson
    incident(tmp_path, 200, incident=account, experiments=experiments("data"))
    document = document_of(tmp_path, spiky(height=2.2))
    assert document.root.cause == "unusual-batch"
    assert document.remedies[0].change.startswith("t.py:3: validate the batch")
    assert not [remedy for remedy in document.remedies if remedy.change.startswith("clip")]


def test_a_fault_that_says_it_more_sharply_is_no_contradiction(tmp_path: Path) -> None:
    source = spiky(steps=200, at=150, height=2.4)
    shown = {"what": "label", "smallest": 0, "largest": 3, "size": 3}
    source.manifest |= {"failure": {"type": "IndexError", "message": "out", "shown": shown}, "last_step": 199}
    account = {"step": 200, "kind": "exception", "why": "IndexError: out"}
    raised = replayed(raised="IndexError: out", first_bad=200)
    for tests in ({}, {"experiments": experiments("data")}):
        incident(tmp_path, 200, incident=account, replay=raised, **tests)
        document = document_of(tmp_path, source)
        assert document.root.cause == "walk-fault"
        assert document.root.sentence.startswith("A label is outside the classes")
        assert "labels from 0 to classes - 1" in document.remedies[0].change


def test_unusual_tokens_are_quoted(tmp_path: Path) -> None:
    token = {"token": 7, "text": "tten", "in_batch": 9, "before": 5, "expected": 0.1}
    batch = {"step": 200, "unusual_tokens": [token], "token_losses": [2.0, 12.0, "nan"]}
    incident(tmp_path, 200, batch=batch)
    document = document_of(tmp_path, spiky())
    text = markdown(document, "x.json", None)
    assert "'tten' 9 times" in sections(text)["Symptoms"]
    assert "losses of 3 tokens" in text
    assert "1 are not finite" in text


def test_a_healthy_run_is_nothing_to_write_about(tmp_path: Path) -> None:
    quiet = spiky(height=2.2, at=200)
    quiet.series("grad_norm").values[200] = 0.6
    with pytest.raises(UsageError, match=r"nothing to write a post-mortem about.*--step N.*steadyrun trial .*--run "):
        case_of(quiet, tmp_path)
    document = document_of(tmp_path, quiet, step=200)
    assert document.case.moment.kind == "chosen"
    command = f"steadyrun trial YOUR_SCRIPT.py:FUNCTION --run {document.case.run}"
    assert any(command in step for step in document.root.would_decide)
    with pytest.raises(UsageError, match="has no step 9000"):
        case_of(quiet, tmp_path, 9000)


def test_gradients_that_were_zero_before(tmp_path: Path) -> None:
    norms = np.zeros(400)
    norms[200] = 47.2
    assert "47.2, normally 0" in markdown(document_of(tmp_path, spiky(grad_norm=norms)), "x.json", None)


def test_noise_that_was_captured_is_nothing_either(tmp_path: Path) -> None:
    quiet = spiky(height=2.55, at=200)
    incident(tmp_path, 200)
    with pytest.raises(UsageError, match="nothing to write"):
        case_of(quiet, tmp_path)
    assert document_of(tmp_path, quiet, step=200).case.moment.kind == "spike"


def test_damaged_files_are_told_and_left_out(tmp_path: Path) -> None:
    folder = incident(tmp_path, 200)
    (folder / "replay.json").write_text("{")
    (folder / "experiments.json").write_text("[1]")
    (folder / "batch.json").write_bytes(b"\xff\xfe")
    document = document_of(tmp_path, spiky())
    text = markdown(document, "x.json", None)
    for name in ("replay.json", "experiments.json", "batch.json"):
        assert f"cannot read {name}" in text


KEYS = re.findall(
    r"\w+",
    """step kind why verdict table gone group words peak_loss culprit stage message violent ratio proof differences
    precision outcome unusual_tokens text in_batch token_losses interaction baseline code checkpoint""",
)

odd = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=5) | st.just("nan"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(replay=odd, tests=odd, batch=odd)
def test_any_json_makes_a_whole_document(tmp_path: Path, replay: Any, tests: Any, batch: Any) -> None:
    folder = incident(tmp_path, 200)
    for name, content in (("replay", replay), ("experiments", tests), ("batch", batch)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    document_of(tmp_path, spiky())


values = st.floats(width=32) | st.just(float("nan")) | st.floats(0, 10, width=32)
names = (
    "loss",
    "grad_norm",
    "lr/0",
    "batch_hash",
    "batch_index",
    "val_loss",
    "clip_threshold",
    "activation/a",
    "step_count/0",
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_run_makes_a_whole_document(tmp_path: Path, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    series = {}
    for name in chosen:
        steps = sorted(data.draw(st.sets(st.integers(0, 300), min_size=1, max_size=30)))
        series[name] = (steps, [data.draw(values) for _ in steps])
    config = data.draw(st.dictionaries(st.sampled_from(["seed", "lr_max", "clip", "dtype"]), odd, max_size=3))
    source = Synthetic(config=config, **series)
    last = max(int(source.series(name).steps[-1]) for name in chosen)
    document_of(tmp_path, source, data.draw(st.integers(0, last)))


def test_hostile_strings_are_only_shown(tmp_path: Path) -> None:
    token = {"text": HOSTILE, "in_batch": 3, "before": 0, "expected": 0.0}
    account = {"step": 200, "kind": "spike", "why": HOSTILE, "checkpoint": 1}
    tests = experiments("data", why=HOSTILE)
    tests["table"][0]["words"] = tests["table"][0]["note"] = HOSTILE
    incident(
        tmp_path,
        200,
        incident=account,
        batch={"unusual_tokens": [token]},
        replay=replayed(culprit=culprit(message=HOSTILE, where=HOSTILE, fix=HOSTILE, operation=HOSTILE)),
        experiments=tests,
    )
    run = tmp_path / "a`b<script>"
    (tmp_path / "incidents").rename(tmp_path / "kept")
    run.mkdir()
    (tmp_path / "kept").rename(run / "incidents")
    document = document_of(run, spiky())
    text = markdown(document, "x.json", None, with_checklist=True)
    outside_code = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in outside_code
    assert "@all" not in outside_code
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\u2066]", text)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)


def test_every_finding_that_is_a_cause_has_a_change() -> None:
    own = {"A5.5", "D2.3", "D3.1", "D3.2"}
    wanted = {
        f"{code} {outcome.name}"
        for code, question in QUESTIONS.items()
        for outcome in question.outcomes
        if outcome.answer in (FAULT, SUSPECT) and code not in own
        if not is_symptom(Asked(question, Answer(outcome.answer, outcome.name, ""), {}))
    }
    assert wanted - set(_CHANGES) == set()
    tried = {f"{code} {outcome.name}" for code, probe in PROBES.items() for outcome in probe.outcomes}
    assert set(_CHANGES) - wanted - tried == set()


@pytest.mark.parametrize(
    ("norms", "clip", "expected"),
    [
        ([0.4, 0.5, 0.6], 1.0, 0.58),
        ([3.0, 3.1], 1.0, None),
        ([3.0, 3.1], None, 3.1),
        ([], 1.0, None),
        ([0.0], 1.0, None),
    ],
)
def test_the_clip_threshold_comes_from_the_norms(
    norms: list[float], clip: float | None, expected: float | None
) -> None:
    assert lower_than(np.array(norms), clip) == expected


def test_a_lower_clip_is_offered_with_a_data_cause(tmp_path: Path) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("data"))
    document = document_of(tmp_path, spiky())
    assert any(remedy.change.startswith("clip: 1 -> 0.") for remedy in document.remedies)


def test_a_clip_that_an_experiment_found_useless_is_not_advised(tmp_path: Path) -> None:
    tests = experiments("data")
    tests["table"].append({"factor": "clip-0.5", "group": "clip", "words": "clipped to 0.5", "gone": False})
    incident(tmp_path, 200, replay=replayed(), experiments=tests)
    assert not [remedy for remedy in document_of(tmp_path, spiky()).remedies if remedy.change.startswith("clip")]


def test_what_is_rare_is_spread_and_other_batches_are_looked_at(tmp_path: Path) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("data"))
    plain = document_of(tmp_path, spiky())
    assert "--export DIR" in plain.remedies[0].change
    assert "token" not in markdown(plain, "x.json", None, with_checklist=True)
    token = {"token": 7, "text": "tten", "in_batch": 9, "before": 5, "expected": 0.1}
    incident(tmp_path, 200, batch={"step": 200, "unusual_tokens": [token]})
    rare = document_of(tmp_path, spiky())
    assert "StratifiedBatchSampler" in rare.remedies[0].change
    assert "spread rare tokens" in rare.lesson


@pytest.mark.parametrize(
    ("classes", "asked"), [((), True), (("Conv2d", "Linear"), False), (("Embedding", "Linear"), True)]
)
def test_tokens_are_spoken_of_where_there_are_tokens(tmp_path: Path, classes: tuple[str, ...], asked: bool) -> None:
    source = spiky(tokens=np.full(400, 64.0))
    source.manifest["model"] = {"modules": [{"path": str(at), "class": name} for at, name in enumerate(classes)]}
    document = document_of(tmp_path, source)
    assert ("unusual_tokens" in {symptom.key for symptom in document.symptoms}) == asked
    assert any("tokenizer" in step for step in document.root.would_decide) == asked


def test_no_lesson_without_a_cause(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    document = document_of(run, spiky())
    assert document.lesson.startswith("No lesson yet: the cause is not proved.")
    assert add_lesson(document) is None
    incident(run, 200, replay=replayed(), experiments=experiments("data"))
    assert add_lesson(document_of(run, spiky())) == tmp_path / "runs" / "lessons.md"
