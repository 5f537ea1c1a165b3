"""M1.4: does the text fit the tokenizer, and are packed texts kept apart?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.supervision.counts import EXAMPLES, counts_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, listed


def find(run: Signals, limit: Limits) -> Finding:
    counts = counts_of(run, limit)
    twice = counts.fraction("double_starts", "examples")
    packed, restarts = counts["packed"], counts["restarts"]
    measured = {"double_starts": twice, "packed": float(packed), "restarts": float(restarts)}
    if counts.foreign:
        message = f"The tokenizer splits {counted(len(counts.foreign), 'marker')} into several tokens: "
        message += f"{listed(counts.foreign)}."
        return Finding("foreign", message, measured | {"markers": float(len(counts.foreign))})
    if twice > limit["twice"]:
        message = f"{counts['double_starts']:,} of {counts['examples']:,} examples begin with two start tokens."
        return Finding("twice", message, measured)
    if packed and restarts < packed and counts["apart"] < packed:
        message = f"{packed:,} of {counts['examples']:,} rows hold several texts; positions restart in {restarts:,}."
        prompts = counts.learned("user")
        chats = prompts is not None and prompts <= limit["few"]
        return Finding("partly" if restarts else "mixed" if chats else "together", message, measured)
    return Finding("pass", f"{counts['examples']:,} examples fit the tokenizer.", measured)


QUESTION = Question(
    code="M1.4",
    name="text fits the tokenizer",
    asks="Do the chat markers exist in the tokenizer, does each text start once, and are packed texts kept apart?",
    why="The template of another model is read as ordinary text. A second start token shifts what the model expects. "
    "Packed texts that see each other learn to answer the wrong question.",
    needs=("supervision",),
    panel=1,
    thresholds=(
        EXAMPLES,
        Threshold(
            name="twice",
            value=0.5,
            unit="fraction of the examples",
            meaning="with more double starts, template and tokenizer both add one",
            seed="",
            decision="chosen: a text may quote a start token by chance",
        ),
        Threshold(
            name="few",
            value=0.1,
            unit="fraction of the prompts' tokens",
            meaning="if fewer are learned, the packed texts are chats whose answers belong to their own prompts",
            seed="",
            decision="as in M1.2",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the text fits the tokenizer"),
        Outcome(
            name="foreign",
            answer=SUSPECT,
            meaning="the chat template belongs to another model",
            fix="Use tokenizer.apply_chat_template with this model's own template, or add the markers as special "
            "tokens and train their embeddings.",
            experiment="Tokenize one marker alone. If it gives more than one token, the tokenizer does not know it.",
        ),
        Outcome(
            name="twice",
            answer=SUSPECT,
            meaning="texts start with two start tokens",
            fix="Tokenize the templated text with add_special_tokens=False.",
            experiment="Print the first three token ids of one example. If two are the start token, one is too many.",
        ),
        Outcome(
            name="together",
            answer=NOTE,
            meaning="several texts share a row and see each other",
            fix="Use padding-free batches with position_ids that restart (packing with flash attention), or a block "
            "mask; for pretraining this is usual.",
        ),
        Outcome(
            name="mixed",
            answer=SUSPECT,
            meaning="packed chats see each other: an answer is learned with other chats before its prompt",
            fix="Give each row position_ids that restart with every chat (padding-free batches with flash attention), "
            "or an attention mask that keeps the chats apart.",
            experiment="Compute the loss of one chat alone and behind another one in the same row. If they differ, "
            "the chats see each other.",
        ),
        Outcome(
            name="partly",
            answer=SUSPECT,
            meaning="positions restart in some packed rows and not in others",
            fix="Reset position_ids at every start of a text.",
            experiment="Print position_ids of one packed row. They must restart at 0 with every text.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
