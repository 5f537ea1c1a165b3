"""Causes in the data: a batch that is unlike the others, and a loader that repeats one."""

from __future__ import annotations

from steadyrun.postmortem.causes.form import AGAINST, FAVOURS, PROVES, RULES_OUT, Cause, Look, Sign
from steadyrun.postmortem.proofs import text, to_number
from steadyrun.postmortem.remedies import FIX, Remedy, lower_clip, regular_clip, tried_clip
from steadyrun.questions.form import shown

_CLEARLY, _HARDLY = 5.0, 1.5  # times the mean before: of a gradient that stands out, and of one that does not
_CROWDED = 3  # times in one batch beyond what is expected
_AT_ONCE = 5  # steps after which a spike that hurt nothing is over
_HARD = 1.5  # times the loss before: of a batch whose tokens are hard as a whole


def _weigh_unusual(look: Look) -> list[Sign]:
    signs = look.experiments("data") + look.fault("D2.3", "long-tail-batch")
    if text(look.case.proofs.culprit, "stage") == "data" and look.case.proofs.reproduced:
        signs += look.sign("culprit", PROVES)
    count, times = look.value("unusual"), look.value("gradient")
    if look.numbers.level is None:  # at the very beginning every batch is new
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


def _crowded(look: Look) -> bool:
    """Whether a token comes clearly more often than expected, and not just once where it is rare."""
    excess = [
        (to_number(each.get("in_batch")) or 0.0) - (to_number(each.get("expected")) or 0.0)
        for each in look.case.proofs.unusual
    ]
    return max(excess, default=0.0) >= _CROWDED


def _weigh_losses(look: Look) -> list[Sign]:
    """A spike that is over at once was in the batch, not in the weights; its tokens are hard."""
    signs: list[Sign] = []
    spike, level = look.case.moment.spike, look.numbers.level
    if spike is not None:
        at_once = spike.length is not None and spike.length <= _AT_ONCE and spike.peak == spike.start
        signs += look.sign("loss", FAVOURS, 1.0) if at_once else look.sign("loss", AGAINST, 0.5)
    middle = look.value("tokens")
    if middle is not None and level is not None and level > 0 and middle > _HARD * level:
        signs += look.sign("tokens", FAVOURS, 1.0)
    return signs


def _tokens(look: Look) -> str:
    named = [f"{text(each, 'text')!r} {each.get('in_batch')} times" for each in look.case.proofs.unusual[:3]]
    return ", ".join(named)


def _in_brackets(look: Look) -> str:
    return f" ({_tokens(look)})" if _tokens(look) else ""


def _batch(look: Look) -> str:
    index = look.numbers.recorded("batch_index", look.case.moment.step)
    return (
        f"batch {index:.0f} (step {look.case.moment.step})"
        if index is not None
        else f"the batch of step {look.case.moment.step}"
    )


def _unusual_sentence(look: Look) -> str:
    times = look.numbers.gradient_times
    stands_out = times is not None and times >= _HARDLY
    gradient = f", with a gradient norm {shown(times)} times the mean before" if stands_out else ""
    return f"The data of {_batch(look)} caused it{_in_brackets(look)}{gradient}."


def _unusual_remedies(look: Look) -> list[Remedy]:
    first = Remedy(
        FIX,
        f"Look at the examples of {_batch(look)} and take out what is broken; spread what is rare over all batches "
        "(steadyrun.data).",
        f"loader = DataLoader(dataset, batch_sampler=StratifiedBatchSampler(token_ids, {_sampler(look)}))",
        f"the batch holds {_tokens(look) or 'what the model had hardly seen'}{_left(look)}",
    )
    return [first, *(tried_clip(look.case, look.numbers) or lower_clip(look.numbers))]


def _sampler(look: Look) -> str:
    size, seed = (look.case.signals.declared(name) for name in ("batch_size", "seed"))
    parts = ["batch_size=…" if size is None else f"batch_size={size:g}", *([] if seed is None else [f"seed={seed:g}"])]
    return ", ".join(parts)


def _left(look: Look) -> str:
    said = regular_clip(look.numbers)
    return f". {said}" if said else ""


def _unusual_lesson(look: Look) -> str:
    times = look.numbers.gradient_times
    size = (
        f" drove the gradient norm to {shown(times)} times its mean"
        if times is not None and times >= _HARDLY
        else " made the loss jump"
    )
    remedy = "mix rare examples into all batches and look at what a batch holds"
    return f"One batch that is unlike the others{_in_brackets(look)}{size}; {remedy}."


UNUSUAL_BATCH = Cause(
    "unusual-batch",
    "A rare token or an unusual batch",
    "one batch is unlike the others: its loss is high, and its gradient drives the update",
    3,
    _weigh_unusual,
    _unusual_sentence,
    _unusual_remedies,
    _unusual_lesson,
)


def _weigh_repeated(look: Look) -> list[Sign]:
    signs = look.fault("D2.3", "duplicate-batch")
    same = look.value("hash")
    if same is not None and not signs:
        signs += look.sign("hash", FAVOURS, 2.0) if same else look.sign("hash", RULES_OUT)
    return signs


def _from_walk(look: Look, code: str = "D2.3") -> str:
    asked = look.case.answer(code)
    return "" if asked is None else asked.answer.message


def _repeated_remedies(look: Look) -> list[Remedy]:
    asked = look.case.answer("D2.3")
    fix = asked.answer.fix if asked is not None else ""
    return [
        Remedy(
            FIX,
            fix or "Make the loader give each batch once.",
            "sampler.set_epoch(epoch); one iterator per epoch, no shared buffers",
            _from_walk(look),
        )
    ]


REPEATED_BATCH = Cause(
    "repeated-batch",
    "The data loader repeats a batch",
    "the same batch comes again and again, and the model runs after it",
    1,
    _weigh_repeated,
    lambda look: f"The data loader repeated batches: {_from_walk(look)}",
    _repeated_remedies,
    lambda _look: (
        "A loader that repeats one batch looks like learning, until the next batch comes; compare batch hashes."
    ),
)
