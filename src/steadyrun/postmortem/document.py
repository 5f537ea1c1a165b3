"""The document as data: seven sections, none empty."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from steadyrun.postmortem import expectations as expecting
from steadyrun.postmortem.case import Case, open_case
from steadyrun.postmortem.causes import CATALOGUE, Grounds, Hypothesis, weigh
from steadyrun.postmortem.causes.hypothesis import AGAINST, FAVOURS, PROVES, RULES_OUT, UNTESTED
from steadyrun.postmortem.checklist import Tick, checklist
from steadyrun.postmortem.evidence import EXPERIMENT, WALK, Observation, Observations, observe
from steadyrun.postmortem.expectations import FAILS, HOLDS, hold
from steadyrun.postmortem.measurements import Numbers
from steadyrun.postmortem.remedies import (
    CANDIDATE,
    NEXT,
    Remedy,
    back_to_checkpoint,
    can_help,
    lower_clip,
    smaller_rate,
)
from steadyrun.postmortem.root_cause import RootCause, decide
from steadyrun.postmortem.symptoms import Symptom, symptoms
from steadyrun.questions.dynamics.run_spikes import stays
from steadyrun.store.joint_incidents import path_in_run
from steadyrun.store.trial_record import TrialRecord

SCHEMA = 1
OUTSIDE_TABLE = frozenset({"verdict", "isolation"})  # of the experiments; all others are rows of a table


@dataclass(frozen=True)
class WeighedEvidence:
    """One observation, and its meaning for each hypothesis by rank."""

    observation: Observation
    proves: tuple[int, ...]
    favours: tuple[int, ...]
    against: tuple[int, ...]
    rules_out: tuple[int, ...]

    @property
    def telling(self) -> bool:
        return bool(self.proves or self.favours or self.against or self.rules_out)


@dataclass(frozen=True)
class Document:
    """One post-mortem."""

    case: Case
    symptoms: tuple[Symptom, ...]
    hypotheses: tuple[Hypothesis, ...]
    evidence: tuple[WeighedEvidence, ...]
    root: RootCause
    remedies: tuple[Remedy, ...]
    expectations: tuple[dict[str, Any], ...]
    lesson: str
    checklist: tuple[Tick, ...]

    @property
    def stem(self) -> str:
        return f"step-{self.case.moment.step:07d}"

    @property
    def telling(self) -> bool:
        """Whether this run fails at least one of its own expectations, as it should."""
        return any(expectation["holds_here"] is False for expectation in self.expectations)


def write(run: str | os.PathLike[str], step: int | None = None) -> Document:
    """The post-mortem of a run's most severe incident, or of the one at `step`; an error if there is none."""
    return compose(open_case(run, step))


def compose(case: Case) -> Document:
    """The document of a case."""
    numbers = Numbers(case)
    observations = observe(case, numbers)
    look = Grounds(case, numbers, observations)
    ranked = weigh(CATALOGUE, look)
    root, cause = decide(look, ranked)
    return Document(
        case,
        symptoms(case, numbers),
        ranked,
        tuple(_evidence(observations, ranked)),
        root,
        tuple(_remedies(look, root, cause, ranked[0])),
        tuple(_expected(case, numbers)),
        _lesson(look, root, cause),
        checklist(case, numbers),
    )


def _evidence(observations: Observations, ranked: Sequence[Hypothesis]) -> list[WeighedEvidence]:
    """Every observation that bears on a hypothesis, and all others of panels and proofs."""
    weighed = []
    for observation in observations.values():
        bearings = {
            kind: tuple(
                rank
                for rank, hypothesis in enumerate(ranked, 1)
                if any(sign.observation is observation for sign in hypothesis.of(kind))
            )
            for kind in (PROVES, FAVOURS, AGAINST, RULES_OUT)
        }
        evidence = WeighedEvidence(observation, *(bearings[kind] for kind in (PROVES, FAVOURS, AGAINST, RULES_OUT)))
        if evidence.telling or observation.source not in {WALK, EXPERIMENT} or observation.key in OUTSIDE_TABLE:
            weighed.append(evidence)
    return weighed


