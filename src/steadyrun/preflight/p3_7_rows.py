"""P3.7: does one example change the output of another?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench

_COMPETE = ("moe", "expert", "router", "graph", "gcn", "gat", "setatt", "intersample")
_HALF = 4_000  # times the tolerance of float32: the spacing of bf16 is that much wider


def find(bench: Bench, limit: Limits) -> Finding:
    quiet = bench.quiet()
    scores = quiet.scores
    rows = int(scores.shape[0]) if scores.dim() else 0
    inputs = _inputs(bench, rows)
    if rows < 2 or not inputs:
        raise NotApplicable(
            f"outputs of shape {tuple(scores.shape)} have no dimension in common with two or more inputs"
        )
    if scores.shape[1:] == (rows,):
        raise NotApplicable(f"outputs of shape {tuple(scores.shape)} compare the examples with each other")
    bound = quiet.limit(limit["moved"] * (_HALF if _small(bench) else 1))
    far, pair = _furthest(bench, scores, rows)
    measured = {"moved": far}
    if far <= bound:
        return Finding("pass", f"exchanging one of {rows} examples moves the output of no other.", measured)
    facts = (
        f"in evaluation mode, exchanging example {pair[0]} of {rows} moves the output of example {pair[1]} by "
        f"{shown(far)} (limit {shown(bound)})"
    )
    if why := _by_design(bench):
        return Finding("by-design", f"{facts}; the model has {why}.", measured)
    if proof := _examples(bench, inputs, rows):
        return Finding("rows-mix", f"{facts}; {proof}.", measured)
    return Finding("may-mix", f"{facts}; whether its first dimension counts examples is not declared.", measured)


def _inputs(bench: Bench, rows: int) -> list[Tensor]:
    """What the model was given with as many rows as it returned."""
    from steadyrun.preflight.token_positions import input_tensors

    calls = bench.first_pass().calls
    if not calls:
        raise MissingSignal("the model's call", "loss_fn did not call the model itself", "let loss_fn call model(…)")
    return [tensor for tensor in input_tensors(calls[0]) if tensor.dim() and tensor.shape[0] == rows]


def _furthest(bench: Bench, scores: Tensor, rows: int) -> tuple[float, tuple[int, int]]:
    """The furthest that another example moved, of two exchanges: (the changed one, the moved one)."""
    from steadyrun.preflight.input_edits import editing, moved

    furthest, pair, tried = 0.0, (0, 0), 0
    for changed, source in ((0, rows - 1), (rows - 1, 0)):
        change = editing(partial(_row, rows, changed, source))
        try:
            edited = bench.quiet_scores(bench.batch(), change)
        except MissingSignal:  # lengths that must be sorted, for example
            continue
        if edited.shape != scores.shape:
            continue
        tried += 1
        far = moved(scores, edited).reshape(rows, -1).amax(1)
        far[changed] = 0.0
        if float(far.max()) > furthest:
            furthest, pair = float(far.max()), (changed, int(far.argmax()))
    if not tried:
        raise MissingSignal(
            "an exchanged example",
            "the model takes no batch in which one example is replaced by another, or returns another shape",
            "let loss_fn call model(…) with tensors whose first dimension counts examples",
        )
    return furthest, pair


def _row(rows: int, changed: int, source: int, tensor: Tensor) -> Tensor | None:
    if not tensor.dim() or tensor.shape[0] != rows:
        return None
    edited = tensor.detach().clone()
    edited[changed] = tensor[source]
    if tensor.is_floating_point() and bool((tensor[changed] == tensor[source]).all()):
        edited[changed] = edited[changed] + 1
    return edited


def _small(bench: Bench) -> bool:
    """Whether something is computed in fp16 or bf16: other shapes inside round otherwise."""
    import torch

    half = (torch.float16, torch.bfloat16)
    declared = str(bench.config.get("dtype", "fp32")).lower()
    return (
        declared in {"fp16", "bf16", "float16", "bfloat16"}
        or bench.task.scaler is not None
        or any(parameter.dtype in half for parameter in bench.parameters.values())
    )


def _by_design(bench: Bench) -> str:
    """Parts that are known to look at the whole batch in evaluation mode, too."""
    for path, module in bench.model.named_modules():
        kind = type(module).__name__
        if "BatchNorm" in kind and getattr(module, "running_mean", 0) is None:
            return f"a {kind} without running statistics ({path})"
        if any(word in kind.lower() for word in _COMPETE):
            return f"a {kind} ({path or 'the model itself'})"
    return ""


def _examples(bench: Bench, inputs: list[Tensor], rows: int) -> str:
    """Why the first dimension counts examples that should not know of each other; "" where that is not certain."""
    if bench.declared("batch_size") == rows:
        return f"config declares a batch_size of {rows}"
    if _collated(bench.task.loader, rows):
        return f"the loader puts {rows} examples of its dataset into the first dimension"
    first = inputs[0]
    targets = [labels.targets for labels in bench.first_pass().graph.labels]
    per_row = any(target.shape == (rows,) for target in targets)
    whole = [tensor for tensor in inputs if tensor.is_floating_point() and tensor.dim() >= 3]
    frames = first.dim() >= 4 and _in_time(bench)  # the frames of one video, perhaps
    if per_row and len(whole) == 1 and not frames and (first.dim() >= 4 or (first.dim() == 3 and first.shape[1] > 1)):
        return f"each of the {rows} has a class of its own"
    if first.dim() == 2 and not first.is_floating_point() and first.shape[1] > 1:
        from steadyrun.preflight.token_positions import next_token_shares

        shares = next_token_shares(bench, first)
        if per_row and first.shape[1] != rows:
            return f"each of the {rows} rows of tokens has a class of its own"
        if shares is not None and float(shares[1]) > 0.9 > float(shares[0]):
            return "each row of tokens has its next tokens for targets"
    return ""


def _in_time(bench: Bench) -> bool:
    """Whether a model has parts that look along a sequence."""
    from torch import nn

    kinds = (nn.RNNBase, nn.MultiheadAttention, nn.Conv1d, nn.Conv3d)
    return any(
        isinstance(module, kinds)
        or "attention" in type(module).__name__.lower()
        or "temporal" in type(module).__name__.lower()
        for module in bench.model.modules()
    )


def _collated(loader: Any, rows: int) -> bool:
    """A torch loader that stacks the examples of an indexed dataset."""
    from torch.utils.data import DataLoader, IterableDataset, default_collate

    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and loader.collate_fn is default_collate
        and loader.batch_size == rows
    )


QUESTION = Question(
    code="P3.7",
    name="examples are independent",
    asks="In evaluation mode, does exchanging one example move the output of another?",
    why="A softmax over the wrong dimension, a view where a permute was meant or a wrong batch_first mixes examples: "
    "training goes on, with outputs that depend on the company.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="moved",
            value=1e-5,
            unit="of the largest output",
            meaning="another example's output that moves by more has seen the change",
            seed="",
            decision="nothing moves in MLPs, CNNs, GRUs and transformers (measured 0 to 3e-7, where packed "
            "lengths change the "
            "shape of a product); mixing by softmax, view or batch_first moves outputs by 1e-2 and more. Times 4000 in "
            "fp16 and bf16",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="examples do not know of each other"),
        Outcome(
            name="rows-mix",
            answer=FAULT,
            meaning="the output of one example depends on the others",
            fix="Look for a softmax or norm over dimension 0, a view or reshape where permute is meant, and a "
            "recurrent or "
            "attention layer whose batch_first is wrong.",
            explains=("C1", "C4", "S", "D4", "P6"),
        ),
        Outcome(
            name="may-mix",
            answer=NOTE,
            meaning="rows of the output depend on each other; a graph or a set does this by design",
        ),
        Outcome(
            name="by-design", answer=NOTE, meaning="rows of the output depend on each other through a part made for it"
        ),
    ),
    find=find,
    tried=True,
)
