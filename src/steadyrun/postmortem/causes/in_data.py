"""Causes in the data: an unusual batch, and a loader that repeats a batch."""

from __future__ import annotations

import shlex

from steadyrun.postmortem.causes.hypothesis import (
    AGAINST,
    FAVOURS,
    PROVES,
    RULES_OUT,
    Cause,
    Grounds,
    Sign,
    examples,
    raised_at,
)
from steadyrun.postmortem.remedies import FIX, Remedy, lower_clip, regular_clip, tried_clip
from steadyrun.store.incident_files import text, to_number
from steadyrun.text import shown

_CLEARLY, _HARDLY = 5.0, 1.5  # factors on the mean before: a gradient norm that is unusual, and one that is not
_CROWDED = 3  # occurrences in one batch beyond the expected number
_AT_ONCE = 5  # steps within which a harmless spike is over
_HARD = 1.5  # factor on the loss before: a batch whose tokens are hard as a whole


def _weigh_unusual(look: Grounds) -> list[Sign]:
    signs = look.experiments("data") + look.fault("D2.3", "long-tail-batch")
    if _not_finite(look):
        signs += look.sign("culprit", PROVES)
    count, times = look.value("unusual"), look.value("gradient")
    if look.numbers.level is None:  # at the start every batch is new
        return signs
    if count is not None and look.case.batch_is_of_the_beginning:
        signs += (
            look.sign("unusual", FAVOURS, 2.0 if _crowded(look) else 0.5) if count else look.sign("unusual", AGAINST)
        )
    if times is not None and not look.case.moment.non_finite:
        signs += look.sign(
            "gradient",
            FAVOURS if times >= _CLEARLY else AGAINST if times < _HARDLY else FAVOURS,
            2.0 if times >= _CLEARLY else 0.5,
        )
    return signs + _weigh_losses(look)


def _crowded(look: Grounds) -> bool:
    """Whether a token is clearly more frequent than expected, not just a rare token that occurs once."""
    excess = [
        (to_number(token.get("in_batch")) or 0.0) - (to_number(token.get("expected")) or 0.0)
        for token in look.case.proofs.unusual
    ]
    return max(excess, default=0.0) >= _CROWDED


def _weigh_losses(look: Grounds) -> list[Sign]:
    """A spike that is over immediately came from the batch, not from the weights; its tokens are hard."""
    signs: list[Sign] = []
    spike, level = look.case.moment.spike, look.numbers.level
    if spike is not None:
        at_once = spike.length is not None and spike.length <= _AT_ONCE and spike.peak == spike.start
        signs += look.sign("loss", FAVOURS, 1.0) if at_once else look.sign("loss", AGAINST, 0.5)
    middle = look.value("tokens")
    if middle is not None and level is not None and level > 0 and middle > _HARD * level:
        signs += look.sign("tokens", FAVOURS, 1.0)
    return signs


def _not_finite(look: Grounds) -> bool:
    """Whether the batch itself contained a NaN or an infinity."""
    return text(look.case.proofs.culprit, "stage") == "data" and look.case.proofs.reproduced


def _raised(look: Grounds) -> str:
    """The exception that the step raised; "" if it did not."""
    return text(look.case.proofs.incident, "why") if look.case.moment.raised else ""


def _rare(look: Grounds) -> str:
    """The unusual tokens of the batch that started the incident; "" if there are none."""
    tokens = look.case.proofs.unusual if look.case.batch_is_of_the_beginning else []
    finite = not _not_finite(look) and not _raised(look)
    return ", ".join(f"{text(token, 'text')!r} {token.get('in_batch')} times" for token in tokens[:3]) if finite else ""


def _in_brackets(look: Grounds) -> str:
    said = _rare(look) or examples(look)
    return f" ({said})" if said else ""


def _batch(look: Grounds) -> str:
    step = look.case.trouble
    index = look.numbers.recorded("batch_index", step)
    return f"batch {index:.0f} (step {step})" if index is not None else f"the batch of step {step}"


def _entry(look: Grounds) -> str:
    """The name of the batch entry that is not finite."""
    return text(look.case.proofs.culprit, "module") if _not_finite(look) else ""


def _unusual_sentence(look: Grounds) -> str:
    if _not_finite(look):
        named = f" in {_entry(look)!r}" if _entry(look) else ""
        return f"The data are not finite: {_batch(look)} contains a NaN or an infinity{named}{_in_brackets(look)}."
    if raised := _raised(look):
        return f"The data of {_batch(look)} make the step raise {raised.removesuffix('.')}{_in_brackets(look)}."
    times = look.numbers.gradient_times
    gradient = ""
    if times is not None and times >= _HARDLY:
        gradient = f", with a gradient norm {shown(times)} times its normal level"
    return f"The data of {_batch(look)} caused it{_in_brackets(look)}{gradient}."


