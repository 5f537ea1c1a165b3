"""P5.7: does mixed precision agree with fp32?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import apart, percent

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench

_FORMATS = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16"}


@dataclass(frozen=True)
class _Computed:
    loss: float
    gradients: dict[str, Tensor]
    broken: str = ""  # the first layer with a non-finite value


def find(bench: Bench, limit: Limits) -> Finding:
    name = _meant(bench)
    if not name:
        raise NotApplicable("neither the config nor a loss scaler declares fp16 or bf16")
    if any(parameter.dtype.itemsize < 4 for parameter in bench.parameters.values() if parameter.is_floating_point()):
        raise NotApplicable("the parameters themselves are in fp16 or bf16")
    plain, small = _computed(bench, None), _computed(bench, name)
    measured = {"loss": small.loss, "loss_fp32": plain.loss}
    losses = apart(small.loss, plain.loss)
    facts = f"The loss is {losses[0]} in {name} and {losses[1]} in fp32"
    if not _finite(plain.loss):
        raise NotApplicable(f"the loss is already {plain.loss:g} in fp32")
    if not _finite(small.loss):
        where = f". The first non-finite output is that of {small.broken}" if small.broken else ""
        return Finding("overflow", f"{facts}{where}.", measured)
    off = abs(small.loss - plain.loss) / max(abs(plain.loss), 1e-6)
    alike = _cosine(plain.gradients, small.gradients)
    measured |= {"relative": off, "cosine": alike}
    facts = f"{facts} ({percent(off)} apart); the gradients have a cosine of {alike:.4f}"
    if off > limit["apart"] or alike < limit["alike"]:
        return Finding("apart", f"{facts} (limits {percent(limit['apart'])} and {limit['alike']:g}).", measured)
    return Finding("pass", f"{facts}.", measured)


def _meant(bench: Bench) -> str:
    """The declared 16-bit format, or an empty string."""
    declared = _FORMATS.get(str(bench.config.get("dtype", "")).lower(), "")
    scaler = bench.task.scaler
    enabled = scaler is not None and bool(getattr(scaler, "is_enabled", lambda: True)())
    return declared or ("float16" if enabled else "")


def _finite(number: float) -> bool:
    return abs(number) < float("inf")


def _computed(bench: Bench, name: str | None) -> _Computed:
    """Loss and gradients of the first batch, in fp32 throughout (None) or under autocast."""
    import torch

    from steadyrun.probes.float_tensors import first_float
    from steadyrun.program.model_parts import clean
    from steadyrun.program.torch_compat import no_autocast

    broken: list[str] = []
    names = {id(module): clean(path) for path, module in bench.model.named_modules()}

    def note(module: Any, _args: Any, output: Any) -> None:
        tensor = first_float(output)
        if not broken and tensor is not None and not tensor.is_nested and not bool(tensor.detach().isfinite().all()):
            broken.append(f"{names[id(module)]} ({type(module).__name__})")

    leaves = [module for module in bench.model.modules() if not list(module.children())]
    with bench.pristine():
        bench.reseed()
        bench.modes(True)
        handles = [module.register_forward_hook(note) for module in leaves] if name else []
        try:
            with no_autocast() if name is None else torch.autocast(bench.device.type, getattr(torch, name)):
                observed = bench.observe(bench.batch(), backward=True)
            gradients = {key: gradient.detach().clone() for key, gradient in observed.gradients.items()}
        finally:
            for handle in handles:
                handle.remove()
    return _Computed(observed.loss, gradients, broken[0] if broken else "")


def _cosine(plain: dict[str, Tensor], small: dict[str, Tensor]) -> float:
    import torch

    from steadyrun.preflight.step_trace import dense

    shared = [name for name in plain if name in small and dense(plain[name]).shape == dense(small[name]).shape]
    if not shared:
        return 1.0
    mine, theirs = (
        torch.cat([dense(gradients[name]).flatten().double() for name in shared]) for gradients in (plain, small)
    )
    both = mine.isfinite() & theirs.isfinite()
    size = float(mine[both].norm() * theirs[both].norm())
    return float(mine[both] @ theirs[both]) / size if size else 1.0


QUESTION = Question(
    code="P5.7",
    name="mixed precision agrees",
    asks="Do loss and gradients in fp16 or bf16 agree with fp32?",
    why="Activations beyond 65,504 overflow in fp16, and differences of large numbers lose their digits in bf16.",
    needs=("loss_fn", "batches", "dtype"),
    panel=None,
    thresholds=(
        Threshold(
            name="apart",
            value=0.05,
            unit="fraction of the loss in fp32",
            meaning="difference between the two losses",
            seed="",
            decision="40 small models of all kinds differ by 0 to 2% in bf16, most by less than 0.5%",
            of="relative",
        ),
        Threshold(
            name="alike",
            value=0.95,
            unit="cosine",
            meaning="cosine of the two gradients",
            seed="",
            decision="bf16 gradients have a cosine of at least 0.99 with fp32, in a sparse autoencoder 0.96",
            of="-cosine",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="fp16 or bf16 agrees with fp32"),
        Outcome(
            name="overflow",
            answer=FAULT,
            meaning="the loss overflows in fp16 or bf16 but not in fp32",
            fix="Use bf16 instead of fp16, or compute the named layer in fp32 (autocast with enabled=False).",
            explains=("D1", "D3", "S"),
        ),
        Outcome(
            name="apart",
            answer=NOTE,
            meaning="loss or gradients in fp16 or bf16 differ from fp32",
        ),
    ),
    find=find,
    tried=True,
)
