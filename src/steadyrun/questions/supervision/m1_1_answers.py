"""M1.1: are the answers learned?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.supervision.counts import EXAMPLES, HARDLY, counts_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    counts = counts_of(run, limit)
    empty = counts.fraction("empty", "examples")
    measured = {"learned": counts.fraction("learned", "tokens"), "empty": empty}
    facts = f"{percent(measured['learned'])} of {counts['tokens']:,} tokens are learned"
    if not counts["learned"]:
        return Finding("nothing", f"None of {counts['tokens']:,} tokens is learned: every label is masked.", measured)
    answers, prompts = counts.learned("assistant"), counts.learned("user")
    if answers is not None and prompts is not None:
        measured |= {"answers": answers, "prompts": prompts}
        facts = f"{percent(answers)} of the answers' tokens and {percent(prompts)} of the prompts' are learned"
        if answers < limit["hardly"] and prompts > answers:
            return Finding("reversed", f"{facts}.", measured)
    empties = f"{counts['empty']:,} of {counts['examples']:,} examples have no learned token"
    if empty > limit["empty"]:
        return Finding("empty", f"{empties} (limit {percent(limit['empty'])}).", measured)
    if counts["empty"]:
        return Finding("some-empty", f"{empties}; {facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="M1.1",
    name="answers are learned",
    asks="Does every example have learned tokens, and are they those of the answer?",
    why="A wrong mask is silent: the loss falls on whatever is left. Examples without a label teach nothing; a mask "
    "the wrong way round teaches the prompts.",
    needs=("supervision",),
    panel=1,
    thresholds=(
        EXAMPLES,
        HARDLY,
        Threshold(
            name="empty",
            value=0.2,
            unit="fraction of the examples",
            meaning="with more examples without a label, the mask or the maximum length is wrong",
            seed="",
            decision="chosen: long prompts lose their answers now and then",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the answers are learned"),
        Outcome(
            name="some-empty",
            answer=NOTE,
            meaning="some examples have nothing to learn",
            fix="Leave them out, or raise the maximum length: their answers are truncated away.",
        ),
        Outcome(
            name="nothing",
            answer=FAULT,
            meaning="every label is masked",
            fix="Print one decoded example with its labels. Check the response template of the collator: it must match "
            "the tokenized text exactly.",
            explains=("C", "S", "V1", "D1", "A3"),
        ),
        Outcome(
            name="reversed",
            answer=SUSPECT,
            meaning="the prompts are learned and the answers are masked",
            fix="Invert the mask: labels of the prompt must be -100, labels of the answer the token ids.",
            experiment="Run steadyrun look on the program and read three examples: learned tokens are coloured.",
            explains=("V1", "C4", "S"),
        ),
        Outcome(
            name="empty",
            answer=SUSPECT,
            meaning="many examples have nothing to learn",
            fix="Check the response template, the order of truncation and the maximum length.",
            experiment="Run steadyrun look on the program: it shows the examples without a learned token.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