def _unusual_remedies(look: Grounds) -> list[Remedy]:
    if _not_finite(look):
        return [_guard(look)]
    if _rare(look):
        return [_spread(look), *_clip(look)]
    which = examples(look) or f"the examples of {_batch(look)}"
    said = f"Inspect {which}: repair or drop broken examples, and clamp extreme values."
    run, step = shlex.quote(str(look.case.run)), look.case.moment.step
    if raised := _raised(look):
        return [Remedy(FIX, said, f"{raised_at(look)}: validate the batch before this line", raised)]
    why = f"with other data the step is harmless{_left(look)}"
    return [Remedy(FIX, said, f"steadyrun replay {run} --step {step} --export DIR   # writes them", why), *_clip(look)]


def _guard(look: Grounds) -> Remedy:
    """Drop the non-finite examples when loading them."""
    which = f": {examples(look)}" if examples(look) else ""
    said = f"Drop the non-finite examples of {_batch(look)}{which}, or repair their source."
    entry = _entry(look)
    part = f"each[{entry}]" if entry.isdigit() else f"each[{entry!r}]" if entry.isidentifier() else "each"
    change = f"examples = [each for each in examples if torch.isfinite({part}).all()]   # first line of collate_fn"
    return Remedy(FIX, said, change, text(look.case.proofs.culprit, "message"))


def _spread(look: Grounds) -> Remedy:
    return Remedy(
        FIX,
        f"Inspect the examples of {_batch(look)}, and spread rare examples over all batches (steadyrun.data).",
        f"loader = DataLoader(dataset, batch_sampler=StratifiedBatchSampler(token_ids, {_sampler(look)}))",
        f"the batch contains {_rare(look)}{_left(look)}",
    )


def _clip(look: Grounds) -> list[Remedy]:
    return tried_clip(look.case, look.numbers) or lower_clip(look.case, look.numbers)


def _sampler(look: Grounds) -> str:
    size, seed = (look.case.signals.declared(name) for name in ("batch_size", "seed"))
    parts = ["batch_size=…" if size is None else f"batch_size={size:g}", *([] if seed is None else [f"seed={seed:g}"])]
    return ", ".join(parts)


def _left(look: Grounds) -> str:
    said = regular_clip(look.numbers)
    return f". {said}" if said else ""


def _unusual_lesson(look: Grounds) -> str:
    if _not_finite(look):
        part = f"{_entry(look)!r} of {_batch(look)}" if _entry(look) else _batch(look)
        return f"{part} contained a NaN or an infinity{_in_brackets(look)}; check torch.isfinite when loading examples."
    if raised := _raised(look):
        return f"{_batch(look)}{_in_brackets(look)} made the step raise {raised}; validate examples when loading them."
    times = look.numbers.gradient_times
    size = (
        f" raised the gradient norm to {shown(times)} times its normal level"
        if times is not None and times >= _HARDLY
        else " made the loss jump"
    )
    remedy = "spread rare tokens over all batches" if _rare(look) else "check for outliers when loading examples"
    return f"{_batch(look)}{_in_brackets(look)}{size}; {remedy}."


def _unusual_words(look: Grounds) -> tuple[str, str, int | None]:
    if _not_finite(look):
        return "A non-finite batch", "the data contained a NaN or an infinity before the step began", None
    if look.case.moment.raised:
        return "A batch that breaks the step", "one batch contains something that the program cannot handle", None
    title = "A rare token or an unusual batch" if look.case.has_tokens else "An unusual batch"
    return title, "one batch differs from the others: its loss is high, and its gradient dominates the update", 3


UNUSUAL_BATCH = Cause(
    "unusual-batch",
    "An unusual batch",
    "one batch differs from the others",
    3,
    _weigh_unusual,
    _unusual_sentence,
    _unusual_remedies,
    _unusual_lesson,
    named=_unusual_words,
)


def _weigh_repeated(look: Grounds) -> list[Sign]:
    signs = look.fault("D2.3", "duplicate-batch")
    same = look.value("hash")
    if same is not None and not signs:
        signs += look.sign("hash", FAVOURS, 2.0) if same else look.sign("hash", RULES_OUT)
    return signs


def _from_walk(look: Grounds, code: str = "D2.3") -> str:
    asked = look.case.answer(code)
    return "" if asked is None else asked.answer.message


def _repeated_remedies(look: Grounds) -> list[Remedy]:
    asked = look.case.answer("D2.3")
    fix = asked.answer.fix if asked is not None else ""
    return [
        Remedy(
            FIX,
            fix or "Make the loader yield each batch once.",
            "sampler.set_epoch(epoch); one iterator per epoch, no shared buffers",
            _from_walk(look),
        )
    ]


REPEATED_BATCH = Cause(
    "repeated-batch",
    "The data loader repeats a batch",
    "the same batch repeats, and the model overfits to it",
    1,
    _weigh_repeated,
    lambda look: f"The data loader repeated batches: {_from_walk(look)}",
    _repeated_remedies,
    lambda _look: "A loader that repeats one batch looks like learning until the next batch; compare batch hashes.",
)
