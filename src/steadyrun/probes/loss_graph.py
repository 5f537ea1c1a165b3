"""What a loss is made of, read off the autograd graph between the forward pass and backward.

The graph names every operation and keeps what its derivative needs: the targets and scores of a cross-entropy, the
token ids that went through an embedding, shapes before and after broadcasting, the tensors that a gradient will reach.
Nothing is computed a second time, and it does not matter how a program imported or wrapped its loss function. A
compiled graph is opaque: nothing is found in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from steadyrun.probes.attention import VIEWS
from steadyrun.probes.comparisons import Compared, compared
from steadyrun.probes.output_bounds import Bounds, bounds
from steadyrun.probes.score_table import itself, peak, place
from steadyrun.probes.soft_targets import soft_targets
from steadyrun.program.torch_compat import saved

MOST_NODES = 200_000
_CLOSE = 0.01
_OFF = 0.05  # of 1: probabilities that add up to more or less were not normalised together; bf16 rounds by less
_NEAR = 80  # nodes from the loss within which comparisons with targets are made
_SAME_SCORES = (*VIEWS, "Slice", "Select", "Index", "As", "Copy", "Permute", "MaskedSelect", "Cat", "Split", "Unbind")
_MOST_SUMMED = 2**20  # elements of the scores, evenly spaced items, that are added up to see whether they make 1
_COMPARISONS = ("MseLoss", "SmoothL1Loss", "HuberLoss", "L1Loss", "BinaryCrossEntropy", "KlDiv", "SoftMargin")


@dataclass(frozen=True)
class Labels:
    """The class targets of one cross-entropy."""

    targets: Tensor
    classes: int
    ignore_index: int
    reduction: str
    smoothing: float = 0.0
    loss: Tensor | None = None  # its mean over the targets that are not ignored, without smoothing
    weight: list[Tensor] = field(default_factory=list)  # how much it counts in the loss; filled by backward
    itself: Tensor | None = None  # 1 if each example of a batch is to find itself among all of them
    peak: Tensor | None = None  # of scores of a batch with itself: the best of a row above the row's median
    place: Tensor | None = None  # of those scores: how many of a row's others are below its target's, as a fraction


@dataclass(frozen=True)
class Broadcast:
    """Predictions stretched over the batch by the shape of their targets."""

    predictions: tuple[int, ...]
    compared: tuple[int, ...]


@dataclass(frozen=True)
class Constants:
    """What takes the values of tensors to know, for which the host waits; it stays while the operations stay."""

    probabilities: bool = False
    wrong_axis: tuple[int, ...] | None = None
    advantages: bool = False
    bounds: tuple[Bounds | None, ...] = ()  # of what is compared

    def of(self, comparison: int) -> Bounds | None:
        return self.bounds[comparison] if comparison < len(self.bounds) else None


@dataclass
class LossGraph:
    """What was found."""

    leaves: list[Tensor] = field(default_factory=list)  # every tensor that the gradient of this loss reaches
    labels: list[Labels] = field(default_factory=list)  # of every cross-entropy, the one nearest to the loss first
    comparison: str = ""  # the operation that compares predictions with targets, such as "mse_loss"
    squashed: str = ""  # "softmax" or "sigmoid" where scores are squashed before a loss that does so itself
    probabilities: bool = False  # a loss over log-probabilities that was given probabilities
    wrong_axis: tuple[int, ...] | None = None  # the shape of scores whose softmax does not run over the classes
    plain: bool = False  # the loss is one cross-entropy over classes, with nothing added to it and no factor
    broadcast: Broadcast | None = None
    divergence: tuple[Tensor, Tensor] | None = None  # a student's log-probabilities, and a teacher's probabilities
    divergence_weight: list[Tensor] = field(default_factory=list)  # filled by backward
    compared: list[Compared] = field(default_factory=list)  # numbers and their targets, nearest to the loss first
    advantages: bool = False  # log-probabilities or their ratios are weighted by numbers of both signs
    picked: list[tuple[Tensor, int]] = field(default_factory=list)  # ids picked from scores by hand, and from which on
    tokens: list[Tensor] = field(default_factory=list)  # rows of ids that went through an embedding, each its own
    lookups: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # tables that are trained, and an id per example
    complete: bool = True  # False where a part of the graph is compiled or was too large to walk
    signature: int = 0  # of the operations, in order
    looked: bool = True  # at values; False where the constants of an equal graph were taken

    @property
    def constants(self) -> Constants:
        return Constants(self.probabilities, self.wrong_axis, self.advantages, tuple(c.bounds for c in self.compared))


def read(loss: Tensor, outputs: Sequence[Tensor] = (), known: Mapping[int, Constants] | None = None) -> LossGraph:
    """Read a loss that was computed and not yet differentiated; `outputs` are what the model gave.

    `known` has the constants of graphs that were looked at before, by signature: for these, nothing waits.
    """
    nodes = list(_nodes(loss.grad_fn))
    names = [node.name() for node in nodes]
    graph = LossGraph(signature=hash(tuple(names)))
    constants = (known or {}).get(graph.signature)
    graph.looked = constants is None
    for index, (node, name) in enumerate(zip(nodes, names, strict=True)):
        if "AccumulateGrad" in name:
            graph.leaves.append(node.variable)
        elif name.startswith("CompiledFunction") or index >= MOST_NODES:
            graph.complete = False
        elif name.startswith("Embedding"):
            _take_tokens(node, graph)
        elif name.startswith("NllLoss"):
            _take_labels(loss.grad_fn, node, graph)
        elif name.startswith("Gather"):
            _take_picked(node, graph)
        elif name.startswith("SubBackward0") and graph.looked and not graph.probabilities:
            graph.probabilities = _is_divergence_of_probabilities(node)
        elif name.startswith("LogSoftmax") and not graph.squashed:
            graph.squashed = _squashed(node, ("Softmax",))
        elif name.startswith("BinaryCrossEntropyWithLogits") and not graph.squashed:
            graph.squashed = _squashed(node, ("Softmax", "Sigmoid"))
        if index < _NEAR:
            if not graph.comparison and name.startswith(_COMPARISONS):
                graph.comparison = name.removesuffix("Backward0")
            if graph.broadcast is None:
                graph.broadcast = _broadcast(node)
            if (pair := compared(node, outputs)) is not None:
                limits = (
                    bounds(pair.predictions, pair.source) if constants is None else constants.of(len(graph.compared))
                )
                pair = replace(pair, bounds=limits, source=None)
                graph.compared.append(pair)
                _weigh(node, pair.weight, pair.targets.numel())
    if constants is None:
        graph.advantages = _both_signs(_weights(loss.grad_fn))
    else:
        graph.probabilities, graph.wrong_axis = constants.probabilities, constants.wrong_axis
        graph.advantages = constants.advantages
    if (taught := soft_targets(nodes[:_NEAR])) is not None:
        graph.divergence = taught[:2]
        _weigh(taught[2], graph.divergence_weight, 1)
    graph.plain = loss.grad_fn is not None and len(graph.labels) == 1 and _is_plain(loss.grad_fn, graph.labels[0])
    return graph


_TINY = 1e-30
_SUM = 2  # as torch numbers reductions


def _weigh(node: Any, weight: list[Tensor], items: int) -> None:
    """Note in backward how much a comparison counts: 1 if its mean is the loss, less than 0 if errors are rewarded.

    And which part of its weight is negative: examples may have weights of both signs.
    """
    times = items if saved(node, "reduction") == _SUM else 1

    def note(_inputs: object, outputs: tuple[object, ...]) -> None:
        gradient = outputs[0] if outputs else None
        if isinstance(gradient, Tensor):
            gradient = gradient.detach().float()
            one_sign = (gradient >= 0).all() | (gradient <= 0).all()
            against = gradient.clamp(max=0).sum().abs() / gradient.abs().sum().clamp(
                min=torch.finfo(gradient.dtype).tiny
            )
            weight[:] = [torch.where(one_sign, times * gradient.sum(), torch.nan), against]

    node.register_hook(note)


_POSITIONS = ("example", "position", "word")  # the axes of a language model's scores
_REDUCTIONS = ("Mean", "Sum", "Neg", "Maximum", "Minimum", "Add", "Sub", "Div", "Stack", "Cat", "Squeeze", "View")
_LIKELIHOODS = ("Exp", "Gather", "Sub", "Sum")


def _weights(root: Node | None) -> list[Tensor]:
    """Constant numbers that multiply log-probabilities, or ratios of probabilities, before they are summed up."""
    weights: list[Tensor] = []
    visited: set[Node] = set()
    waiting = deque([root] if root is not None else [])
    while waiting and len(visited) < MOST_NODES:
        node: Any = waiting.popleft()
        if node in visited:
            continue
        visited.add(node)
        if node.name().startswith("MulBackward0"):
            below = _inputs(node)
            weight = saved(node, "self") if node.next_functions[0][0] is None else saved(node, "other")
            source = _through(below, (*_SAME_SCORES, "Neg"))
            if len(below) == 1 and isinstance(weight, Tensor) and source is not None:
                if source.name().startswith(_LIKELIHOODS):
                    weights.append(weight.detach().flatten())
                elif weight.dim() == 0:  # a factor of the whole loss
                    waiting.extend(below)
        elif node.name().startswith((*_REDUCTIONS, "MulBackward1")):
            waiting.extend(_inputs(node))
    return weights


def _both_signs(weights: list[Tensor]) -> bool:
    """Whether examples of a batch are raised and others lowered; ±1 alone are labels.

    Single numbers are one batch together, as in a loop over its steps. Two tensors of one sign each are not advantages:
    a quantile loss weighs errors above and below by such.
    """
    single = [weight.float() for weight in weights if weight.numel() == 1]
    batches = [weight.float() for weight in weights if weight.numel() > 1] + ([torch.cat(single)] if single else [])
    for values in batches:
        sizes = values[values != 0].abs()
        if bool((values > 0).any() and (values < 0).any() and sizes.max() > sizes.min()):
            return True
    return False


def _is_plain(root: Node, labels: Labels) -> bool:
    top = _through([root], (*VIEWS, "ToCopy"))
    if labels.reduction != "mean":
        return False
    return top is not None and (top.name().startswith("NllLoss") or (labels.smoothing > 0 and _adds_smoothing(top)))


def _adds_smoothing(top: Node) -> bool:
    return bool(top.name().startswith("Add")) and all(_factor(term) is not None for term in _inputs(top))


@dataclass
class Counted:
    """Which targets of a cross-entropy count, and how much: the gradient shows it, whatever masks the loss later."""

    losses: Tensor | None = None  # of each item, before any weight
    mask: Tensor | None = None
    weight: float = 0.0  # of all items together: 1 for a mean
    value: float = 0.0  # what this cross-entropy adds to the loss

    def note(self, gradients: tuple[object, ...], _outputs: object) -> None:
        if gradients and isinstance(gradients[0], Tensor):
            dim = 1 if gradients[0].dim() > 1 else 0
            size = gradients[0].detach().abs().amax(dim).float()
            self.mask = size != 0
            self.weight = float(size.sum())
            if self.losses is not None and self.losses.numel() == size.numel():
                self.value = float((size.reshape(-1) * self.losses.reshape(-1)).sum())

    def masked(self, labels: Labels) -> Labels:
        """The labels with what does not count marked as ignored."""
        mask = self.mask
        if mask is None or mask.numel() != labels.targets.numel():
            return labels
        kept = mask.reshape(labels.targets.shape).to(labels.targets.device)
        return replace(labels, targets=labels.targets.masked_fill(~kept, labels.ignore_index))


def counting(loss: Tensor) -> list[Counted]:
    """One `Counted` for each cross-entropy, in the order of `LossGraph.labels`; filled when backward has run."""
    counts = []
    for node in _nodes(loss.grad_fn):
        if node.name().startswith("NllLoss"):
            counted = Counted(_losses(saved(node, "self"), saved(node, "target")))
            node.register_hook(counted.note)
            counts.append(counted)
    return counts


def leaves(tensor: Tensor) -> list[Tensor]:
    """Every tensor that a gradient of this one reaches; the graph may have been used already."""
    return [node.variable for node in _nodes(tensor.grad_fn) if "AccumulateGrad" in node.name()]


def is_mean(loss: float, counted: list[Counted]) -> bool:
    """Whether a loss is a mean of cross-entropies, with weights that add up to 1, and nothing else."""
    weight, value = sum(part.weight for part in counted), sum(part.value for part in counted)
    return abs(weight - 1) < _CLOSE and abs(value - loss) <= _CLOSE * max(1.0, abs(loss))


def _losses(scores: Tensor, targets: Tensor) -> Tensor:
    dim = 1 if scores.dim() > 1 else 0
    indices = targets.detach().clamp(0, scores.shape[dim] - 1).unsqueeze(dim)
    return -scores.detach().gather(dim, indices).squeeze(dim).float()


def _mean_loss(scores: Tensor, targets: Tensor, ignored: int) -> Tensor:
    counts = targets != ignored
    return (_losses(scores, targets) * counts).sum() / counts.sum().clamp(min=1)


def _nodes(first: Node | None) -> Iterator[Any]:
    """Every node once, those near the loss first. What a node has saved depends on its operation."""
    waiting = deque([first] if first is not None else [])
    visited: set[Node] = set()
    while waiting and len(visited) <= MOST_NODES:
        node = waiting.popleft()
        if node in visited:
            continue
        visited.add(node)
        yield node
        waiting.extend(below for below, _ in node.next_functions if below is not None)


def _take_tokens(node: Node, graph: LossGraph) -> None:
    ids = saved(node, "indices")
    if not isinstance(ids, Tensor):
        return
    if ids.dim() == 2:
        graph.tokens.append(ids)
    table: Any = node.next_functions[0][0] if node.next_functions else None
    if ids.dim() == 1 and ids.numel() > 1 and table is not None and "AccumulateGrad" in table.name():
        graph.lookups.append((table.variable, ids))


def _take_picked(node: Any, graph: LossGraph) -> None:
    """Ids of log-probabilities that a program picks itself: log_softmax(scores).gather(-1, ids)."""
    ids = saved(node, "index")
    if not isinstance(ids, Tensor) or ids.dim() != len(_POSITIONS) or ids.shape[-1] != 1:
        return
    start, below = 0, next(iter(_inputs(node)), None)
    for _ in range(_NEAR):
        if below is None or not below.name().startswith((*_SAME_SCORES, "LogSoftmax", "Div", "ToCopy")):
            break
        if below.name().startswith("Slice") and saved(below, "dim") == 1:
            first = _signed(saved(below, "start"))
            if first < 0:  # from the end: where that is depends on the width
                return
            start += first
        below = next(iter(_inputs(below)), None)
    graph.picked.append((ids.squeeze(-1), start))


def _take_labels(root: Node | None, node: Any, graph: LossGraph) -> None:
    scores, targets = saved(node, "self"), saved(node, "target")
    labels = Labels(
        targets.squeeze(1) if targets.dim() == 3 and "2D" in node.name() and targets.shape[1] == 1 else targets,
        int(scores.shape[1] if scores.dim() > 1 else scores.shape[0]),
        _signed(saved(node, "ignore_index")),
        {0: "none", 1: "mean", 2: "sum"}.get(int(saved(node, "reduction")), "none"),
        _smoothing(root, node),
        _mean_loss(scores, targets, _signed(saved(node, "ignore_index"))),
        peak=peak(scores),
        place=place(scores, targets),
        itself=itself(scores, targets),
    )
    graph.labels.append(labels)
    _weigh(node, labels.weight, labels.targets.numel())
    source = _through(_inputs(node), _SAME_SCORES)
    graph.probabilities |= source is not None and source.name().startswith("Softmax")
    if graph.looked and source is not None and _is_other_axis(source, scores):
        graph.wrong_axis = tuple(scores.shape)


def _is_divergence_of_probabilities(node: Any) -> bool:
    """Whether a KL divergence, t log t - t x with distributions t, is given the output of a softmax for x."""
    constant, weighted = node.next_functions[0][0], node.next_functions[1][0]
    if constant is not None or weighted is None or not weighted.name().startswith("MulBackward0"):
        return False
    source = _through(_inputs(weighted), _SAME_SCORES)
    if len(_inputs(weighted)) != 1 or source is None or not _is_softmax(source):
        return False
    targets = saved(weighted, "self") if weighted.next_functions[0][0] is None else saved(weighted, "other")
    if not isinstance(targets, Tensor) or targets.dim() < 2 or _shape(weighted) != tuple(targets.shape):
        return False
    sums = targets.detach().float().sum(-1)
    return bool((targets >= 0).all() and ((sums - 1).abs() < _OFF).all())


def _is_softmax(source: Any) -> bool:
    """A softmax, or the exponent of its logarithm."""
    if source.name().startswith("Exp"):
        below = _through(_inputs(source), _SAME_SCORES)
        return below is not None and below.name().startswith("LogSoftmax")
    return bool(source.name().startswith("Softmax"))


def _is_other_axis(source: Any, scores: Tensor) -> bool:
    """Whether log-probabilities come whole from a softmax, and those of an item do not add up to 1."""
    if source.name().startswith("Log") and not source.name().startswith("LogSoftmax"):
        source = _through(_inputs(source), _SAME_SCORES)
    if source is None or not source.name().startswith(("LogSoftmax", "Softmax")):
        return False
    result, classes = saved(source, "result"), 1 if scores.dim() > 1 else 0
    if not isinstance(result, Tensor) or result.numel() != scores.numel():  # some classes were selected
        return False
    axis = saved(source, "dim")
    if result.shape == scores.shape and isinstance(axis, int) and _signed(axis) % max(1, scores.dim()) == classes:
        return False
    items = scores.detach()[:: -(-scores.numel() // _MOST_SUMMED)] if classes else scores.detach()
    sums = items.float().exp().sum(classes)
    return bool(((sums - 1).abs() > _OFF).float().mean() > 1 / 2)


def _smoothing(root: Node | None, node: Node) -> float:
    """The label smoothing of torch's cross-entropy: it adds the plain loss times (1 - s) and a mean times s."""
    for index, above in enumerate(_nodes(root)):
        if index > _NEAR:
            break
        if above.name().startswith("Add"):
            factors = [_factor(term) for term in _inputs(above)]
            if len(factors) == 2 and None not in factors and _inputs(_inputs(above)[0])[:1] == [node]:
                return float(min(1.0, max(0.0, 1 - (factors[0] or 0.0))))
    return 0.0


