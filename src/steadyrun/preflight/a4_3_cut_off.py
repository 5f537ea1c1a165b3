"""A4.3, before training: is part of the model detached from its loss?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_3_cut_off import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import counted, listed, shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    if not bench.optimized:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    first = bench.first_pass()
    if not first.gradients and not first.graph.leaves:
        raise NotApplicable("the loss has no gradient at all")
    silent = _without_gradient(bench)
    if not silent:
        return Finding("pass", "Every optimized parameter gets a gradient.")
    change = _change_of_loss(bench, list(silent.values()))
    bound = limit["changed"] * max(abs(first.loss), 1e-3)
    measured = {"changed": change, "silent": float(len(silent))}
    if not change > bound:
        message = f"The loss does not depend on {counted(len(silent), 'optimized parameter')}: {listed(list(silent))}."
        return Finding("unused", message, measured)
    moving: set[str] = set()
    noise = _change_of_loss(bench, [], moving)
    silent = {name: parameter for name, parameter in silent.items() if name not in moving}
    if not silent:
        return Finding(
            "pass", f"The forward pass itself updates the parameters without a gradient: {listed(sorted(moving))}."
        )
    if change <= 10 * noise:
        raise NotApplicable(f"the loss differs by {shown(noise)} when the same pass is repeated")
    names = _those_that_matter(bench, silent, max(bound, 10 * noise))
    meant = bench.config.get("init") != "random" and (
        bench.config.get("init") == "pretrained" or _no_grad(bench, names)
    )
    message = (
        f"No gradient reaches {counted(len(names), 'optimized parameter')}: {listed(names)}. Perturbing them changes "
        f"the loss by {shown(change)} (limit {shown(bound)})."
    )
    return Finding("left-as-is" if meant else "cut-off", message, measured)


def _no_grad(bench: Bench, names: list[str]) -> bool:
    """Whether the program calls all of these layers within `no_grad`, a deliberate way to freeze them."""
    import torch

    from steadyrun.program.model_parts import clean

    called: dict[str, bool] = {}
    owners = {name.rpartition(".")[0] for name in names}

    def note(path: str) -> Any:
        return lambda *_: called.update({path: called.get(path, False) or torch.is_grad_enabled()})

    modules = {clean(path): module for path, module in bench.model.named_modules()}
    with bench.pristine(), torch.enable_grad():
        bench.reseed()
        bench.modes(True)
        handles = [modules[path].register_forward_pre_hook(note(path)) for path in owners if path in modules]
        try:
            bench.loss(bench.batch())
        finally:
            for handle in handles:
                handle.remove()
    return bool(called) and not any(called.values())


def _without_gradient(bench: Bench) -> dict[str, Tensor]:
    """Trainable, optimized parameters without a gradient, in optimizers that this loss reaches."""
    gradients = bench.first_pass().gradients
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    stepped = _gradients_of_a_step(bench)
    silent: dict[str, Tensor] = {}
    for optimizer in bench.task.optimizers:
        optimized = [
            parameter for group in optimizer.param_groups for parameter in group["params"] if id(parameter) in names
        ]
        if not any(names[id(parameter)] in gradients for parameter in optimized):
            continue  # the other network of adversarial training has its own loss
        for parameter in optimized:
            name = names[id(parameter)]
            if parameter.requires_grad and parameter.numel() and name not in gradients and id(parameter) not in stepped:
                silent[name] = parameter
    return silent


def _gradients_of_a_step(bench: Bench) -> set[int]:
    """Ids of parameters with a gradient in the program's own step, which may use other losses."""
    from steadyrun.preflight.rehearsal import rehearsal

    if bench.task.train_step is None:
        return set()
    try:
        made = rehearsal(bench)
    except MissingSignal:
        return set()
    return set(made.first.gradients) | made.first.arrived | set(made.second.gradients) | made.second.arrived


def _change_of_loss(bench: Bench, parameters: list[Tensor], moving: set[str] | None = None) -> float:
    """How much the first batch's loss changes when parameters are perturbed, with the same random draws.

    `moving` receives the parameters that the pass itself updates, such as a codebook kept as a running mean.
    """
    import torch

    from steadyrun.program.attributes import same

    with bench.pristine(), torch.no_grad():
        bench.reseed()
        bench.modes(True)
        for parameter in parameters:
            if parameter.is_floating_point():
                size = float(parameter.float().std(correction=0)) or 0.02
                steps = torch.linspace(-1, 1, parameter.numel(), device=parameter.device).reshape(parameter.shape)
                parameter.add_((0.3 * size * steps + 0.1 * size).to(parameter.dtype))
        before_pass = {name: (parameter, parameter.detach().clone()) for name, parameter in bench.parameters.items()}
        with bench.without_gradients():
            loss = float(bench.loss(bench.batch()))
        if moving is not None:
            now = bench.parameters
            moving |= {
                name for name, (parameter, was) in before_pass.items() if not same(now.get(name, parameter), was)
            }
    before = bench.first_pass().loss
    return abs(loss - before) if loss == loss else float("inf")


def _those_that_matter(bench: Bench, silent: dict[str, Tensor], bound: float) -> list[str]:
    """The parameters without a gradient in those parts of the model that change the loss."""
    parts: dict[str, list[str]] = {}
    for name in silent:
        parts.setdefault(name.split(".")[0], []).append(name)
    if len(parts) == 1 or len(parts) > 4:
        return list(silent)
    return [
        name
        for names in parts.values()
        if _change_of_loss(bench, [silent[name] for name in names]) > bound
        for name in names
    ] or list(silent)


QUESTION = probe_of(
    RECORDED,
    asks="Does part of the model affect the loss without getting a gradient?",
    needs=("optimizer", "loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="changed",
            value=1e-6,
            unit="fraction of the loss",
            meaning="a larger change proves that the loss depends on the parameters",
            seed="",
            decision="on a CPU the same pass with the same draws is bit-identical; an encoder perturbed by a third of "
            "its standard deviation changes a loss by 1e-3 and more",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "cut-off", ("C4", "S", "P6")),
        Outcome(
            name="left-as-is",
            answer=NOTE,
            meaning="the optimizer has weights that never learn (no_grad or pretrained)",
            fix="Freeze that part with requires_grad_(False), and give the optimizer only trainable parameters.",
        ),
        same(RECORDED, "unused"),
    ),
    find=find,
)
