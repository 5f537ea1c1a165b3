"""Section 4: the root cause in one sentence, if experiments, a replay, a trial or a fault prove it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steadyrun.postmortem.case import CHOSEN, OF_A_FAULT, Case
from steadyrun.postmortem.causes.hypothesis import PROVED, PROVES, Grounds, Hypothesis
from steadyrun.postmortem.causes.in_walk import NAMED_FAULT, says_the_same
from steadyrun.postmortem.evidence import EXPERIMENT, REPLAY, TRIAL
from steadyrun.report.trial_answers import whole_trial
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.store.incident_files import text

BY_EXPERIMENTS, BY_REPLAY, BY_TRIAL, BY_WALK = "experiments", "replay", "trial", "walk"
_ARTICLES = (
    "The ",
    "It ",
    "Its ",
    "A ",
    "An ",
    "In ",
    "By ",
    "There ",
    "With ",
    "Only ",
    "No ",
    "Both ",
    "All ",
    "None ",
)
_NAMES = {BY_EXPERIMENTS: "Experiments", BY_REPLAY: "Replay", BY_TRIAL: "Trial", BY_WALK: "Check"}
_ORDER = (BY_EXPERIMENTS, BY_REPLAY, BY_TRIAL, BY_WALK)


@dataclass(frozen=True)
class RootCause:
    """The root cause, `known` only if it is proved; otherwise `would_decide` lists what to do."""

    known: bool
    sentence: str
    by: str = ""
    cause: str = ""
    would_decide: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def decide(look: Grounds, ranked: Sequence[Hypothesis]) -> tuple[RootCause, Hypothesis | None]:
    """The root cause and its hypothesis; None if it is unknown."""
    proved = [hypothesis for hypothesis in ranked if hypothesis.standing == PROVED and not hypothesis.cause.mechanism]
    record = look.case.proofs.experiments
    best = sorted(proved, key=lambda hypothesis: _ORDER.index(carried_by(hypothesis)))
    if record is not None and not record.decided and (record.interaction or not best):
        return _undecided(look, proved), None
    if not best:
        return _unknown(look, ranked), None
    first = best[0]
    others = [
        hypothesis for hypothesis in best[1:] if carried_by(hypothesis) == BY_WALK and carried_by(first) != BY_WALK
    ]
    sharper = [
        hypothesis for hypothesis in others if hypothesis.cause is NAMED_FAULT and says_the_same(look, first.cause.key)
    ]
    if len(others) > len(sharper):
        return _contradiction(look, first, others), None
    named = sharper[0] if sharper else first
    rest = [hypothesis for hypothesis in best if hypothesis not in (first, named)]
    return RootCause(True, _sentence(look, named, rest), carried_by(first), named.cause.key), named


def carried_by(hypothesis: Hypothesis) -> str:
    """The strongest kind of proof that a hypothesis has."""
    sources = {sign.observation.source for sign in hypothesis.of(PROVES)}
    kinds = ((EXPERIMENT, BY_EXPERIMENTS), (REPLAY, BY_REPLAY), (TRIAL, BY_TRIAL))
    return next((by for source, by in kinds if source in sources), BY_WALK)


def _sentence(look: Grounds, first: Hypothesis, rest: Sequence[Hypothesis]) -> str:
    """The cause; where in the program it appeared, if the replay found that; the result of the experiments."""
    parts = [first.cause.sentence(look).strip()]
    struck = [] if look.case.moment.raised else rest  # a step that raises again does not locate it
    struck_here = next((hypothesis for hypothesis in struck if carried_by(hypothesis) == BY_REPLAY), None)
    if struck_here is not None:
        parts.append(f"It appeared here: {struck_here.cause.sentence(look).strip()}")
    record = look.case.proofs.experiments
    if record is not None and record.why:
        parts.append(f"By experiment ({record.verdict}): {record.why}")
    trial = look.case.trial
    if trial is not None and carried_by(first) == BY_TRIAL and trial.message not in parts[0]:
        parts.append(f"By trial: {trial.message}")
    return one_sentence(". ".join(part.removesuffix(".") for part in parts))


def one_sentence(text: str) -> str:
    """Join several sentences into one."""
    parts = [part.strip() for part in re.split(r"\.\s+(?=[A-Z])", text.strip()) if part.strip()]
    lowered = [part[0].lower() + part[1:] if part.startswith(_ARTICLES) else part for part in parts[1:]]
    return "; ".join([*parts[:1], *lowered]).removesuffix(".") + "."


def _undecided(look: Grounds, proved: Sequence[Hypothesis]) -> RootCause:
    record = look.case.proofs.experiments
    assert record is not None
    if record.interaction:
        said = f"Not known yet: no single change explains it. {record.interaction[:1].upper()}{record.interaction[1:]}"
    else:
        why = f" {record.why[:1].upper()}{record.why[1:]}" if record.why else ""
        said = f"Not known yet: the verdict of the experiments is {record.verdict!r}.{why}"
    standing = [hypothesis.cause.sentence(look).strip() for hypothesis in proved]
    also = f" Proved nevertheless: {' '.join(standing)}" if standing else ""
    return RootCause(False, f"{said}{also}", would_decide=tuple(_would_decide(look.case)))


def _contradiction(look: Grounds, first: Hypothesis, others: Sequence[Hypothesis]) -> RootCause:
    by = carried_by(first)
    mine = f"{_NAMES[by]}: {first.cause.sentence(look).strip()}"
    theirs = " ".join(hypothesis.cause.sentence(look).strip() for hypothesis in others)
    said = f"Not known yet: two proofs name different causes. {mine} Check: {theirs}"
    return RootCause(
        False, said, would_decide=("fix one of the two, run again with the same seed, and check section 6",)
    )


def _unknown(look: Grounds, ranked: Sequence[Hypothesis]) -> RootCause:
    likely = ranked[0].title if ranked and ranked[0].weight > 0 else ""
    suspect = f" The most likely cause is H1 ({likely[:1].lower()}{likely[1:]}), which is not proved." if likely else ""
    certain = look.case.report.headline
    known = f" Certain: {certain.question.code}, {certain.answer.message}" if certain is not None else ""
    said = f"Not known yet: neither the recording nor a replay proves a cause.{suspect}{known}"
    return RootCause(False, said, would_decide=tuple(_would_decide(look.case)))


def _would_decide(case: Case) -> Iterator[str]:
    proofs, run = case.proofs, shlex.quote(str(case.run))
    if case.trial is not None and case.trial.would_decide:
        yield f"the trial is undecided: {case.trial.would_decide}"
    elif case.trial is None and not proofs.incident and case.moment.kind in (CHOSEN, OF_A_FAULT):
        command = whole_trial(str(case.run), case.report.factory)
        yield f"if the run learns badly from the first step, test one change at a time: `steadyrun {command}`"
    if proofs.folder is None:
        yield "capture incidents (give run.watch the loss_fn, run.step its batch) and replay them: `steadyrun replay`"
    elif missing := text(proofs.incident, "missing"):
        yield f"this incident cannot be replayed: {missing}"
    elif not proofs.proof:
        yield f"replay it: `steadyrun replay {run} --step {case.moment.step}`"
    elif not proofs.reproduced:
        yield "make the program reproducible (section 3 lists the differences), then replay again"
    elif proofs.experiments is None:
        yield f"run the experiments: `steadyrun replay {run} --step {case.moment.step}`"
    else:
        yield "test what the experiments left out, or train again from the checkpoint with one change at a time"
    if case.has_tokens and "unusual_tokens" not in proofs.batch:
        yield "give run.watch the tokenizer, so that the batch is captured as text with its unusual tokens"
    for name in ("grad_norm", "lr/*"):
        if not case.signals.matching(name):
            yield f"record {name}: {HOW_TO_RECORD[name]}"
