"""What a forward pass shows: activations, dead units, attention, modes, the output's width, autocast.

Hooks are global and exist only while a sampled step runs. Hooks on the modules themselves would be copied
and pickled along with the model (an EMA copy, `torch.save(model)`) and would cost time on every step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from steadyrun.probes.attention import AttentionMode, Heads, Rotation, has_plain_projections, module_heads
from steadyrun.probes.batch_hashes import input_hash
from steadyrun.probes.comparisons import MOST_COMPARED
from steadyrun.probes.copies import CopyFinder
from steadyrun.probes.dead_units import UnitsTap, saturated, silence
from steadyrun.probes.diversity import Generated, output_rank
from steadyrun.probes.evaluation_mode import is_initial
from steadyrun.probes.float_tensors import first_float, floats_in, thinned
from steadyrun.probes.model_inputs import statistics
from steadyrun.probes.padding import Padding, padding_of, padding_token, when_differentiated
from steadyrun.probes.pass_calls import PassCalls, tensors_in
from steadyrun.probes.problems import Problems
from steadyrun.probes.targets import padding as runs_of_padding
from steadyrun.program.containers import leaves
from steadyrun.program.model_parts import Block
from steadyrun.program.torch_compat import Unseen, remove_hook

# Histograms: bin k counts 2**k <= |x| < 2**(k+1), the outermost bins all beyond them; zeros and non-finite apart.
LOWEST, HIGHEST = -24, 16
BINS = tuple(range(LOWEST, HIGHEST + 1))
NAMES = ("zero", "nonfinite", *(f"2^{power}" for power in BINS))
_MOST_BINNED = 2**20


def magnitude_counts(values: Tensor) -> Tensor:
    """Fractions of the values per bin, in the order of `NAMES`."""
    flat = values.detach().flatten()
    flat = flat[:: -(-flat.numel() // _MOST_BINNED)].float()
    finite = torch.isfinite(flat)
    zero = flat == 0
    exponents = torch.frexp(flat.abs())[1].long() - 1
    exponents = exponents.clamp(LOWEST, HIGHEST) - LOWEST
    bins = torch.where(zero, 0, torch.where(finite, exponents + 2, 1))
    counts = torch.zeros(len(NAMES), device=flat.device)
    counts.scatter_add_(0, bins, torch.ones_like(flat))
    return counts / flat.numel()


_MOST_PASSES = 4  # of a step, whose outputs are compared
_FEWEST_ROWS, _MOST_ROWS = 4, 64  # whose directions are compared


@dataclass
class ForwardSample:
    """What one forward pass showed."""

    activations: dict[str, Tensor] = field(default_factory=dict)  # name -> (mean magnitude, standard deviation)
    histograms: dict[str, Tensor] = field(default_factory=dict)
    dead_units: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    silent: dict[str, Tensor] = field(default_factory=dict)  # fraction of the batch without any active unit
    entropies: dict[str, Tensor] = field(default_factory=dict)  # name -> per head
    own_entropies: dict[str, Tensor] = field(default_factory=dict)  # of queries and keys alone, where they are known
    low_shares: dict[str, Tensor] = field(default_factory=dict)
    attentions: int = 0  # of the pass, of which some may not have been looked at
    future: dict[str, Tensor] = field(default_factory=dict)  # fraction of attention on later keys
    on_padding: list[Tensor] = field(default_factory=list)  # fraction of attention on padded keys, by attention
    saturated: dict[str, Tensor] = field(default_factory=dict)  # fraction of a layer's values at the end of its range
    untouched: dict[int, Tensor] = field(
        default_factory=dict
    )  # normalisations: 1 if their statistics are the initial ones
    modules_in_eval: int | None = None
    output_width: int | None = None
    compute_dtype: torch.dtype | None = None
    follows: dict[str, str] = field(default_factory=dict)  # block -> the block whose output it takes
    order: dict[int, None] = field(default_factory=dict)  # ids of the modules with parameters, as they ran
    batchnorm_values: int | None = None  # the fewest values that a batch normalisation had per channel
    batchnorm_examples: int | None = None  # the fewest examples that one had
    alike: Tensor | None = None  # how far the outputs of different rows point the same way: 1 if all do
    rank: Tensor | None = None  # in how many directions the outputs of different rows vary
    generated: Tensor | None = None  # variance and rank of generated rows, each over that of real rows
    log_z: Tensor | None = None  # mean log of the normaliser of the output's softmax
    inputs: Tensor | None = None  # statistics of what the pass was given
    padding: Padding | None = None  # which of its positions are padding
    padding_counted: Tensor | None = None  # of the positions that the loss counts, the fraction that are padding
    repeated: Tensor | None = None  # 1 if two passes of the step gave the same outputs, which differ from row to row
    given: Tensor | float | None = None  # a hash of what the first pass was given, if ranks are compared
    entered: int | None = None  # id of the module that the pass began with
    passed: PassCalls = field(default_factory=PassCalls)  # before the first backward pass, which may run parts again


class ForwardProbe:
    """Watches the first training forward pass of a sampled step."""

    def __init__(
        self,
        model: nn.Module,
        blocks: list[Block],
        units: list[UnitsTap],
        problems: Problems,
        tokens: Mapping[str, int] | None = None,
    ) -> None:
        self._model, declared = model, tokens or {}
        self._pad_id = padding_token(model, declared.get("pad_id"))
        self._pad_ends_text = self._pad_id == declared.get("eos_id")
        self._padding: list[Tensor] = []  # of the tokens that went through an embedding in this pass
        self._problems = problems
        self._outputs = {id(block.module): block for block in blocks if not block.input}
        self._inputs = {id(block.module): block for block in blocks if block.input}
        self._units = {id(tap.module): tap for tap in units}
        self._owners = {id(m) for m in model.modules() if next(m.parameters(recurse=False), None) is not None}
        self._members = {id(m) for m in model.modules()}
        self._open = 0  # modules of the model that are running now, one inside the other
        self._parts: set[int] = set()  # modules that were called by themselves, not by the model
        self._attention_modules = {id(m) for m in model.modules() if has_plain_projections(m)}
        self._mode: AttentionMode | None = None
        self._rotation = Rotation()
        self._numbers: Counter[str] = Counter()  # of the attentions of this pass, by block
        self._attending = ""  # the name of the attention that is looked at
        self._handles: list[RemovableHandle] = []
        self._sample = ForwardSample()
        self._inside: list[str] = []
        self._wanted: frozenset[str] = frozenset()
        self._flowing: dict[int, tuple[str, ref[Tensor]]] = {}  # outputs of blocks; nothing is kept alive
        self._passes = 0
        self._differentiated = False
        self.outputs: list[Tensor] = []  # of the model, small enough to be compared with targets, until the step ends
        self.taken: list[Tensor] = []  # what the first pass was given, in the same way
        self._whole: list[Tensor] = []  # the first output of each pass of the whole model, before backward
        self._generated = Generated()
        self.copies = CopyFinder(model)

    def arm(self, wanted: frozenset[str]) -> None:
        """Listen to the next training forward pass for the `wanted` probes."""
        self._wanted, self._sample, self._passes = wanted, ForwardSample(), 0
        self._inside, self._numbers = [], Counter()
        if "attention" in wanted:
            self._rotation.begin()
        self._flowing, self._padding = {}, []
        self._open, self._parts = 0, set()
        self._differentiated = False
        self.outputs, self.taken, self._whole = [], [], []
        self._generated = Generated()
        if not self._handles:
            self._handles = [
                register_module_forward_pre_hook(lambda module, args: self._entered(module, args)),
                register_module_forward_hook(
                    # When forward raised, torch calls a hook without the keyword arguments it was registered for.
                    lambda module, args, *rest: self._left(module, args, rest[0] if rest[1:] else {}, rest[-1]),
                    with_kwargs=True,
                    always_call=True,
                ),
            ]

    def backward_begins(self) -> None:
        """Modules that run from now on may be those of a checkpointed pass, or of the next micro-batch."""
        self._differentiated = True

    def disarm(self) -> ForwardSample | None:
        """Stop listening; what was seen, or None where no watched module ran."""
        for handle in self._handles:
            remove_hook(handle)
        self._handles = []
        self._flowing, self._padding = {}, []
        self.outputs, self.taken, self._whole = [], [], []
        with torch.no_grad():
            self._sample.generated = self._generated.beside_real()
        self._generated = Generated()
        self._leave_mode()
        return self._sample if self._passes or self._parts else None

    # -- hooks: nothing they do may reach the model -----------------------------------------------

    def _entered(self, module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling():
            return
        with Unseen():
            self._enters(module, args)

    def _enters(self, module: nn.Module, args: object) -> None:
        if self.copies.look_at(module) or not torch.is_grad_enabled():
            return
        try:
            key = id(module)
            if key in self._members:
                self._open += 1
                if module is self._model:
                    self._pass_begins(module, args)
                elif self._open == 1:
                    self._part_begins(module, args)
            if "objective" in self._wanted:
                self._note_turn(module, args)
            if key in self._inputs:
                self._measure(self._inputs[key].name, args)
            if key in self._outputs:
                self._inside.append(self._outputs[key].name)
            if (tap := self._units.get(key)) is not None and tap.input:
                self._count_dead(tap, args)
        except Exception as problem:
            self._problems.report("forward probe", problem)

    def _left(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        if torch.compiler.is_compiling():
            return
        with Unseen():
            self._exits(module, args, kwargs, output)

    def _exits(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        try:
            key = id(module)
            if not torch.is_grad_enabled():
                if key in self._members:
                    self._generated.gives_unseen(key, output)
                return
            self._open -= key in self._members
            if module is self._model:
                self._leave_mode()
                self._passes += 1
                self._sample.output_width = self._sample.output_width or output_width(output)
            elif self._open == 0 and key in self._parts:
                self._part_ends(output)
                self._generated.gives(key, output)
            if output is None:  # the forward pass raised
                return
            if "digests" in self._wanted and self._sample.given is None and self._open == 0:
                given = input_hash((args, kwargs))
                self._sample.given = given if given is None or torch.is_tensor(given) else float(given)
            if module is self._model and "objective" in self._wanted:
                self._sample.passed.take_in(PassCalls(given=tensors_in(args, kwargs)))
                self._sample.log_z = log_normaliser(output)
                self._sample.alike, self._sample.rank = same_direction(output), output_rank(output)
                self._keep_outputs(output)
                self._compare_passes(output)
                self._follow_padding(output)
            if key in self._inputs:
                self._measure(self._inputs[key].name, kwargs)
            if key in self._outputs:
                self._measure(self._outputs[key].name, output)
                self._note_flow(self._outputs[key].name, (args, kwargs), output)
                if self._inside:
                    self._inside.pop()
            if (tap := self._units.get(key)) is not None and not tap.input:
                self._count_dead(tap, output)
            if key in self._attention_modules and self._attention_due(True):
                self._attention(module_heads(module, args, kwargs))  # type: ignore[arg-type]
        except Exception as problem:
            self._problems.report("forward probe", problem)

    def _compare_passes(self, output: object) -> None:
        """Whether a pass, or its second half, gives again what an earlier pass or the first half gave."""
        scores = first_float(output)
        if self._differentiated or scores is None or scores.numel() > MOST_COMPARED or len(self._whole) == _MOST_PASSES:
            return
        scores = scores.detach()
        half = len(scores) // 2  # two views of the examples may go through the model together
        halves = [scores[:half]] if half > 1 and scores.dim() > 1 and len(scores) == 2 * half else []
        for earlier, now in [(each, scores) for each in self._whole] + [(each, scores[half:]) for each in halves]:
            if earlier.shape == now.shape:
                same = ((now == earlier).all() & (now != now[:1]).any()).float()
                known = self._sample.repeated
                self._sample.repeated = same if known is None else torch.maximum(known, same)
        self._whole.append(scores)

    def _follow_padding(self, output: object) -> None:
        """The first pass alone: of several the gradients would belong to other inputs."""
        sample, scores = self._sample, first_float(output)
        if sample.padding is None or scores is None or self._passes > 1:
            return

        def take(fraction: Tensor) -> None:
            sample.padding_counted = fraction

        when_differentiated(scores, sample.padding, take)

    def _note_turn(self, module: nn.Module, args: object) -> None:
        """Which module runs after which, and how many values a batch normalisation has for its statistics."""
        if id(module) in self._owners:
            self._sample.order.setdefault(id(module))
            self._sample.passed.calls[id(module)] += not self._differentiated
        if isinstance(module, _BatchNorm) and module.training and (tensor := first_float(args)) is not None:
            values = tensor.numel() // max(1, tensor.shape[1] if tensor.dim() > 1 else 1)
            self._sample.batchnorm_values = min(values, self._sample.batchnorm_values or values)
            self._sample.batchnorm_examples = min(tensor.shape[0], self._sample.batchnorm_examples or tensor.shape[0])
        if isinstance(module, _NormBase) and module.training and module.running_mean is not None:
            self._sample.untouched.setdefault(id(module), is_initial(module.running_mean, module.running_var))
        if self._pad_id is not None and isinstance(module, nn.Embedding):
            tables = [ids for ids in leaves(args) if isinstance(ids, Tensor) and ids.dim() == 2 and ids.numel()]
            self._padding += [padded_text(ids, self._pad_id, ends_text=self._pad_ends_text) for ids in tables]

    def _pass_begins(self, module: nn.Module, args: object) -> None:
        if self._passes:
            return
        sample = self._sample
        if "objective" in self._wanted and sample.entered is None:
            sample.entered, sample.inputs = id(module), statistics(args)
            sample.padding = padding_of(args, self._pad_id)
            self.taken = [
                each.detach() for each in leaves(args) if isinstance(each, Tensor) and each.numel() <= MOST_COMPARED
            ]
        with self._problems.contained("autocast dtype"):
            device = next((p.device.type for p in self._model.parameters()), "cpu")
            if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                sample.compute_dtype = torch.get_autocast_dtype(device)
        if "modes" in self._wanted:
            sample.modules_in_eval = sum(not module.training for module in self._model.modules())
        if "attention" in self._wanted and self._mode is None:
            report = self._problems.report
            self._mode = AttentionMode(
                self._attention, lambda problem: report("attention", problem), self._attention_due
            )
            self._mode.__enter__()  # type: ignore[no-untyped-call]

    def _part_begins(self, module: nn.Module, args: object) -> None:
        """A part of the model is called by itself, as in `net.head(net.body(x))`: the calls together are the pass.

        A part that is called again begins another pass.
        """
        self._passes += id(module) in self._parts and not self._passes
        self._parts.add(id(module))
        self._generated.takes(id(module), args)
        self._pass_begins(module, args)

    def _part_ends(self, output: object) -> None:
        """The last part that gives scores gives those of the model."""
        self._leave_mode()
        if "objective" in self._wanted:
            self._keep_outputs(output)
        if not self._passes and (width := output_width(output)) is not None:
            self._sample.output_width = width
            if "objective" in self._wanted:
                self._sample.log_z = log_normaliser(output)
                self._sample.alike, self._sample.rank = same_direction(output), output_rank(output)

    def _leave_mode(self) -> None:
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _note_flow(self, name: str, taken: object, given: object) -> None:
        """Whose output a block takes, by the tensor's identity."""
        received = first_float(taken)
        source = self._flowing.get(id(received))
        if received is not None and source is not None and source[1]() is received:
            self._sample.follows.setdefault(name, source[0])
        if (tensor := first_float(given)) is not None:
            self._flowing[id(tensor)] = (name, ref(tensor))

    def _keep_outputs(self, output: object) -> None:
        """Logits of a language model take gigabytes, which the training may free before backward."""
        self.outputs += (tensor for tensor in floats_in(output) if tensor.numel() <= MOST_COMPARED)

    # -- measurements -----------------------------------------------------------------------------

    def _measure(self, name: str, output: object) -> None:
        sample = self._sample
        if name in sample.activations or (tensor := first_float(output)) is None:
            return
        with torch.no_grad():
            values = thinned(tensor.detach()).float()
            if "activations" in self._wanted:
                sample.activations[name] = torch.stack([values.abs().mean(), values.std(correction=0)])
            if "histograms" in self._wanted:
                sample.histograms[name] = magnitude_counts(values)

    def _count_dead(self, tap: UnitsTap, hidden: object) -> None:
        if "dead_units" not in self._wanted or tap.name in self._sample.dead_units:
            return
        tensor = first_float(hidden)
        if tensor is not None and tensor.dim() >= 2:
            with torch.no_grad():
                quiet = silence(tensor, channels_first=tap.channels_first)
                self._sample.dead_units[tap.name] = quiet.dead(), quiet.units
                self._sample.silent[tap.name] = quiet.rows()
                self._sample.saturated[tap.name] = saturated(tensor)

    def _attention_due(self, fused: bool) -> bool:
        """Whether the attention that runs now is looked at; gives it its name."""
        if self._passes or "attention" not in self._wanted:
            return False
        if not fused and not self._inside:  # a softmax outside every block may be anything, such as a pixel's classes
            return False
        base = self._inside[-1] if self._inside else "attention"
        self._numbers[base] += 1
        self._attending = base if self._numbers[base] == 1 else f"{base}#{self._numbers[base]}"
        self._sample.attentions += 1
        return self._rotation.due()

    def _attention(self, heads: Heads, _fused: bool = True) -> Callable[[Tensor], None]:
        """Keep what an attention shows; returns how to hand in later how far it looks ahead."""
        sample, name = self._sample, self._attending
        sample.entropies[name], sample.low_shares[name] = heads.entropy, heads.low_share
        if heads.own is not None:
            sample.own_entropies[name] = heads.own
        if heads.future is not None:
            sample.future[name] = heads.future
        shares = [share for padding in self._padding if (share := heads.on_padding(padding)) is not None]
        if shares:  # of several tables of tokens the least
            least = torch.nan_to_num(torch.stack(shares), math.inf).amin()
            sample.on_padding.append(torch.where(least.isinf(), math.nan, least))

        def looks_ahead(share: Tensor) -> None:
            sample.future[name] = share

        return looks_ahead


