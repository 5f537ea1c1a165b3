"""A sampled forward pass on its way into a row, and what only a forward pass shows into the manifest."""

from __future__ import annotations

from collections.abc import Callable

import torch

from steadyrun.probes.activations import NAMES, ForwardSample
from steadyrun.probes.attention import LOW_SHARE
from steadyrun.probes.description import dtype_name
from steadyrun.probes.model_inputs import STATISTICS
from steadyrun.probes.problems import Problems
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values

_MOST_HEADS = 256
_GENERATED = ["generated/variance", "generated/rank", "generated/real_mean", "generated/real_std"]
_STATISTICS = ["untouched_statistics", "running_statistics"]


def put_forward(row: ProbeRow, sample: ForwardSample) -> None:
    """Put the numbers of a forward pass into a row."""
    for name, pair in sample.activations.items():
        row.put_many(pair, by_names([f"activation/{name}", f"activation_std/{name}"]))
    for name, counts in sample.histograms.items():
        row.put_many(counts, by_names(histogram_names("activation", name)))
    for name, (dead, _total) in sample.dead_units.items():
        row.put(f"dead_units/{name}", dead)
        row.put(f"silent_inputs/{name}", sample.silent[name])
        row.put(f"saturated/{name}", sample.saturated[name])
    heads = sample.attentions * max((share.numel() for share in sample.low_shares.values()), default=0)
    for name, share in sample.low_shares.items():
        row.put_many(share, _heads(name, every=heads <= _MOST_HEADS))
        row.put(f"attention_entropy/{name}", sample.entropies[name].mean())
        if name in sample.own_entropies:
            row.put(f"lowest_head_entropy/{name}", sample.own_entropies[name].min())
    for name, future in sample.future.items():
        row.put(f"future_attention/{name}", future)
    if sample.on_padding:
        row.put("padding_attention", torch.stack(sample.on_padding).amax())
    if sample.untouched:
        untouched = torch.stack([still.float() for still in sample.untouched.values()])
        row.put_many(torch.stack([untouched.sum(), torch.ones_like(untouched).sum()]), by_names(_STATISTICS))
    if sample.inputs is not None:
        row.put_many(sample.inputs, by_names([f"inputs/{name}" for name in STATISTICS]))
    if sample.padding is not None and sample.padding_counted is not None:
        row.put("padding_counted", sample.padding_counted)
        row.put("padding_declared", float(sample.padding.declared))
    row.put("log_z", sample.log_z)
    row.put("output_alike", sample.alike)
    row.put("output_rank", sample.rank)
    if sample.generated is not None:
        row.put_many(sample.generated, by_names(_GENERATED))
    row.put("passes_alike", sample.repeated)
    row.put("batchnorm_values", sample.batchnorm_values)
    row.put("batchnorm_examples", sample.batchnorm_examples)
    if sample.modules_in_eval is not None:
        row.put("modules_in_eval", float(sample.modules_in_eval))


def learn(
    sample: ForwardSample, learned: Callable[..., None], problems: Problems, armed: frozenset[str], followed: bool
) -> None:
    """What only a forward pass shows, for the manifest."""
    facts: dict[str, object] = {
        "hidden_units": {name: total for name, (_, total) in sample.dead_units.items()},
        "attention_heads": {name: share.numel() for name, share in sample.low_shares.items()},
    }
    if sample.follows:
        facts["follows"] = sample.follows
    if sample.output_width is not None:
        facts["output_width"] = sample.output_width
    if sample.compute_dtype is not None:
        facts["dtype"] = dtype_name(sample.compute_dtype)
    learned(**facts)
    if followed and not sample.activations and "activations" in armed:
        problems.unavailable("activations", "none of the followed blocks ran in the model's forward pass")
    if not sample.dead_units and "dead_units" in armed:
        problems.unavailable("dead units", "no feed-forward layer or activation module was found")
    if not sample.low_shares and "attention" in armed:
        problems.unavailable("attention", "no attention was seen in the forward pass")


def by_names(names: list[str]) -> Unpack:
    def unpack(array: HostArray) -> Values:
        return dict(zip(names, array.tolist(), strict=True))

    return unpack


def _heads(name: str, *, every: bool) -> Unpack:
    """The count of dead heads of a block and, unless there are too many, each head's fraction of low entropy."""

    def unpack(array: HostArray) -> Values:
        values: Values = {f"dead_heads/{name}": float((array > LOW_SHARE).sum())}
        if every:
            values.update({f"low_entropy_share/{name}/{head}": float(x) for head, x in enumerate(array)})
        return values

    return unpack


def histogram_names(kind: str, name: str) -> list[str]:
    return [f"histogram/{kind}/{name}/{bin_name}" for bin_name in NAMES]
