"""Answers that were found elsewhere and are kept with the run: by preflight before it, by replays after it.

They are data: a question is put together from what is written there, and nothing of it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrun.questions.aliases import outcome_of
from steadyrun.questions.form import (
    CANNOT_TELL,
    FAULT,
    NOT_APPLICABLE,
    NOTE,
    PASS,
    SUSPECT,
    Answer,
    Finding,
    Limits,
    Outcome,
    Question,
    Threshold,
)
from steadyrun.report.two_sources import REPLAYED as REPLAYED
from steadyrun.store.incident_files import IN_REPORTS, IncidentFiles, read
from steadyrun.store.joint_incidents import joint_incidents
from steadyrun.store.jsonio import number
from steadyrun.trees.walker import Asked

_KINDS = (PASS, FAULT, SUSPECT, NOTE, CANNOT_TELL, NOT_APPLICABLE)
_FOLLOWS = ("C", "D", "S", "A3.8")


def as_data(asked: Asked) -> dict[str, Any]:
    """An answer with all that is needed to show it again."""
    question, answer = asked.question, asked.answer
    named = [outcome for outcome in question.outcomes if outcome.name == answer.outcome]
    return {
        "code": question.code,
        "aliases": list(question.aliases),
        "name": question.name,
        "asks": question.asks,
        "answer": answer.kind,
        "outcome": answer.outcome,
        "message": answer.message,
        "meaning": named[0].meaning if named else "",
        "explains": list(named[0].explains) if named else [],
        "symptom": bool(named and named[0].symptom),
        "measured": dict(answer.measured),
        "thresholds": {threshold.name: [threshold.value, threshold.unit] for threshold in question.thresholds},
        "fix": answer.fix,
        "experiment": answer.experiment,
        "missing": list(answer.missing),
        "how_to_record": answer.how_to_record,
    }


def preflighted(manifest: Mapping[str, Any]) -> list[Asked]:
    """What preflight said before the run, as far as it can be read."""
    kept = manifest.get("preflight")
    entries = kept.get("walk") if isinstance(kept, dict) else None
    return [_asked(entry) for entry in entries if _is_answer(entry)] if isinstance(entries, list) else []


def _is_answer(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("answer") not in _KINDS:
        return False
    return all(isinstance(entry.get(key), str) for key in ("code", "name", "outcome", "message")) and bool(
        entry["code"]
    )


def _asked(entry: dict[str, Any]) -> Asked:
    text = {key: str(entry.get(key, "")) for key in ("code", "name", "asks", "outcome", "message", "meaning", "fix")}
    text["code"], text["outcome"] = outcome_of(text["code"], text["outcome"])  # it may be from before codes were joined
    limits = entry.get("thresholds")
    explains = entry.get("explains")
    outcome = Outcome(
        name=text["outcome"],
        answer=entry["answer"],
        meaning=text["meaning"],
        fix=text["fix"],
        explains=tuple(map(str, explains)) if isinstance(explains, list) else (),
        symptom=entry.get("symptom") is True,
    )
    question = Question(
        text["code"],
        text["name"],
        text["asks"],
        "",
        (),
        None,
        tuple(_threshold(str(name), value) for name, value in limits.items()) if isinstance(limits, dict) else (),
        (outcome,),
        cannot_be_asked,
        tried=True,
    )
    measured = entry.get("measured")
    missing = entry.get("missing")
    answer = Answer(
        entry["answer"],
        text["outcome"],
        text["message"],
        {str(key): _float(value) for key, value in measured.items()} if isinstance(measured, dict) else {},
        fix=text["fix"],
        missing=tuple(map(str, missing)) if isinstance(missing, list) else (),
        how_to_record=str(entry.get("how_to_record", "")),
        experiment=str(entry.get("experiment", "")),
    )
    return Asked(question, answer, {})


def _threshold(name: str, value: Any) -> Threshold:
    pair = value if isinstance(value, list) and len(value) == 2 else [value, ""]
    return Threshold(name=name, value=_float(pair[0]), unit=str(pair[1]), meaning="", seed="", decision="")


def _float(value: Any) -> float:
    try:
        parsed = number(value)
    except (TypeError, ValueError):
        return math.nan
    return math.nan if parsed is None else float(parsed)


def cannot_be_asked(_run: Any, _limit: Limits) -> Finding:
    """The `find` of an answer that was recorded."""
    raise NotImplementedError("this answer was recorded, and cannot be asked again")


def replayed(root: Path) -> list[Asked]:
    """The origins that replays of this run have found, of those that reproduced what was recorded."""
    culprits = [_culprit(read(joint.main.folder, ("replay",), IN_REPORTS)) for joint in joint_incidents(root)]
    return [culprit for culprit in culprits if culprit is not None]


def _culprit(files: IncidentFiles) -> Asked | None:
    culprit = files.culprit
    cause, message = culprit.get("cause"), culprit.get("message")
    if not files.reproduced or not isinstance(cause, str) or not isinstance(message, str):
        return None
    step = culprit.get("step")
    fix = str(culprit.get("fix", ""))
    meaning = "the first non-finite number, found by replay"
    outcome = Outcome(name=cause, answer=FAULT, meaning=meaning, fix=fix, explains=_FOLLOWS)
    question = Question(
        f"{REPLAYED}1.1",
        "the replayed step",
        "Which operation made the first non-finite number?",
        "",
        (),
        None,
        (),
        (outcome,),
        cannot_be_asked,
    )
    at, ranks = step if isinstance(step, int) else None, _rank_of(files)
    on = f"On rank {ranks[0]}: {message[:1].lower()}{message[1:]}" if ranks else message
    return Asked(question, Answer(FAULT, cause, on, step=at, fix=fix, ranks=ranks), {})


def _rank_of(files: IncidentFiles) -> tuple[int, ...]:
    """The replayed rank of a job of several processes."""
    ranks = files.replay.get("ranks")
    rank = ranks.get("rank") if isinstance(ranks, dict) else None
    return (rank,) if isinstance(rank, int) else ()
