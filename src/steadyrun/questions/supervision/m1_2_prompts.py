"""M1.2: are prompts masked everywhere, or nowhere?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.supervision.counts import EXAMPLES, counts_of
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    counts = counts_of(run, limit)
    prompts = counts.learned("user")
    if prompts is None:
        raise NotApplicable("the texts have no known marker of a user's turn, or the tokenizer is not known")
    measured = {"prompts": prompts}
    facts = f"{percent(prompts)} of the prompts' tokens are learned"
    if prompts <= limit["few"]:
        return Finding("masked", f"{facts}.", measured)
    if prompts >= 1 - limit["few"]:
        return Finding("learned", f"{facts}.", measured)
    return Finding("partly", f"{facts}.", measured)


QUESTION = Question(
    code="M1.2",
    name="prompts are masked",
    asks="Are the prompts of a chat masked in all examples?",
    why="Fine-tuning on chats usually learns the answers only. If prompts are learned as well, the model spends its "
    "capacity on predicting users; if some are and some are not, the mask is wrong.",
    needs=("supervision",),
    panel=1,
    thresholds=(
        EXAMPLES,
        Threshold(
            name="few",
            value=0.1,
            unit="fraction of the prompts' tokens",
            meaning="fewer learned tokens are the markers at the seams",
            seed="",
            decision="a template's markers are up to a tenth of a short prompt",
        ),
    ),
    outcomes=(
        Outcome(name="masked", answer=PASS, meaning="the prompts are masked"),
        Outcome(
            name="learned",
            answer=NOTE,
            meaning="the prompts are learned as well",
            fix="Mask them if only the answers should be learned: assistant_only_loss=True or "
            "completion_only_loss=True in TRL, train_on_inputs: false in axolotl.",
        ),
        Outcome(
            name="partly",
            answer=SUSPECT,
            meaning="some prompts are learned and others are masked",
            fix="Check the mask of conversations with several turns: every user turn must be masked.",
            experiment="Run steadyrun look on the program and compare the coloured turns of three examples.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
