"""Job: the order of the questions, and the engine that asks them.
May import: questions and below.
Entry point: `walker.walk`.
Output: a `Walk`: the questions asked, with their answers.
"""

from steadyrun.questions.form import Question
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import audits, configuration, dynamics, post_training, ranks, signatures, vital_signs

TREES: dict[str, tuple[Question, ...]] = {
    "configuration": configuration.TREE,
    "dynamics": dynamics.TREE,
    "signatures": signatures.TREE,
    "audits": audits.TREE,
    "ranks": ranks.TREE,
    "post-training": post_training.TREE,
    "vital signs": vital_signs.TREE,
}
QUESTIONS: dict[str, Question] = {question.code: question for tree in TREES.values() for question in tree}
"""All questions by code, in the order of the walk."""


def questions_of(run: Signals) -> dict[str, Question]:
    """The questions that a run is asked: those about ranks only if it has several processes."""
    left_out = {question.code for question in ranks.TREE} if run.ranks is None else set()
    return {code: question for code, question in QUESTIONS.items() if code not in left_out}
