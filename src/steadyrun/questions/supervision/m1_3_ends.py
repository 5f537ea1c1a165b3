"""M1.3: do answers end, and is the end learned?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.supervision.counts import CUT, EXAMPLES, HARDLY, Counts, broken_off, counts_of, need_answers
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    counts = counts_of(run, limit)
    if counts.fraction("learned_padding", "learned") > limit["padding"]:
        share = counts.fraction("learned_padding", "learned")
        message = f"Padding is {percent(share)} of the learned tokens (limit {percent(limit['padding'])})."
        return Finding("padding", message, {"padding": share})
    need_answers(run, limit)
    following = max(1, counts["tokens"] - counts["examples"])  # nothing predicts the first token
    if "ends" not in counts or not (counts.roles or counts["learned"] < (1 - limit["prompts"]) * following):
        raise NotApplicable("the end-of-text token is unknown, or the texts are not chats")
    return _of_ends(counts, limit)


def _of_ends(counts: Counts, limit: Limits) -> Finding:
    cut = counts.fraction("cut", "examples")
    measured = {"ends": float(counts["ends"]), "learned": float(counts["learned_ends"]), "cut": cut}
    facts = f"{counts['ends']:,} ends of texts in {counts['examples']:,} examples, {counts['learned_ends']:,} learned"
    truncated = f"{percent(cut)} of the examples reach the full length without an end"
    if not counts["ends"] and counts["packed"]:  # not even texts within a row have an end
        return Finding("no-ends", f"{counts['packed']:,} rows hold several texts, none of which has an end.", measured)
    alike = counts.fraction("last_alike", "examples")
    if not counts["ends"] and alike > limit["alike"]:
        message = f"{percent(alike)} of the examples end with the same token, which is not the end-of-text token."
        return Finding("no-ends", message, measured | {"alike": alike})
    if cut > limit["cut"]:
        return Finding("cut", f"{truncated} (limit {percent(limit['cut'])}).", measured)
    if (words := broken_off(counts, limit)) is not None:
        return Finding("cut", f"{words} (limit {percent(limit['cut'])}).", measured)
    if not counts["ended"]:
        return Finding("no-ends", f"None of {counts['examples']:,} examples ends with the end-of-text token.", measured)
    if not counts["learned_ends"]:
        return Finding("masked", f"{facts}.", measured)
    if cut > limit["some"]:
        return Finding("some-cut", f"{truncated}; {facts}.", measured)
    return Finding("learned", f"{facts}.", measured)


_TEMPLATE = "Add the end-of-text token to the chat template's assistant turn, and set pad_token to a separate token."
QUESTION = Question(
    code="M1.3",
    name="ends are learned",
    asks="Do the answers end with the end-of-text token, and is that token learned?",
    why="A model that never sees or never learns the end of an answer does not stop. Truncated answers teach it to "
    "break off.",
    needs=("supervision", "eos_id"),
    panel=1,
    thresholds=(
        EXAMPLES,
        HARDLY,
        Threshold(
            name="padding",
            value=0.05,
            unit="fraction of the learned tokens",
            meaning="with more padding, the loss is about padding",
            seed="",
            decision="as in A3.4",
        ),
        CUT,
        Threshold(
            name="prompts",
            value=0.1,
            unit="fraction of the tokens",
            meaning="if more are masked, texts without known markers are prompts with answers",
            seed="",
            decision="as in M1.2: fewer masked tokens are seams",
        ),
        Threshold(
            name="alike",
            value=0.9,
            unit="fraction of the examples",
            meaning="if more end with the same token, texts are complete and that token is their end",
            seed="",
            decision="chosen: truncated texts end with any token",
        ),
        Threshold(
            name="some",
            value=0.1,
            unit="fraction of the examples",
            meaning="fewer truncated examples are usual",
            seed="",
            decision="chosen",
        ),
    ),
    outcomes=(
        Outcome(name="learned", answer=PASS, meaning="the model learns to stop"),
        Outcome(
            name="some-cut",
            answer=NOTE,
            meaning="some answers are truncated",
            fix="Raise the maximum length, or leave long examples out.",
        ),
        Outcome(
            name="cut",
            answer=SUSPECT,
            meaning="most answers are truncated before their end",
            fix="Raise the maximum length (max_length), or split long examples.",
            experiment="Count the tokens of 100 examples without truncation. If most are longer than the maximum "
            "length, raise it.",
            explains=("A3.5", "A5.9", "G1.1", "V1", "C4"),
        ),
        Outcome(
            name="no-ends",
            answer=SUSPECT,
            meaning="no example has an end, so the model never learns to stop",
            fix=_TEMPLATE,
            experiment="Print the last tokens of one example. If the end-of-text token is missing, the template lacks "
            "it.",
        ),
        Outcome(
            name="masked",
            answer=SUSPECT,
            meaning="every end is masked, so the model never learns to stop",
            fix="Use a separate padding token, or mask by the attention mask instead of by the token id.",
            experiment="Print the label at the last token of one answer. If it is -100, the end is masked.",
            explains=("A3.5",),
        ),
        Outcome(
            name="padding",
            answer=SUSPECT,
            meaning="padding is learned",
            fix="Set the labels of padding to -100.",
            experiment="Print the labels of one padded example. If they are not -100 at the padding, they are learned.",
            explains=("A3.4", "C4", "V1"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