def same_direction(output: object) -> Tensor | None:
    """The length of the mean direction of the rows of an output; None if it has too few or too narrow rows."""
    rows = first_float(output)
    if rows is None or rows.dim() < 2 or rows.shape[0] < _FEWEST_ROWS or rows[0].numel() < _FEWEST_ROWS:
        return None
    with torch.no_grad():
        flat = rows.detach()[:_MOST_ROWS].flatten(1)
        flat = torch.nn.functional.normalize(flat[:, :: -(-flat.numel() // MOST_COMPARED)].float(), dim=1)
        length: Tensor = torch.linalg.vector_norm(flat.mean(0))
        return length


def padded_text(ids: Tensor, pad_id: int, *, ends_text: bool) -> Tensor:
    """Where rows of tokens are padded; nowhere if they are not text: positions, the same in all rows, or segments."""
    text = (ids != ids[:1]).any() & (ids.amax() > 1)
    return runs_of_padding(ids, pad_id, ends_text=ends_text) & text


def log_normaliser(output: object) -> Tensor | None:
    """The mean log of the sum of exponentials over the output's last dimension: 0 for log-probabilities."""
    named = getattr(output, "logits", None)
    scores = named if isinstance(named, Tensor) else first_float(output)
    if scores is None or scores.dim() < 2 or scores.shape[-1] < 2:
        return None
    with torch.no_grad():
        return torch.logsumexp(thinned(scores.detach()).float(), -1).mean()


def output_width(output: object) -> int | None:
    """The width of the model's output: of its logits where it names them, of its first matrix otherwise."""
    named = getattr(output, "logits", None)
    candidates = [named] if isinstance(named, Tensor) else list(floats_in(output))
    return next((int(tensor.shape[-1]) for tensor in candidates if tensor.dim() >= 2), None)
