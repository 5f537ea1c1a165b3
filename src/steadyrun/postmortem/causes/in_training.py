"""Causes in the training: the learning rate, the optimizer's state, the dtype, nondeterminism."""

from __future__ import annotations

from dataclasses import replace

from steadyrun.postmortem.causes.hypothesis import AGAINST, FAVOURS, PROVES, RULES_OUT, Cause, Grounds, Sign
from steadyrun.postmortem.evidence import TRIAL
from steadyrun.postmortem.remedies import FIX, Remedy, smaller_rate
from steadyrun.questions.form import FAULT
from steadyrun.store.incident_files import part, text
from steadyrun.text import shown

_JUMP = 0.2  # fraction of the peak from which D2.3 calls it a jump
_LARGE = 5.0  # factor on its mean before: an unusual update
_MORE = 50  # steps of warmup
_SCHEDULE = ("C2.1", "C2.2", "D4.2")
_TRIED = ("C7.2", "rate-too-high")
_D3 = ("D3.1", "D3.2")
_OVERFLOWED = frozenset({"overflow", "constant"})


def _weigh_rate(look: Grounds) -> list[Sign]:
    signs = look.experiments("learning-rate") + look.fault("D2.3", "lr-jump", "lr-jump-undeclared")
    for code in _SCHEDULE:  # such a fault proves a hypothesis of its own
        if any(asked.question.code == code for asked in look.case.faults):
            signs += look.sign(f"walk:{code}", FAVOURS, 2.0)
    trial = look.case.trial
    if trial is not None and trial.found_fault and (trial.code, trial.outcome) == _TRIED:
        signs += look.sign(TRIAL, FAVOURS, 3.0)  # it proves a hypothesis of its own
    share = look.value("rate")
    if share is not None:
        signs += look.sign("rate", FAVOURS, 3.0) if share > _JUMP else look.sign("rate", AGAINST, 2.0)
    if share is not None and share > _JUMP and not look.case.moment.non_finite:
        signs += look.sign("violent", FAVOURS, 1.0)
        signs += look.sign("update", FAVOURS, 1.0) if (look.value("update") or 0.0) > _LARGE else []
    return signs


def _rate_fault(look: Grounds) -> str:
    """The message of a fault about the learning rate at the spike."""
    asked = look.case.answer("D2.3")
    jumped = asked is not None and asked.answer.kind == FAULT and asked.answer.outcome == "lr-jump"
    return asked.answer.message if asked is not None and jumped and look.case.concerns(asked) else ""


def _rate_sentence(look: Grounds) -> str:
    fault, rise = _rate_fault(look), look.numbers.rise
    if not fault:
        used = "" if look.numbers.rate is None else f" ({shown(look.numbers.rate)})"
        return f"The learning rate{used} was too high."
    meant = (
        ""
        if rise is None or rise.declared is None
        else f" The declared schedule has {shown(rise.declared)} at that step."
    )
    return f"{fault[:1].upper()}{fault[1:]}{meant}"


def _rate_remedies(look: Grounds) -> list[Remedy]:
    rise = look.numbers.rise
    if rise is not None and rise.share > _JUMP:
        meant = rise.declared if rise.declared is not None else rise.before
        origin = "the declared schedule" if rise.declared is not None else "the rate before"
        change = f"learning rate at step {rise.step}: {shown(rise.after)} -> {shown(meant)}"
        return [
            Remedy(
                FIX,
                "Follow the schedule: check what the scheduler returns at that step.",
                change,
                f"{shown(meant)} is {origin}",
            )
        ]
    record = look.case.proofs.experiments
    removed = [] if record is None else record.removed("learning-rate")
    if removed and removed[0].factor == "warmup":
        return [
            Remedy(
                FIX,
                "Lengthen the warmup.",
                f"warmup_steps: {_longer(look)}",
                f"{removed[0].words} removes the incident",
            )
        ]
    by = 10.0 if removed and removed[0].factor == "lr/10" else 3.0
    lower = smaller_rate(look.case, look.numbers, "Lower the peak, or lengthen the warmup.", by)
    return [replace(lower, purpose=FIX, why=f"{removed[0].words} removes the incident") if removed else lower]


def _longer(look: Grounds) -> str:
    warmup = look.case.signals.declared("warmup_steps")
    return f"{warmup:g} -> {warmup + _MORE:g}" if warmup is not None else f"{_MORE} more"


def _rate_lesson(look: Grounds) -> str:
    rise, peak, level = look.numbers.rise, look.numbers.peak, look.numbers.level
    if rise is None or rise.share <= _JUMP:
        did = "let the weights grow until the loss was not finite" if look.case.moment.non_finite else "caused a spike"
        used = "" if look.numbers.rate is None else f" of {shown(look.numbers.rate)}"
        return f"A learning rate{used} {did}; lower it, or warm up longer (`{_rate_remedies(look)[0].change}`)."
    cost = (
        f"raised the loss from {shown(level)} to {shown(peak[1])}"
        if peak and level is not None
        else "undid many others"
    )
    jump = f"One step whose learning rate jumped from {shown(rise.before)} to {shown(rise.after)}"
    return f"{jump} {cost}; compare the recorded rate with the declared schedule."


LEARNING_RATE = Cause(
    "learning-rate",
    "The learning rate: a jump, or too high",
    "one update was too large because the learning rate was",
    2,
    _weigh_rate,
    _rate_sentence,
    _rate_remedies,
    _rate_lesson,
)


def _weigh_state(look: Grounds) -> list[Sign]:
    signs = look.experiments("optimizer-state") + look.experiments("epsilon", exhaustive=False)
    signs += look.fault("D2.3", "optimizer-reset", "optimizer-begins-again")
    fell = look.value("counter")
    if fell is not None:
        signs += look.sign("counter", FAVOURS, 2.0) if fell else look.sign("counter", AGAINST, 2.0)
    return signs


