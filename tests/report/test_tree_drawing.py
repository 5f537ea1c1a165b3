"""The drawing of the trees: every question once, in the order of the walk, and every edge."""

import re

from steadyrun.report.tree_drawing import all_drawn, drawn
from steadyrun.trees import QUESTIONS, TREES

DRAWN = "\n".join(all_drawn())


def test_every_question_once_and_in_order() -> None:
    assert re.findall(r"[├└]─ ([A-Z]\d\.\d)", DRAWN) == list(QUESTIONS)


def test_every_edge_is_an_arrow() -> None:
    edges = [(outcome, targets) for question in QUESTIONS.values() for outcome, targets in question.edges.items()]
    arrows = [line.strip("│ ").split(" → ") for line in DRAWN.splitlines() if " → " in line]
    assert [
        (outcome, tuple(targets.split(", "))) for names, targets in arrows for outcome in names.split(", ")
    ] == edges


def test_each_tree_says_what_comes_after_it() -> None:
    assert drawn("configuration")[-1] == "└─ no fault: the dynamics tree"
    trees = {"configuration", "dynamics", "signatures", "audits", "ranks", "post-training", "vital signs"}
    assert set(TREES) == trees
