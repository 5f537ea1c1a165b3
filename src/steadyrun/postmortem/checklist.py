"""The checklist, ticked from the data of the run."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import Any

from steadyrun.postmortem.case import Case
from steadyrun.postmortem.measurements import Numbers
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.store.incident_files import part, text

_TRIED = frozenset({"learning-rate", "clip", "clipping", "warmup"})


@dataclass(frozen=True)
class Tick:
    """One item: whether it is done, the evidence, and what to do if it is not."""

    item: str
    done: bool
    evidence: str
    todo: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def checklist(case: Case, numbers: Numbers) -> tuple[Tick, ...]:
    """The five items."""
    return (_repro(case), _data(case, numbers), _telemetry(case), _precision(case, numbers), _tried(case))


def _replay(case: Case, *options: str) -> str:
    return " ".join(["steadyrun replay", shlex.quote(str(case.run)), f"--step {case.moment.step}", *options])


def _repro(case: Case) -> Tick:
    item, proof = "Minimal reproduction?", case.proofs.proof
    if case.proofs.reproduced:
        count = part(case.proofs.replay, "proof").get("compared")
        said = f"replayed: {proof}, {count} losses compared; `{_replay(case, '--export DIR')}` exports a script"
        return Tick(item, True, said)
    if proof:
        return Tick(item, False, f"replayed: {proof}", "remove the differences listed in section 3, then replay again")
    if case.proofs.folder is None:
        return Tick(item, False, "the incident was not captured", "give run.watch the loss_fn and run.step its batch")
    if missing := text(case.proofs.incident, "missing"):
        return Tick(item, False, f"it cannot be replayed: {missing}", "record a new run with capture")
    return Tick(item, False, "captured, but not replayed yet", f"`{_replay(case)}`")


def _data(case: Case, numbers: Numbers) -> Tick:
    item = "Data checked?"
    hashed, looked = numbers.repeats is not None, "unusual_tokens" in case.proofs.batch
    said = ["the batch was compared with its neighbours" if hashed else "batches were not hashed"]
    todo = [] if hashed else ["give run.step its batch"]
    if case.has_tokens:
        said.append("its tokens were counted" if looked else "its tokens were not counted")
        todo += [] if looked else ["give run.watch the tokenizer, or check the examples of the batch by hand"]
    return Tick(item, not todo, "; ".join(said), "; ".join(todo))


def _telemetry(case: Case) -> Tick:
    needed = ("grad_norm", "activation/*")
    absent = [name for name in needed if not case.signals.matching(name)]
    there = [name for name in needed if name not in absent]
    said = f"recorded: {', '.join(there)}" if there else "not recorded"
    return Tick(
        "Gradients and activations recorded?", not absent, said, "; ".join(HOW_TO_RECORD[name] for name in absent)
    )


def _precision(case: Case, numbers: Numbers) -> Tick:
    item = "Compared with float32?"
    outcome = text(part(case.proofs.replay, "precision"), "outcome")
    rows = [row for row in _rows(case) if row.group == "precision" and row.gone is not None]
    if rows:
        return Tick(item, True, f"tested {rows[0].words}: {'gone' if rows[0].gone else 'still there'}")
    if outcome in {"overflow", "structural"}:
        return Tick(item, True, f"the replay repeated the step in float32: {outcome}")
    if numbers.dtype == "fp32":
        return Tick(item, True, "the run already computes in fp32")
    return Tick(item, False, f"the run computes in {numbers.dtype or 'an unknown format'}", f"`{_replay(case)}`")


def _tried(case: Case) -> Tick:
    item = "Learning rate, warmup and clipping tested?"
    rows = [row for row in _rows(case) if row.group in _TRIED and row.gone is not None]
    if rows:
        said = "; ".join(f"{row.words}: {'gone' if row.gone else 'still there'}" for row in rows)
        return Tick(item, True, said)
    untested = next((row for row in _rows(case) if row.group in _TRIED), None)
    said = "no experiment changed them" if untested is None else f"not tested: {untested.note or untested.words}"
    return Tick(item, False, said, f"`{_replay(case)}`, or one run per change")


def _rows(case: Case) -> tuple[Any, ...]:
    return () if case.proofs.experiments is None else case.proofs.experiments.rows