def _state_message(look: Grounds) -> str:
    """The message of a fault about the optimizer's state."""
    asked = look.case.answer("D2.3")
    reset = asked is not None and asked.answer.kind == FAULT and asked.answer.outcome == "optimizer-reset"
    return asked.answer.message if asked is not None and reset and look.case.concerns(asked) else ""


def _state_sentence(look: Grounds) -> str:
    said = _state_message(look)
    return f"The optimizer's state was wrong{f': {said}' if said else '.'}"


STATE = Cause(
    "optimizer-state",
    "The optimizer's state: reset, or corrupted",
    "the moments were lost or wrong, so the updates had the wrong scale",
    1,
    _weigh_state,
    _state_sentence,
    lambda look: [
        Remedy(
            FIX,
            "Save the optimizer's state with every checkpoint, and load it at resume.",
            'optimizer.load_state_dict(checkpoint["optimizer"])',
            _state_message(look) or "the experiments of section 3",
        )
    ],
    lambda _look: (
        "A resume without the optimizer's moments makes updates of the wrong scale; load the weights, the schedule "
        "and the optimizer's state."
    ),
)


def _weigh_precision(look: Grounds) -> list[Sign]:
    signs = look.experiments("precision") + look.fault("D2.3", "fp16-overflow")
    signs += look.fault("D3.1", "overflow") + look.fault("D3.2", "constant")
    signs += look.sign("walk:D3.2", FAVOURS, 2.0)  # collapsed, or skipping: it overflows for an unknown reason
    outcome = text(part(look.case.proofs.replay, "precision"), "outcome")
    if outcome in {"overflow", "structural"} and look.case.proofs.reproduced:
        signs += look.sign("precision", PROVES if outcome == "overflow" else RULES_OUT)
    if look.numbers.dtype:
        half = look.numbers.dtype == "fp16"
        signs += look.sign("dtype", FAVOURS, 1.0) if half else look.sign("dtype", AGAINST, 3.0)
    return signs


def _precision_sentence(look: Grounds) -> str:
    culprit = text(look.case.proofs.culprit, "message")
    overflows = [
        a.answer.message for a in look.case.faults if a.question.code in _D3 and a.answer.outcome in _OVERFLOWED
    ]
    said = culprit or next(iter(overflows), "")
    return f"A value exceeded the range of {look.numbers.dtype or 'its dtype'}{f': {said}' if said else '.'}"


def _precision_remedies(look: Grounds) -> list[Remedy]:
    said = "Compute in bf16, which has the range of fp32, or keep fp16 with a dynamic loss scale."
    scale = "or: scaler = torch.amp.GradScaler(), and scaler.update() after every step"
    change = f"dtype: {look.numbers.dtype or 'fp16'} -> bf16   # {scale}"
    proving = [sign.observation.text for sign in _weigh_precision(look) if sign.bearing == PROVES]
    return [Remedy(FIX, said, change, next(iter(proving), "section 3"))]


PRECISION = Cause(
    "precision",
    "Precision: overflow of a narrow dtype",
    "a value exceeded the range of the dtype (65504 in fp16)",
    3,
    _weigh_precision,
    _precision_sentence,
    _precision_remedies,
    lambda _look: "Half precision overflowed; use bf16, or a dynamic loss scale.",
)


_HARDWARE = {"reproducible": (RULES_OUT, 1.0), "transient": (FAVOURS, 6.0), "persistent": (PROVES, 1.0)}


def _hardware(look: Grounds, key: str) -> str:
    """What the repetitions of the replay say of the machine, if they blame it."""
    hardware = part(look.case.proofs.replay, "hardware")
    return text(hardware, key) if text(hardware, "verdict") in {"transient", "persistent"} else ""


def _weigh_chance(look: Grounds) -> list[Sign]:
    verdict = text(part(look.case.proofs.replay, "hardware"), "verdict")
    repeated = look.sign("hardware", *_HARDWARE[verdict]) if verdict in _HARDWARE else []
    return repeated + _weigh_proof(look)


def _weigh_proof(look: Grounds) -> list[Sign]:
    proofs = look.case.proofs
    if proofs.proof == "bit-equal":
        return look.sign("proof", RULES_OUT)
    if proofs.proof == "within-tolerance":
        return look.sign("proof", AGAINST, 3.0)
    if proofs.proof == "not-reproducible":
        signs = look.sign("proof", FAVOURS, 2.0)
        return signs + [
            sign for key in look.observations if key.startswith("differs:") for sign in look.sign(key, FAVOURS, 1.0)
        ]
    return []


def _chance_sentence(look: Grounds) -> str:
    why = _hardware(look, "why")
    return f"The hardware computed or kept a wrong value: {why}." if why else "The program is not deterministic."


def _chance_remedies(look: Grounds) -> list[Remedy]:
    if following := _hardware(look, "next"):
        return [Remedy(FIX, f"{following}.", "", "the repetitions of the replay")]
    return [
        Remedy(
            FIX,
            "Make the program deterministic first.",
            "torch.use_deterministic_algorithms(True)",
            "a cause that does not recur cannot be tested",
        )
    ]


def _chance_lesson(look: Grounds) -> str:
    if _hardware(look, "why"):
        return "A machine can compute or keep a wrong value; a replay that never repeats an incident shows it."
    return "A run that cannot be repeated is hard to debug; fix seeds, threads and deterministic kernels first."


CHANCE = Cause(
    "nondeterminism",
    "Nondeterminism or hardware",
    "the program is not deterministic, or a device computed a wrong value",
    None,
    _weigh_chance,
    _chance_sentence,
    _chance_remedies,
    _chance_lesson,
    prior=-4.0,
)
