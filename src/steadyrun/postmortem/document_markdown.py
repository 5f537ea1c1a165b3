"""The document as Markdown. All strings from a run are escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from steadyrun.postmortem.causes.hypothesis import AGAINST, FAVOURS, PROVES, RULES_OUT, UNTESTED, Hypothesis, Sign
from steadyrun.postmortem.document import OUTSIDE_TABLE, Document, WeighedEvidence
from steadyrun.postmortem.evidence import EXPERIMENT, PANELS, TRIAL, Observation
from steadyrun.postmortem.remedies import NEXT
from steadyrun.report import phrases
from steadyrun.report.file_formats import code, escaped
from steadyrun.store.incident_files import ExperimentRecord
from steadyrun.store.trial_record import Gain, TrialRecord, TriedChange
from steadyrun.text import counted, percent, shown

_TITLES = {"spike": "Loss spike", "non-finite": "Non-finite loss", "fault": "Fault", "exception": "Exception"}
_SOURCES = {
    "replay": "Replay",
    "trial": "Trial",
    "walk": "Check",
    "batch": "Batch",
    "optimizer": "Optimizer",
    "manifest": "Manifest",
    "updates": "Updates",
    "record": "Not recorded",
}
_PROOFS = {
    "experiments": "the experiments",
    "replay": "the replay",
    "trial": "the trial",
    "walk": "`steadyrun check`",
}
_LONG = 260  # characters of a quoted observation
_MOST_CHANGES = 12  # rows of a trial's table
_MOST = 4  # observations that a hypothesis quotes; section 3 has them all


def markdown(
    document: Document, name: str, picture: str | None, no_picture: str = "", *, with_checklist: bool = False
) -> str:
    """The whole document.

    `name` is the path of its JSON, `picture` the file name of the image, `no_picture` why there is none.
    """
    sections = [
        ("1. Symptoms", _symptoms(document)),
        ("2. Hypotheses, ranked", _hypotheses(document)),
        ("3. Discriminating evidence", _evidence(document, picture, no_picture)),
        ("4. Root cause", _root(document)),
        ("5. Remediation", _remedies(document)),
        ("6. Verification", _verification(document, name)),
        ("7. Lesson", iter([inline(document.lesson)])),
        *([("Checklist", _checklist(document))] if with_checklist else []),
    ]
    parts = ["\n".join(_head(document))] + [f"## {title}\n\n" + "\n".join(lines) for title, lines in sections]
    return "\n\n".join(parts) + "\n"


def inline(text: str) -> str:
    """Escaped text, with the parts between backticks as code."""
    parts = re.split(r"`([^`]*)`", text)
    return "".join(code(part) if index % 2 else escaped(part) for index, part in enumerate(parts) if part)


def _head(document: Document) -> Iterator[str]:
    case = document.case
    what = _TITLES.get("spike" if case.moment.spike is not None else case.moment.kind, "Incident")
    day = f" — {case.date}" if case.date else ""
    yield f"# {what} post-mortem{day} — {escaped(case.name)}, step {case.moment.step}"
    yield ""
    yield f"{code(str(case.run))} ({escaped(phrases.standing(case.report))}): {escaped(case.moment.why)}"
    yield ""
    yield f"Based on: {inline(_written_from(document))}."
    yield from (f"\nNot read: {escaped(message)}" for message in case.proofs.damaged)


def _written_from(document: Document) -> str:
    proofs = document.case.proofs
    parts = ["the recording", "`steadyrun check`"]
    if proofs.batch:
        parts.append("the batch")
    parts.append(f"a replay ({proofs.proof})" if proofs.proof else "no replay (the strongest evidence is missing)")
    parts.append("experiments" if proofs.experiments is not None else "no experiments")
    if document.case.trial is not None:
        parts.append("a trial")
    return ", ".join(parts)


def _symptoms(document: Document) -> Iterator[str]:
    for symptom in document.symptoms:
        yield f"- {escaped(symptom.label)}: {inline(symptom.words)}"


def _hypotheses(document: Document) -> Iterator[str]:
    for rank, hypothesis in enumerate(document.hypotheses, 1):
        panel = f", panel {hypothesis.panel}" if hypothesis.panel else ""
        yield f"{rank}. **{escaped(hypothesis.title)}** ({hypothesis.standing}{panel}): {escaped(hypothesis.claim)}."
        yield from _quoted(hypothesis)


def _quoted(hypothesis: Hypothesis) -> Iterator[str]:
    support, contrary = hypothesis.of(PROVES, FAVOURS), hypothesis.of(RULES_OUT, AGAINST)
    if support:
        yield f"   - Supported by: {_quotes(support)}"
    if contrary:
        verb = "Ruled out by" if any(sign.bearing == RULES_OUT for sign in contrary) else "Against it"
        yield f"   - {verb}: {_quotes(contrary)}"
    if untested := hypothesis.of(UNTESTED):
        yield f"   - Not tested by experiment: {_quotes(untested)}"
    elif not support and not contrary:
        yield "   - Nothing in the recording speaks for or against it."


def _quotes(signs: list[Sign]) -> str:
    ordered = sorted(signs, key=lambda sign: -abs(sign.weight))
    said = "; ".join(
        f"{_source(sign.observation)}: {escaped(_short(sign.observation.text))}" for sign in ordered[:_MOST]
    )
    return said + (f"; and {len(signs) - _MOST} more in section 3" if len(signs) > _MOST else "")


def _short(text: str) -> str:
    return text.removesuffix(".") if len(text) <= _LONG else f"{text[:_LONG]}…"


def _source(observation: Observation) -> str:
    if observation.source == "panel" and observation.panel is not None:
        return f"panel {observation.panel}"
    label = _SOURCES.get(observation.source, "Experiment").lower()
    return f"{label}, panel {observation.panel}" if observation.panel is not None else label


def _evidence(document: Document, picture: str | None, no_picture: str) -> Iterator[str]:
    proofs = document.case.proofs
    if not proofs.proof:
        yield "The incident was not replayed, so nothing here is proved by replay.\n"
    for evidence in sorted(document.evidence, key=_order):
        if evidence.observation.source != EXPERIMENT or evidence.observation.key in OUTSIDE_TABLE:
            yield f"- {_heading(evidence.observation)}: {escaped(evidence.observation.text)} → {_bearing(evidence)}"
    if proofs.experiments is not None and proofs.experiments.rows:
        yield from _table(proofs.experiments)
    if document.case.trial is not None and document.case.trial.rows:
        yield from _trial_table(document.case.trial)
    if picture is not None:
        yield f"\n![The panels around step {document.case.moment.step}]({picture})"
    elif no_picture:
        yield f"\nNo picture: {inline(no_picture)}"


def _order(evidence: WeighedEvidence) -> tuple[int, int]:
    strength = {EXPERIMENT: 0, "replay": 1, TRIAL: 2, "panel": 3}.get(evidence.observation.source, 4)
    return 9 if evidence.observation.key == "unseen" else strength, evidence.observation.panel or 9


def _heading(observation: Observation) -> str:
    if observation.source == "panel" and observation.panel is not None:
        return f"**Panel {observation.panel}** ({PANELS[observation.panel]})"
    label = _SOURCES.get(observation.source, "Experiments")
    return (
        f"**{label}** (panel {observation.panel}, {PANELS[observation.panel]})"
        if observation.panel is not None
        else f"**{label}**"
    )


def _bearing(evidence: WeighedEvidence) -> str:
    said = [
        f"{verb} {', '.join(f'H{rank}' for rank in ranks)}"
        for verb, ranks in (
            (PROVES, evidence.proves),
            (FAVOURS, evidence.favours),
            (AGAINST, evidence.against),
            (RULES_OUT, evidence.rules_out),
        )
        if ranks
    ]
    return ", ".join(said) or "does not point to a cause"


def _table(record: ExperimentRecord) -> Iterator[str]:
    """The table of experiments: one change at a time."""
    yield "\n| experiment | group | peak loss | peak gradient norm | incident gone | note |"
    yield "|---|---|---|---|---|---|"
    if record.peak_loss is not None:
        yield f"| nothing changed | | {shown(record.peak_loss)} | | no | |"
    for row in record.rows:
        numbers = ["" if value is None else shown(value) for value in (row.peak_loss, row.peak_grad_norm)]
        gone = {True: "yes", False: "no", None: "not tested"}[row.gone]
        cells = (escaped(row.words), escaped(row.group), *numbers, gone, escaped(row.note))
        yield f"| {' | '.join(cells)} |"


def _trial_table(trial: TrialRecord) -> Iterator[str]:
    """The table of a trial: one change at a time, the one that the verdict names first."""
    trained = "" if trial.steps is None else f" of {counted(trial.steps, 'step')}"
    yield f"\nTwins of the trial{trained}, with {trial.measured} at the end:"
    yield "\n| change | loss | better by | 95% interval | seeds | note |"
    yield "|---|---|---|---|---|---|"
    for row in ([] if trial.own is None else [trial.own]) + trial.ranked[:_MOST_CHANGES]:
        yield f"| {' | '.join(_trial_cells(row))} |"
    if len(trial.rows) > _MOST_CHANGES:
        yield f"\nAnd {counted(len(trial.rows) - _MOST_CHANGES, 'more change')} with smaller effects."


def _trial_cells(row: TriedChange) -> tuple[str, ...]:
    loss = "" if row.loss is None else shown(row.loss)
    return (escaped(row.words), loss, *_gain_cells(row.gain), str(row.seeds), escaped(row.note))


def _gain_cells(gain: Gain | None) -> tuple[str, str]:
    if gain is None:
        return "", ""
    mean, low, high = (percent(part).replace("-0.0%", "0.0%") for part in (gain.mean, gain.low, gain.high))
    return mean, f"{low} to {high}"


def _root(document: Document) -> Iterator[str]:
    root = document.root
    yield inline(root.sentence)
    if root.known:
        yield f"\nProved by: {_PROOFS.get(root.by, root.by)}.{_to_confirm(document)}"
    if root.would_decide:
        yield "\nTo decide it:\n"
        yield from (f"- {inline(step)}" for step in root.would_decide)


def _to_confirm(document: Document) -> str:
    case = document.case
    dynamic = case.moment.non_finite or case.moment.spike is not None or case.moment.code.startswith("D")
    if case.proofs.experiments is not None or case.proofs.folder is None or not dynamic:
        return ""
    command = code(f"steadyrun replay {shlex.quote(str(case.run))} --step {case.moment.step}")
    return f" To confirm it by experiment: {command}"


def _remedies(document: Document) -> Iterator[str]:
    names = {
        "fix": "Fix",
        "candidate": "If H1 is right",
        "recovery": "Recover",
        "containment": "Contain",
        "next": "Next",
    }
    for remedy in document.remedies:
        yield f"- **{names[remedy.purpose]}.** {inline(remedy.text)}"
        verb = "do" if remedy.purpose == NEXT else "change"
        yield f"  - {verb}: {inline(remedy.change) if '`' in remedy.change else code(remedy.change)}"
        yield f"  - because: {inline(remedy.why)}"


def _verification(document: Document, name: str) -> Iterator[str]:
    yield f"Train again with the change, then check the new run: {code(f'steadyrun verify {name} NEW_RUN')}\n"
    for expectation in document.expectations:
        here = {True: "also holds in this run", False: "fails in this run", None: "not decidable in this run"}[
            expectation["holds_here"]
        ]
        yield f"- {escaped(expectation_words(expectation))} ({here}; {escaped(str(expectation['how']))})"
    if not document.telling:
        yield "\nNone of these fails in this run, so the list cannot recognise a fixed run. Record more series."


def expectation_words(expectation: dict[str, object]) -> str:
    """An expectation as one line."""
    number = {key: shown(value) for key, value in expectation.items() if isinstance(value, int | float)}
    verb = "was" if expectation.get("holds_here") else "down from"
    was = f", {verb} {number['was']}" if "was" in number else ""
    return {
        "seed": lambda: f"seed {expectation.get('value')}",
        "finite": lambda: f"every {expectation.get('series')} to step {expectation.get('until')} is finite",
        "gets_past": lambda: f"the run continues after step {expectation.get('step')} with a finite loss",
        "median_at_most": lambda: (
            f"median of {expectation.get('series')} in steps {expectation.get('first')} to {expectation.get('last')}: "
            f"at most {number['limit']}"
        ),
        "loss_at_most": lambda: f"loss at step {expectation.get('step')}: at most {number['limit']}{was}",
        "max_in_window": lambda: (
            f"largest {expectation.get('series')} in steps {expectation.get('first')} to {expectation.get('last')}: "
            f"at most {number['limit']}{was}"
        ),
        "within": lambda: (
            f"{expectation.get('span')}-step EMA of {expectation.get('series')} "
            f"in steps {expectation.get('first')} to {expectation.get('until')}: "
            f"at most {number['of']} + {number['tolerance']}"
        ),
        "question_passes": lambda: f"{expectation.get('code')} does not find {expectation.get('was')!r} again",
    }[str(expectation["kind"])]()


def _checklist(document: Document) -> Iterator[str]:
    for tick in document.checklist:
        todo = f" To do: {inline(tick.todo)}" if tick.todo and not tick.done else ""
        yield f"- [{'x' if tick.done else ' '}] {escaped(tick.item)} {inline(tick.evidence)}.{todo}"
