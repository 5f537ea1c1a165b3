"""Advice for a script that nobody edits."""

import pytest
from synthetic import Synthetic

from steadyrun.questions.configuration import c4_2_generalisation
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.script_advice import for_script


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        (HOW_TO_RECORD["val_loss"], "print or log the validation loss after each validation"),
        (HOW_TO_RECORD["vocab_size"], "use --declare vocab_size=… (or num_classes)"),
        (HOW_TO_RECORD["causal"], "use --declare causal=true if no position may see a later one"),
        (
            HOW_TO_RECORD["no_decay"],
            'use --declare \'no_decay=["bias", "norm"]\', parts of the names without weight decay',
        ),
        (
            "Declare config={'init': 'random'} or config={'init': 'pretrained'}.",
            "Use --declare init=random or --declare init=pretrained.",
        ),
        (
            HOW_TO_RECORD["example_hash/val"],
            "add steadyrun.record to the script, then give run.val(loss, batches=…) the validation batches",
        ),
        ("train for longer", "train for longer"),
    ],
)
def test_advice_names_options_and_printed_lines(advice: str, expected: str) -> None:
    assert for_script(advice) == expected


@pytest.mark.parametrize(("recorded_by", "word"), [("steadyrun run", "print or log"), ("", "run.val(loss)")])
def test_an_answer_depends_on_what_recorded_the_run(recorded_by: str, word: str) -> None:
    run = Signals(Synthetic(manifest={"recorded_by": recorded_by}, loss=[3.0, 2.0, 1.0]))
    assert word in c4_2_generalisation.QUESTION.ask(run).how_to_record