def _remedies(look: Grounds, root: RootCause, cause: Hypothesis | None, likely: Hypothesis) -> list[Remedy]:
    """The smallest change that fixes the cause; if it is unknown, what would decide it and what contains it."""
    case, numbers = look.case, look.numbers
    lasting = case.moment.non_finite or _stayed(look)
    back = [back_to_checkpoint(case, numbers, known=cause is not None)] if lasting else []
    if cause is not None:
        return cause.cause.remedies(look) + back or [smaller_rate(case, numbers, "Lower the learning rate.")]
    first = [Remedy(NEXT, "No change is proved to fix it. Decide the cause first.", root.would_decide[0], "section 4")]
    if likely.weight > 0 and not likely.cause.mechanism:
        first += [replace(remedy, purpose=CANDIDATE) for remedy in likely.cause.remedies(look)]
    remedies = first + back + (lower_clip(case, numbers) if len(first) == 1 else [])
    if len(remedies) > 1 or case.moment.raised or not can_help(case, "learning-rate"):
        return remedies
    return [*remedies, smaller_rate(case, numbers, "If the run must continue, lower the learning rate.")]


def _stayed(look: Grounds) -> bool:
    """Whether the loss stayed high."""
    spike, asked = look.case.moment.spike, look.case.answer("D2.4")
    elevated = asked is not None and asked.answer.outcome == "elevated" and look.case.concerns(asked)
    return elevated or (
        spike is not None and spike.end is None and stays(look.case.signals, spike, look.case.report.walk.limits)
    )


def _expected(case: Case, numbers: Numbers) -> list[dict[str, Any]]:
    """The expectations, each with whether it holds in this run: those that fail here distinguish a fixed run."""
    expected = []
    for expectation in expecting.expectations(case, numbers):
        verdict = hold(expectation, case.signals, case.report).verdict
        expected.append({**expectation, "holds_here": {HOLDS: True, FAILS: False}.get(verdict)})
    return expected


def _lesson(look: Grounds, root: RootCause, cause: Hypothesis | None) -> str:
    """The lesson; without a proved cause, a sentence that there is none."""
    if cause is not None:
        lesson = cause.cause.lesson(look)
        return f"{lesson[:1].upper()}{lesson[1:]}"
    first = root.would_decide[0] if root.would_decide else "one change at a time"
    return f"No lesson yet: the cause is not proved. What would decide it: {first}."


def to_dict(document: Document, picture: str | None = None) -> dict[str, Any]:
    """The documented JSON form (docs/postmortem.md); non-finite numbers are still floats here."""
    case, moment = document.case, document.case.moment
    folder = None if case.proofs.folder is None else path_in_run(case.proofs.folder)
    return {
        "schema": SCHEMA,
        "run": str(case.run),
        "name": case.name,
        "incident": {
            "step": moment.step,
            "kind": moment.kind,
            "why": moment.why,
            "began": moment.began,
            "peak": moment.peak,
            "date": case.date or None,
            "folder": folder,
        },
        "symptoms": [asdict(symptom) for symptom in document.symptoms],
        "hypotheses": [_hypothesis(rank, hypothesis) for rank, hypothesis in enumerate(document.hypotheses, 1)],
        "evidence": [_entry(evidence) for evidence in document.evidence],
        "experiments": None if case.proofs.experiments is None else asdict(case.proofs.experiments),
        "trial": None if case.trial is None else _trial(case.trial),
        "picture": picture,
        "root_cause": document.root.to_dict(),
        "remediation": [remedy.to_dict() for remedy in document.remedies],
        "verification": {"telling": document.telling, "expectations": list(document.expectations)},
        "lesson": document.lesson,
        "checklist": [question.to_dict() for question in document.checklist],
    }


def _trial(trial: TrialRecord) -> dict[str, Any]:
    """A trial without its curves, which are in trial.json."""
    content = asdict(replace(trial, curves=()))
    del content["curves"]
    return content


def _hypothesis(rank: int, hypothesis: Hypothesis) -> dict[str, Any]:
    def listed(*bearings: str) -> list[dict[str, Any]]:
        return [
            {
                "bearing": sign.bearing,
                "source": sign.observation.source,
                "panel": sign.observation.panel,
                "text": sign.observation.text,
            }
            for sign in hypothesis.of(*bearings)
        ]

    return {
        "rank": rank,
        "key": hypothesis.cause.key,
        "title": hypothesis.title,
        "claim": hypothesis.claim,
        "panel": hypothesis.panel,
        "standing": hypothesis.standing,
        "weight": hypothesis.weight,
        "supported_by": listed(PROVES, FAVOURS),
        "contradicted_by": listed(RULES_OUT, AGAINST),
        "not_tested": listed(UNTESTED),
    }


def _entry(evidence: WeighedEvidence) -> dict[str, Any]:
    observation = evidence.observation
    ranks = {
        "proves": evidence.proves,
        "favours": evidence.favours,
        "against": evidence.against,
        "rules_out": evidence.rules_out,
    }
    return {
        "source": observation.source,
        "panel": observation.panel,
        "text": observation.text,
        **{k: [f"H{r}" for r in v] for k, v in ranks.items()},
    }
