"""Job: the order of the questions, and the engine that asks them.
May import: questions and below.
Entry point: `walker.walk`.
Output: a `Walk`: the questions asked, with their answers.
"""

from steadyrun.questions.form import Question
from steadyrun.trees import audits, configuration, dynamics, post_training, signatures, vital_signs

TREES: dict[str, tuple[Question, ...]] = {
    "configuration": configuration.TREE,
    "dynamics": dynamics.TREE,
    "signatures": signatures.TREE,
    "audits": audits.TREE,
    "post-training": post_training.TREE,
    "vital signs": vital_signs.TREE,
}
QUESTIONS: dict[str, Question] = {question.code: question for tree in TREES.values() for question in tree}
"""All questions by code, in the order of the walk."""