def _factor(node: Node) -> float | None:
    factor = saved(node, "other") if node.name().startswith("MulBackward1") else None
    return float(factor) if isinstance(factor, int | float) else None


def _squashed(node: Node, kinds: tuple[str, ...]) -> str:
    """What squashes the scores before this loss squashes them: nothing but other views may lie between."""
    source = _through(_inputs(node), _SAME_SCORES)
    if source is not None and source.name().startswith("Exp"):  # of a log_softmax: a softmax by another name
        below = _through(_inputs(source), _SAME_SCORES)
        if below is not None and below.name().startswith("LogSoftmax"):
            return "softmax"
    name = "" if source is None else source.name()
    return next((kind.lower() for kind in kinds if name.startswith(kind)), "")


def _through(inputs: list[Node], kinds: tuple[str, ...]) -> Node | None:
    """The first node below that is more than another view."""
    node = inputs[0] if inputs else None
    for _ in range(_NEAR):
        if node is None or not node.name().startswith(kinds):
            return node
        node = next(iter(_inputs(node)), None)
    return None


def _broadcast(node: Any) -> Broadcast | None:
    """Predictions (N, 1) against targets (N): each prediction is compared with every target.

    torch's own losses expand both sides first; a difference written by hand broadcasts, its other side needs no
    gradient.
    """
    if node.name().startswith(_COMPARISONS):
        node = next((side for side in _inputs(node) if side.name().startswith("Expand")), None)
    elif not node.name().startswith(("Sub", "Rsub")):
        node = None
    elif len(_inputs(node)) == 1 and _inputs(node)[0].name().startswith("Expand"):
        node = _inputs(node)[0]  # l1_loss: expanded before it subtracts
    below = [] if node is None else [edge for edge in node.next_functions if edge[0] is not None]
    after = _shape(node)
    if len(below) != 1 or after is None or len(after) != 2 or after[0] != after[1] or after[0] < 2:
        return None
    if below[0][0].name().startswith(("Unsqueeze", "View", "UnsafeView", "Reshape")):
        return None  # stretched on purpose, to compare each with every other
    before = _shape(*below[0])
    return Broadcast(before, after) if before == (after[0], 1) else None


def _shape(node: Node | None, output: int = 0) -> tuple[int, ...] | None:
    """The shape of a node's result."""
    metadata = getattr(node, "_input_metadata", None)
    return tuple(int(size) for size in metadata[output].shape) if metadata and len(metadata) > output else None


def _inputs(node: Node) -> list[Node]:
    return [below for below, _ in node.next_functions if below is not None]


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
