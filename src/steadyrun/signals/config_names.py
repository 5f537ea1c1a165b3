"""The names of a config that are compared with the run, and what looks like one of them but is not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from steadyrun.signals.declared_names import NAMES
from steadyrun.signals.declared_schedule import SCHEDULES, unknown_schedule

# What other programs call the same thing. A name that may mean something else (warmup_ratio, num_steps, decay) is not
# among them.
_SYNONYMS = {
    "lr_max": ("lr", "learningrate", "maxlr", "peaklr", "baselr", "lrpeak"),
    "lr_min": ("minlr", "minlearningrate", "etamin"),
    "warmup_steps": ("warmup", "warmupiters", "numwarmupsteps", "lrwarmupsteps"),
    "total_steps": ("maxsteps", "maxiters", "trainsteps", "numtrainsteps", "maxtrainsteps"),
    "schedule": ("scheduler", "lrschedule", "lrscheduler", "lrschedulertype"),
    "batch_size": ("bs", "trainbatchsize"),
    "accumulation": ("accumulationsteps", "gradaccum", "gradaccumsteps", "gradientaccumulationsteps"),
    "clip": ("gradclip", "clipgrad", "clipnorm", "gradclipnorm", "maxgradnorm", "gradientclipval"),
    "weight_decay": ("wd",),
    "vocab_size": ("nvocab", "vocabularysize"),
    "num_classes": ("nclasses", "numlabels"),
    "pad_id": ("padidx", "paddingidx", "padtokenid"),
    "dtype": ("precision", "mixedprecision"),
    "seed": ("randomseed", "rngseed"),
    "val_every": ("evalevery", "evalinterval", "validateevery", "valinterval"),
}
_DTYPES = {"fp32", "bf16", "fp16", "fp64", "float32", "bfloat16", "float16", "float64", "half", "double", "float"}
_CLOSE = 0.88  # of two names: one letter left out, added or exchanged
_LONG = 6  # letters; shorter names are alike by chance


@dataclass(frozen=True)
class ConfigNote:
    """A declared name or value that is kept but not compared, and the known one that it resembles."""

    name: str
    why: str
    nearest: str | None = None


def config_notes(config: Mapping[str, Any]) -> list[ConfigNote]:
    """What of a config is not compared although it looks as if it was meant to be. Other names are the user's own."""
    return [*_names(config), *_values(config)]


def _names(config: Mapping[str, Any]) -> Iterator[ConfigNote]:
    for name, value in config.items():
        nearest = None if value is None or name in NAMES else _nearest(str(name))
        if nearest is not None and config.get(nearest) is None:
            yield ConfigNote(str(name), f"{str(name)[:60]!r} is not compared, use {nearest!r}", nearest)


def _nearest(name: str) -> str | None:
    """The known name that this one stands for; None if it is the user's own."""
    plain = _plain(name)
    for known, others in _SYNONYMS.items():
        if plain in others:
            return known
    by_plain = {_plain(known): known for known in NAMES}
    if plain in by_plain:
        return by_plain[plain]
    alike = [known for known in by_plain if min(len(known), len(plain)) >= _LONG and known[0] == plain[0]]
    return next((by_plain[known] for known in get_close_matches(plain, alike, 1, _CLOSE)), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _values(config: Mapping[str, Any]) -> Iterator[ConfigNote]:
    if why := unknown_schedule(config):
        nearest = next(iter(get_close_matches(str(config["schedule"]).lower(), SCHEDULES, 1)), None)
        meant = f"use {nearest!r}" if nearest else "give run.watch(…, scheduler=scheduler) to compare with it"
        yield ConfigNote("schedule", f"{why}, {meant}", nearest)
    dtype = config.get("dtype")
    if dtype is not None and str(dtype).lower().removeprefix("torch.") not in _DTYPES:
        yield ConfigNote("dtype", f"the declared dtype {str(dtype)[:60]!r} is not known, use 'fp32', 'bf16' or 'fp16'")
