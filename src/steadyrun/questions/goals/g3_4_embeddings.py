"""G3.4: are the embeddings of a contrastive loss spread out?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import SAMPLES, compared, last_samples
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    others = compared(run)
    if others is None or others < limit["scores"]:
        raise NotApplicable("the loss is not a cross-entropy over the many examples of a batch")
    alike = last_samples(run, "output_alike", limit, np.min)  # in each of the last samples
    rank = last_samples(run, "output_rank", limit, np.max)
    if alike is None or rank is None:
        raise NotApplicable("the embeddings were not measured often enough")
    measured = {"alike": alike, "rank": rank}
    words = f"Embeddings agree in direction by {percent(alike)} and have an effective rank of {shown(rank)}"
    if alike > limit["narrow"]:
        return Finding("narrow", f"{words} (limit {percent(limit['narrow'])}).", measured)
    if rank < limit["rank"] and alike < limit["apart"]:  # in a cone that still opens, a rank says little
        return Finding("one-direction", f"{words} (limit {limit['rank']:g}).", measured)
    return Finding("spread", f"{words}.", measured)


QUESTION = Question(
    code="G3.4",
    name="embeddings are spread out",
    asks="Do the embeddings of a contrastive loss point in many directions?",
    why="Embeddings in a narrow cone, or along one line, keep little of their inputs, although each may still find its "
    "partner.",
    needs=("output_rank", "output_alike"),
    panel=4,
    thresholds=(
        SAMPLES,
        Threshold(
            name="scores",
            value=16,
            unit="scores per example",
            meaning="with fewer, the rank is limited by the batch",
            seed="",
            decision="as in G3.3",
        ),
        Threshold(
            name="patience",
            value=200,
            unit="steps",
            meaning="before this, embeddings may be at their start",
            seed="",
            decision="measured: three healthy runs have spread their embeddings by then",
        ),
        Threshold(
            name="narrow",
            value=0.95,
            unit="length of the mean unit output",
            meaning="embeddings above this lie in a narrow cone",
            seed="",
            decision="measured: 0.10 to 0.16 at the end of three healthy runs, 0.98 with wrong partners, 0.99 with a "
            "temperature of 0.001",
            of="alike",
        ),
        Threshold(
            name="apart",
            value=0.7,
            unit="length of the mean unit output",
            meaning="only embeddings below this have left their first cone, and are asked for their rank",
            seed="",
            decision="chosen: untrained embeddings start at 0.97 and more; two opposite directions have 0",
        ),
        Threshold(
            name="rank",
            value=1.5,
            unit="directions",
            meaning="embeddings with a lower effective rank vary along one line",
            seed="",
            decision="measured: 4.4 to 4.9 at the end of three healthy runs; one line has 1",
            of="-rank",
        ),
    ),
    outcomes=(
        Outcome(name="spread", answer=PASS, meaning="embeddings point in many directions"),
        Outcome(
            name="narrow",
            answer=SUSPECT,
            meaning="all embeddings lie in a narrow cone",
            fix="Use a temperature of 0.05 to 0.5: with a lower one, tiny differences are enough. Check that the two "
            "views of an example are partners.",
            experiment="Train 300 steps with a temperature of 0.1. If the embeddings spread out, it was too low; if "
            "not, check the partners.",
            may_pass=True,
        ),
        Outcome(
            name="one-direction",
            answer=SUSPECT,
            meaning="embeddings vary along one line",
            fix="Check that the two views of an example do not share one feature that is enough to find the partner. "
            "Use a temperature of 0.05 to 0.5 and a larger batch.",
            experiment="Train 300 steps with stronger augmentation. If the rank rises, one feature was enough before.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
