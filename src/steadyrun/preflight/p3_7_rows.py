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
            f"outputs of shape {tuple(scores.shape)} do not have two or more rows in common with the inputs"
        )
    if scores.shape[1:] == (rows,):
        raise NotApplicable(f"outputs of shape {tuple(scores.shape)} compare the examples with each other")
    bound = quiet.limit(limit["moved"] * (_HALF if _small(bench) else 1))
    far, pair = _furthest(bench, scores, rows)
    measured = {"moved": far}
    if far <= bound:
        return Finding("pass", f"Replacing one of {rows} examples changes no other output.", measured)
    facts = (
        f"In evaluation mode, replacing example {pair[0]} of {rows} changes the output of example {pair[1]} by "
        f"{shown(far)} (limit {shown(bound)})"
    )
    if why := _by_design(bench):
        return Finding("by-design", f"{facts}. The model has {why}.", measured)
    if proof := _examples(bench, inputs, rows):
        return Finding("rows-mix", f"{facts}. {proof}.", measured)
    return Finding("may-mix", f"{facts}. The first dimension may not be the batch: declare batch_size.", measured)


def _inputs(bench: Bench, rows: int) -> list[Tensor]:
    """The model's inputs with as many rows as its outputs."""
    from steadyrun.preflight.token_positions import input_tensors

    calls = bench.first_pass().calls
    if not calls:
        raise MissingSignal("the model's call", "loss_fn does not call the model", "let loss_fn call model(…)")
    return [tensor for tensor in input_tensors(calls[0]) if tensor.dim() and tensor.shape[0] == rows]


def _furthest(bench: Bench, scores: Tensor, rows: int) -> tuple[float, tuple[int, int]]:
    """The largest change of another example in two replacements, with the replaced and the changed index."""
    from steadyrun.preflight.input_edits import editing, moved

    furthest, pair, tried = 0.0, (0, 0), 0
    for changed, source in ((0, rows - 1), (rows - 1, 0)):
        change = editing(partial(_row, rows, changed, source))
        try:
            edited = bench.quiet_scores(bench.batch(), change)
        except MissingSignal:  # such as lengths that must be sorted
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
            "the model fails, or returns another shape, if one example replaces another",
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
    """Whether the model computes in fp16 or bf16, which round differently with other shapes."""
    import torch

    half = (torch.float16, torch.bfloat16)
    declared = str(bench.config.get("dtype", "fp32")).lower()
    return (
        declared in {"fp16", "bf16", "float16", "bfloat16"}
        or bench.task.scaler is not None
        or any(parameter.dtype in half for parameter in bench.parameters.values())
    )


def _by_design(bench: Bench) -> str:
    """A module that uses the whole batch by design, also in evaluation mode."""
    for path, module in bench.model.named_modules():
        kind = type(module).__name__
        if "BatchNorm" in kind and getattr(module, "running_mean", 0) is None:
            return f"a {kind} without running statistics ({path})"
        if any(word in kind.lower() for word in _COMPETE):
            return f"a {kind} ({path or 'the model itself'})"
    return ""


def _examples(bench: Bench, inputs: list[Tensor], rows: int) -> str:
    """Evidence that the first dimension is independent examples; "" if that is not certain."""
    if bench.declared("batch_size") == rows:
        return f"The config declares a batch_size of {rows}"
    if _collated(bench.task.loader, rows):
        return f"The loader stacks {rows} examples of its dataset in the first dimension"
    first = inputs[0]
    targets = [labels.targets for labels in bench.first_pass().graph.labels]
    per_row = any(target.shape == (rows,) for target in targets)
    whole = [tensor for tensor in inputs if tensor.is_floating_point() and tensor.dim() >= 3]
    frames = first.dim() >= 4 and _in_time(bench)  # rows may be frames of one video
    if per_row and len(whole) == 1 and not frames and (first.dim() >= 4 or (first.dim() == 3 and first.shape[1] > 1)):
        return f"Each of the {rows} rows has its own class"
    if first.dim() == 2 and not first.is_floating_point() and first.shape[1] > 1:
        from steadyrun.preflight.token_positions import next_token_shares

        shares = next_token_shares(bench, first)
        if per_row and first.shape[1] != rows:
            return f"Each of the {rows} rows of tokens has its own class"
        if shares is not None and float(shares[1]) > 0.9 > float(shares[0]):
            return "The targets of each row are its own next tokens"
    return ""


def _in_time(bench: Bench) -> bool:
    """Whether the model has layers that work along a sequence."""
    from torch import nn

    kinds = (nn.RNNBase, nn.MultiheadAttention, nn.Conv1d, nn.Conv3d)
    return any(
        isinstance(module, kinds)
        or "attention" in type(module).__name__.lower()
        or "temporal" in type(module).__name__.lower()
        for module in bench.model.modules()
    )


def _collated(loader: Any, rows: int) -> bool:
    """Whether a torch loader stacks the examples of an indexed dataset."""
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
    asks="In evaluation mode, does one example affect the output of another?",
    why="A softmax over the wrong dimension, a view instead of a permute or a wrong batch_first mixes examples. "
    "Training continues, but outputs depend on the rest of the batch.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="moved",
            value=1e-5,
            unit="fraction of the largest output",
            meaning="a larger change of another example's output shows that examples mix",
            seed="",
            decision="MLPs, CNNs, GRUs and transformers change by 0 to 3e-7 (packed lengths change the shape of a "
            "product); mixing by softmax, view or batch_first changes outputs by 1e-2 and more. Times 4,000 in fp16 "
            "and bf16",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="examples do not affect each other"),
        Outcome(
            name="rows-mix",
            answer=FAULT,
            meaning="the output of one example depends on the others",
            fix="Look for a softmax or norm over dimension 0, a view or reshape instead of a permute, and a recurrent "
            "or attention layer with the wrong batch_first.",
            explains=("C1", "C4", "S", "D4", "P6"),
        ),
        Outcome(
            name="may-mix",
            answer=NOTE,
            meaning="output rows affect each other, as in a graph or a set",
        ),
        Outcome(name="by-design", answer=NOTE, meaning="output rows affect each other through a layer designed for it"),
    ),
    find=find,
    tried=True,
)
