"""L1.1: are the adapters trained?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.adapters import adapters_of
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, listed, percent


def find(run: Signals, limit: Limits) -> Finding:
    adapters = adapters_of(run)
    count = len(adapters.parameters)
    frozen = [name for name, weight in adapters.parameters.items() if weight.get("trainable") is False]
    left_out = [name for name in adapters.parameters if name not in adapters.optimized and name not in frozen]
    merged = run.about("adapters").get("merged")
    measured = {"adapters": float(count), "frozen": float(len(frozen)), "left_out": float(len(left_out))}
    if len(frozen) == count:
        return Finding("frozen", f"All {count:,} tensors of the adapters are frozen ({listed(frozen)}).", measured)
    if run.listed("param_groups") and len(left_out) + len(frozen) == count:
        message = f"No optimizer holds any of the {count:,} tensors of the adapters ({listed(left_out)})."
        return Finding("not-optimized", message, measured)
    if isinstance(merged, int) and merged > 0:
        message = f"{counted(merged, 'adapter layer')} are merged into the base while training."
        return Finding("merged", message, measured | {"merged": float(merged)})
    norms = run.maybe("adapter_norm")
    if norms is not None and len(norms) >= limit["samples"] and float(np.ptp(norms.values)) == 0:
        message = f"The norm of the adapters is {norms.values[0]:g} in all {len(norms)} sampled steps."
        return Finding("never-move", message, measured)
    if left_out and run.listed("param_groups"):
        message = f"{len(left_out):,} of {count:,} tensors of the adapters are in no optimizer ({listed(left_out)})."
        return Finding("partly", message, measured)
    if (new := _untrained_rows(run, limit)) is not None:
        return new
    return Finding("pass", f"{count - len(frozen):,} tensors of the adapters are trained.", measured)


def _untrained_rows(run: Signals, limit: Limits) -> Finding | None:
    """Learned tokens whose rows in the frozen tables look as if they were never trained."""
    facts = run.about("supervision")
    examples, listed_rows = number(facts.get("examples")), facts.get("small_rows")
    if not examples or not isinstance(listed_rows, list):
        return None
    small = [row for row in listed_rows if isinstance(row, list) and row[1] < limit["small"]]
    often = [row for row in small if row[2] > limit["often"] * examples]
    if not often:
        return None
    tokens = ", ".join(f"{row[0]:g}" for row in often)
    message = f"{counted(len(often), 'learned token')} ({tokens}) have rows of at most {percent(often[-1][1])} of the "
    message += "usual size in the frozen tables, as tokens that were never trained have."
    return Finding("new-words", message, {"tokens": float(len(often)), "size": float(often[-1][1])})


_FIX = "Build the optimizer after get_peft_model, on the parameters with requires_grad=True."
_FOLLOWS = ("C4", "S", "V1", "A4")
QUESTION = Question(
    code="L1.1",
    name="adapters train",
    asks="Are the adapters trainable, in an optimizer, and do they move?",
    why="With a frozen base, only the adapters can learn. If they are frozen, in no optimizer or merged into the base, "
    "nothing is trained, however the loss looks.",
    needs=("initial_weights", "param_groups"),
    panel=None,
    thresholds=(
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="how many equal norms show that the adapters do not move",
            seed="",
            decision="an update changes the last bits of some element; the first step of a warmup may have rate zero",
        ),
        Threshold(
            name="small",
            value=0.5,
            unit="of the median row",
            meaning="tokens with smaller rows, in input and output, were never trained",
            seed="",
            decision="chosen: tokens that a model has met have rows of 0.7 and more of the usual size; random ones and "
            "the mean of all rows lie far below",
        ),
        Threshold(
            name="often",
            value=0.05,
            unit="fraction of the examples",
            meaning="such tokens count if they are learned in more examples",
            seed="",
            decision="chosen: rare tokens of a large vocabulary have small rows as well",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the adapters are trained"),
        Outcome(
            name="frozen",
            answer=FAULT,
            meaning="the adapters are frozen",
            fix="Load the adapters with PeftModel.from_pretrained(model, path, is_trainable=True), or call "
            "requires_grad_(True) on them.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="not-optimized",
            answer=FAULT,
            meaning="the adapters are in no optimizer",
            fix=_FIX,
            explains=_FOLLOWS,
        ),
        Outcome(
            name="merged",
            answer=FAULT,
            meaning="the adapters are merged while training, so they get no gradient",
            fix="Call unmerge_adapter() before training, and merge_and_unload() only for inference.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="never-move",
            answer=FAULT,
            meaning="the adapters never move",
            fix="Check that the loss reaches them (call model.enable_input_require_grads() with gradient "
            "checkpointing), and that their learning rate is not zero.",
            explains=_FOLLOWS,
        ),
        Outcome(
            name="new-words",
            answer=SUSPECT,
            meaning="tokens are learned whose rows are untrained and frozen",
            fix='Train the tables as well: modules_to_save=["embed_tokens", "lm_head"], or trainable_token_indices for '
            "the new tokens alone.",
            experiment="Print the accuracy on these tokens after training. If it is that of a guess, their rows must "
            "be trained.",
            explains=("V1", "C4.1"),
        ),
        Outcome(
            name="partly",
            answer=SUSPECT,
            meaning="some adapters are in no optimizer",
            fix=_FIX,
            experiment="Print the names in the optimizer. If the missing adapters are meant to stay fixed, freeze them "
            "with requires_grad_(False).",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
