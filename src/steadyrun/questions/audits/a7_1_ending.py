"""A7.1: did an exception end the run, and what caused it?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals

_FROM_OUTSIDE = {
    "KeyboardInterrupt",
    "SystemExit",
    "TimeLimit",
    "SignalException",
}  # a person, the cluster, the program


def find(run: Signals, _limit: Limits) -> Finding:
    failure = run.about("failure")
    if not failure:
        raise NotApplicable("no exception ended the run")
    step = run.manifest.get("last_step")
    at = step if isinstance(step, int) else None
    facts = ": ".join(str(failure[key]) for key in ("type", "message") if failure.get(key))
    shown = failure.get("shown")
    if isinstance(shown, dict) and shown.get("what") in {"token", "label"}:
        low, high, size = (int(shown.get(key, 0)) for key in ("smallest", "largest", "size"))
        measured = {"smallest": float(low), "largest": float(high), "size": float(size)}
        worst = high if high >= size else low
        if shown["what"] == "token":
            message = f"Token id {worst} was looked up in an embedding with {size} rows ({facts})."
            return Finding("token-out-of-range", message, measured, at)
        return Finding("label-out-of-range", f"Label {worst} is not among {size} classes ({facts}).", measured, at)
    frames = failure.get("traceback")
    where = f" ({frames[-1]})" if isinstance(frames, list) and frames else ""
    if failure.get("type") in _FROM_OUTSIDE:
        return Finding("exception", f"The run ended with {facts}{where}.", step=at)
    if not run.names:
        return Finding("before-first-step", f"The program ended before its first recorded step: {facts}{where}.")
    last = at if at is not None else max(int(run.raw(name).steps[-1]) for name in run.names)
    return Finding("crashed", f"The run ended after step {last}: {facts}{where}.", step=last)


QUESTION = Question(
    code="A7.1",
    name="how the run ended",
    asks="Did an exception end the run, and does its traceback show the cause?",
    why="A token id beyond the embedding, or a label beyond the classes, raises an index error; the frames of the "
    "exception still hold the numbers.",
    needs=("loss",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(
            name="token-out-of-range",
            answer=FAULT,
            meaning="a token id is outside the embedding",
            fix="Resize the embedding to the tokenizer (model.resize_token_embeddings), or use the tokenizer that "
            "belongs to the model.",
            explains=("C", "D", "S"),
        ),
        Outcome(
            name="label-out-of-range",
            answer=FAULT,
            meaning="a label is outside the classes",
            fix="Number the classes from 0, give the output layer one score per class, and mask labels with "
            "ignore_index.",
            explains=("C", "D", "S"),
        ),
        Outcome(
            name="before-first-step",
            answer=FAULT,
            meaning="the program failed before its first step",
            fix="Fix the line that raises. Run `steadyrun preflight` on the program before the next start.",
            explains=("C", "D", "S", "V"),
        ),
        Outcome(
            name="crashed",
            answer=SUSPECT,
            meaning="an exception ended the run before it was finished",
            fix="Fix the line that raises and resume from the last checkpoint. After an out-of-memory error, lower the "
            "batch size and accumulate gradients.",
            experiment="Resume from the last checkpoint. If the same exception returns at the same step, its batch or "
            "state causes it; if not, suspect the machine.",
        ),
        Outcome(
            name="exception",
            answer=NOTE,
            meaning="a person, the cluster or the program itself ended the run",
            fix="Resume from the last checkpoint, if the run should go on.",
        ),
    ),
    find=find,
    always=True,
)
