"""A5.7: does every input come with its own label?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.signatures import s1_4_labels
from steadyrun.signals.facts import CROSS_ENTROPY
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    same, steps = _same_targets(run, limit)
    if _one_class(run):
        raise NotApplicable("all labels have one class, which A5.9 covers")
    again, changed = _changed_targets(run)
    measured = {"same": same, "again": again, "changed": changed / again if again else 0.0}
    if same >= (1.0 if _by_chance(run, limit) else limit["same"]):
        batches = f"All {steps:,} batches" if same == 1 else f"{percent(same)} of {steps:,} batches"
        facts = f"{batches} have the same targets in the same order, though inputs differ"
        return _judged("repeated", facts, measured, run, limit)
    if again >= limit["again"] and changed > limit["changed"] * again and _chooses(run, limit):
        facts = f"{percent(changed / again)} of {again:,.0f} repeated examples came with a different label"
        return _judged("reassigned", facts, measured, run, limit)
    return Finding("pass", f"{percent(same)} of {steps:,} batches have the same targets in the same order.", measured)


def _same_targets(run: Signals, limit: Limits) -> tuple[float, int]:
    """Of the batches with different inputs: the fraction with the most frequent targets, and how many there are."""
    if not run.has("target_hash"):
        if run.has("batch_hash"):
            raise NotApplicable("a batch is one array without separate targets")
        raise MissingSignal("target_hash", "the batches were not recorded", "give run.step(loss, batch=…) the batch")
    targets, batches = run.points("target_hash"), run.points("batch_hash")
    if len(targets) < limit["steps"]:
        raise MissingSignal("target_hash", f"recorded batches: {len(targets)}, needed: {limit['steps']:g}")
    of_targets = targets.values[np.isin(targets.steps, batches.steps)]
    of_batches = batches.values[np.isin(batches.steps, targets.steps)]
    pairs = np.unique(np.stack([of_targets, of_batches]), axis=1)
    _, counts = np.unique(pairs[0], return_counts=True)
    different = int(counts.sum())
    if different < limit["different"]:
        raise NotApplicable(f"too few different batches ({different}): repeated labels prove nothing")
    return float(counts.max() / different), different


def _one_class(run: Signals) -> bool:
    alike = run.maybe("targets/alike_overall")
    return alike is not None and float(alike.values[-1]) >= 1


def _by_chance(run: Signals, limit: Limits) -> bool:
    """Whether batches may have the same labels by chance: they are small, or nearly all of one class."""
    examples, alike = run.maybe("examples"), run.maybe("targets/alike_overall")
    size = float(np.median(examples.values)) if examples is not None else 1.0
    if alike is None:
        return size < limit["small"]
    return bool(float(alike.values[-1]) ** (size / 2) > limit["chance"])  # the most frequent class, in every example


def _changed_targets(run: Signals) -> tuple[float, float]:
    """How many sampled examples were repeated, and how many of them with a different target."""
    again, changed = run.maybe("inputs_again"), run.maybe("targets_changed")
    if again is None or changed is None:
        return 0.0, 0.0
    return float(again.values.sum()), float(changed.values.sum())


def _chooses(run: Signals, limit: Limits) -> bool:
    """Whether the loss chooses a class: other targets, such as noise or another view, change on purpose."""
    return known_facts(run, limit).objective == CROSS_ENTROPY


def _judged(kind: str, facts: str, measured: dict[str, float], run: Signals, limit: Limits) -> Finding:
    """If the model still learns, the labels are intended, such as those of an episode or of contrastive pairs."""
    loss, val = levels(run, "loss", limit["losses"]), run.maybe("val_loss")
    known = known_facts(run, limit)
    if val is not None:
        start = known.guess if known.guess is not None else max(float(val.values[0]), loss.start)
        reached, what = float(np.min(val.values)), "validation loss"
    else:
        start = known.guess if known.guess is not None else loss.start
        reached, what = loss.best, "loss"
    measured["reached"] = reached / start if start else 1.0
    facts = f"{facts}. The best {what} is {shown(reached)}"
    if known.moves_freely or measured["reached"] < limit["learned"]:
        return Finding("meant", f"{facts}: the model learns.", measured)
    proved = limit.ask(s1_4_labels.QUESTION, run).outcome == "unrelated"
    outcome = f"{kind}-unrelated" if proved else kind
    base = "a guess costs" if known.guess is not None else "it began at"
    return Finding(outcome, f"{facts}; {base} {shown(start)}.", measured)


_EXPERIMENT = (
    "Print ten inputs with their labels from the loop, twice, one epoch apart. Each input must have its own label, and "
    "the same label both times."
)
_FIX = {
    "repeated": "Take inputs and labels from the loader together in each step; do not reuse the labels of one batch.",
    "reassigned": "Shuffle inputs and labels with the same permutation.",
}
_MEANING = {
    "repeated": "every batch gets the labels of the same batch",
    "reassigned": "inputs get a different label each time they come",
}
_FOLLOWS = ("C3", "C4", "S1", "V1.1", "V1.2", "V1.3")

QUESTION = Question(
    code="A5.7",
    name="labels stay with their inputs",
    asks="Does every input come with its own label?",
    why="Labels of another batch, or shuffled separately from their inputs, leave nothing to learn: the loss stops at "
    "a guess, as it does if a model is too small or a learning rate is wrong.",
    needs=("batch",),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="steps",
            value=20,
            unit="steps",
            meaning="fewer do not show a repetition",
            seed="",
            decision="as in V1.6",
        ),
        Threshold(
            name="different",
            value=5,
            unit="different batches",
            meaning="fewer may have the same labels by chance, or be the whole data",
            seed="",
            decision="full-batch training has one",
        ),
        Threshold(
            name="same",
            value=0.8,
            unit="fraction of the batches",
            meaning="how many may have the same targets in the same order",
            seed="",
            decision="healthy runs reach 0.18, with batches of one; the last batch of an epoch may be shorter",
            of="same",
        ),
        Threshold(
            name="chance",
            value=0.01,
            unit="fraction of the batches",
            meaning="if more may have the same labels by chance, all batches must have them",
            seed="",
            decision="batches of one example, and data of nearly one class",
        ),
        Threshold(
            name="small",
            value=8,
            unit="examples",
            meaning="smaller batches may have the same labels by chance, if the classes are unknown",
            seed="",
            decision="two equal classes: 1 of 256",
        ),
        Threshold(
            name="again",
            value=100,
            unit="examples",
            meaning="fewer repeated examples are chance",
            seed="",
            decision="three batches of 32",
        ),
        Threshold(
            name="changed",
            value=0.3,
            unit="of the repeated examples",
            meaning="how many may have a different label",
            seed="",
            decision="healthy runs have none; intended label noise is about 20%, two classes shuffled separately give "
            "50%",
            of="changed",
        ),
        Threshold(
            name="learned",
            value=0.85,
            unit="of the loss of a guess, or of the first loss",
            meaning="below this the model learns from its inputs",
            seed="",
            decision="with labels shuffled within a batch a little can be learned: one label in 32 is right",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="labels come with their inputs"),
        Outcome(
            name="meant",
            answer=PASS,
            meaning="labels repeat or change, but the model learns from its inputs",
        ),
        *(
            Outcome(
                name=kind,
                answer=SUSPECT,
                meaning=_MEANING[kind],
                fix=_FIX[kind],
                experiment=_EXPERIMENT,
                may_pass=True,
                explains=_FOLLOWS,
            )
            for kind in ("repeated", "reassigned")
        ),
        *(
            Outcome(
                name=f"{kind}-unrelated",
                answer=FAULT,
                meaning=f"{_MEANING[kind]}: nothing is learned",
                fix=_FIX[kind],
                may_pass=True,
                explains=_FOLLOWS,
            )
            for kind in ("repeated", "reassigned")
        ),
    ),
    find=find,
    always=True,
)
