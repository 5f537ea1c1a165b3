"""A5.3, before training: is the validation data the same in every pass?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a5_3_validation_data import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_BATCHES = 8  # read a second time


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.labelled_examples import again, hashes

    if not bench.val_batches:
        raise MissingSignal(
            "val_batches", "preflight has no validation batches", "give preflight the validation loader"
        )
    first = bench.val_batches[:_BATCHES]
    if isinstance(bench.task.val_loader, list | tuple):
        raise NotApplicable("the validation batches are a list, the same in every pass")
    second = again(bench.task.val_loader, _BATCHES)
    first_hashes, second_hashes = hashes(first, None), hashes(second, None)
    changed = sum(
        int((a != b).sum()) if a.shape == b.shape else len(a) for a, b in zip(first_hashes, second_hashes, strict=False)
    )
    count = sum(map(len, first_hashes))
    measured = {"changed": float(changed), "examples": float(count)}
    facts = f"{changed} of {count} validation examples differ in a second pass"
    if not changed:
        return Finding("pass", f"{facts}.", measured)
    matched = _same_classes(bench, first, second)
    if not matched or matched < limit["before_examples"]:
        return Finding(
            "drawn", f"{facts}. Whether the pass draws other examples or changes their content is unknown.", measured
        )
    shared = _shared(bench)
    if shared:
        message = f"{facts}, while all {matched} labels agree. An item fetched twice differs, and {shared}."
        return Finding("changed", message, measured)
    return Finding("content-differs", f"{facts}, while all {matched} labels agree.", measured)


def _same_classes(bench: Bench, first: list[Any], second: list[Any]) -> int:
    """The number of labels if they agree at every index; 0 if they do not, or if all are alike."""
    from steadyrun.preflight.labelled_examples import classes_of

    classes = classes_of(bench)
    if classes is None:
        return 0
    first_labels = [label for batch in first if (labels := classes.of(batch)) is not None for label in labels.tolist()]
    second_labels = [
        label for batch in second if (labels := classes.of(batch)) is not None for label in labels.tolist()
    ]
    telling = len(set(first_labels)) > 1 and first_labels != sorted(first_labels)
    return len(first_labels) if first_labels == second_labels and (telling or _in_order(bench.task.val_loader)) else 0


def _in_order(loader: Any) -> bool:
    """Whether the loader reads its dataset in order."""
    return type(getattr(loader, "sampler", None)).__name__ == "SequentialSampler" and type(
        loader.batch_sampler
    ).__module__.startswith("torch.")


def _shared(bench: Bench) -> str:
    """What training and validation share that draws at random; "" if nothing does."""
    from steadyrun.preflight.loader_trials import base_of, digest, torch_loader

    try:
        training, validation = torch_loader(bench.task.loader), torch_loader(bench.task.val_loader)
    except NotApplicable:
        return ""
    val_dataset: Any = validation.dataset
    try:
        drawn = {digest(val_dataset[0]) for _ in range(8)}
    except Exception:  # items that only a worker can fetch
        return ""
    if len(drawn) < 2:
        return ""  # the collate function makes the difference
    train_base, val_base = base_of(training.dataset), base_of(val_dataset)
    if train_base is val_base:
        return "training and validation share one dataset and its transform"
    transforms = [getattr(train_base, name, None) for name in ("transform", "transforms")]
    same = [transform for transform in transforms if transform is not None and transform in (vars(val_base).values())]
    return "validation uses the training transform" if same else ""


QUESTION = probe_of(
    RECORDED,
    asks="Does every validation pass give the same examples with the same content?",
    needs=("val_batches",),
    thresholds=(
        Threshold(
            name="before_examples",
            value=16,
            unit="examples",
            meaning="labels that agree at every index, which shows the examples are the same",
            seed="",
            decision="sixteen unsorted labels of more than one class agree by chance once in 65,536 times or less",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "drawn"),
        Outcome(
            name="content-differs",
            answer=NOTE,
            meaning="validation examples change between passes (random crops or noise)",
            fix="If this is not intended, give validation its own transform without random draws.",
        ),
        same(RECORDED, "changed", ("C4.2", "S1.3")),
    ),
    find=find,
)
