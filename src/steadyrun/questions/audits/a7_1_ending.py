"""A7.1: did the run end with an exception whose cause shows?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals

_FROM_OUTSIDE = {"KeyboardInterrupt", "SystemExit", "TimeLimit", "SignalException"}  # a person or the cluster ended it


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
            message = f"id {worst} was looked up in an embedding of {size} rows ({facts})."
            return Finding("token-out-of-range", message, measured, at)
        return Finding("label-out-of-range", f"label {worst} among {size} classes ({facts}).", measured, at)
    frames = failure.get("traceback")
    where = f" ({frames[-1]})" if isinstance(frames, list) and frames else ""
    if failure.get("type") in _FROM_OUTSIDE:
        return Finding("exception", f"the run ended with {facts}{where}.", step=at)
    if not run.names:
        return Finding("before-first-step", f"the program ended before its first recorded step with {facts}{where}.")
    last = at if at is not None else max(int(run.raw(name).steps[-1]) for name in run.names)
    return Finding("crashed", f"the run ended after step {last} with {facts}{where}.", step=last)


QUESTION = Question(
    code="A7.1",
    name="how the run ended",
    asks="Did an exception end the run, and do its frames show the cause?",
    why="A token id beyond the embedding, or a label beyond the classes, is an error about an index; the frames of the "
    "exception still hold the numbers.",
    needs=("loss",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(
            name="token-out-of-range",
            answer=FAULT,
            meaning="a token id is larger than the embedding",
            fix="Resize the embedding to the tokenizer (model.resize_token_embeddings), or use the tokenizer that "
            "belongs to it.",
            explains=("C", "D", "S"),
        ),
        Outcome(
            name="label-out-of-range",
            answer=FAULT,
            meaning="a label is outside of the classes",
            fix="Count the classes from 0 and give the output layer one score for each; mask with ignore_index.",
            explains=("C", "D", "S"),
        ),
        Outcome(
            name="before-first-step",
            answer=FAULT,
            meaning="the program failed before it trained",
            fix="Repair the line that raises; run `steadyrun preflight` on the program before the next start.",
            explains=("C", "D", "S", "V"),
        ),
        Outcome(
            name="crashed",
            answer=SUSPECT,
            meaning="an exception ended the run before it was finished",
            fix="Repair the line that raises and resume from the last checkpoint; after an out-of-memory error, lower "
            "the batch size or accumulate gradients.",
            experiment="Resume from the last checkpoint: if the same exception comes back at the same step, the batch "
            "or the state at that step causes it; if not, the machine does.",
        ),
        Outcome(name="exception", answer=NOTE, meaning="a person or the cluster ended the run"),
    ),
    find=find,
    always=True,
)
