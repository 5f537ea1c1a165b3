"""Names that programs print beside numbers: which are metrics, which count, which are neither."""

from __future__ import annotations

import re

from steadyrun.importers.series_roles import HELD_OUT, LOSS_WORDS, TRAIN

MARK = re.compile(
    rf"(?:(?<=^)|(?<=[\s\[|(*=:>-]))({'|'.join(sorted(TRAIN | HELD_OUT))})(?=[\s\])|:(]|[.,]\s|$)(?! ?loss)", re.I
)
"""A word that says which data the numbers behind it are about."""

COUNTS = ("num_updates", "global_step", "iter", "step", "update", "batch", "episode", "round")
"""What counts steps, the best first: of several counts in a line the first of these is the step."""
_SPELLED = {
    "epoch": "epoch", "epochs": "epoch", "ep": "epoch", "ep.": "epoch",
    "num_updates": "num_updates", "global_step": "global_step", "global_steps": "global_step",
    "globalstep": "global_step", "current_step": "global_step", "current_steps": "global_step",
    "iter": "iter", "iters": "iter", "iteration": "iter", "iterations": "iter", "acc_iter": "iter", "it": "iter",
    "step": "step", "steps": "step", "timestep": "step", "timesteps": "step", "total_timesteps": "step",
    "update": "update", "updates": "update", "up.": "update", "batch": "batch", "minibatch": "batch",
    "mini-batch": "batch", "episode": "episode", "ep_num": "episode", "episode_num": "episode", "total_t": "step",
    "itr": "iter", "round": "round", "generation": "round", "game": "episode", "i": "round", "idx": "round",
}  # fmt: skip
_INDEX = frozenset({"id", "idx", "index", "no", "no.", "nr", "i", "cur", "curr", "current"})
"""What stands beside the word in the name of a count: `batch_idx`, `i_episode`, `Epoch no.`"""
HEADINGS = frozenset({*COUNTS, "epoch"})
SETTING = re.compile(
    r"\b(?:total|warm-?up|number|num|max(?:imum)?|every|per|epochs|steps = |sav\w++)", re.I
)  # counts of something else
_OTHER = frozenset({
    "total", "warmup", "warm-up", "number", "num", "max", "maximum", "min", "every", "per", "best", "last", "each",
    "nan", "inf", "skipped", "remaining", "save", "saving", "until", "val", "valid", "test", "eval",
})  # fmt: skip

_PLACED = frozenset({"at", "after", "for", "in", "on"})  # `loss at step`

_NOUN = re.compile(
    r"(?:^|[\W_])(?:[a-z0-9]*loss(?:es)?|lr|l\.r\.?|learning[ _]rate|(?:grad(?:ient)?[ _])?norm|gnorm|ppl|perplexity|"
    r"xent|cross[ _-]?entropy|costs?|nll|elbo|rewards?|returns?|scores?|acc(?:uracy)?\d?|accuracies|"
    r"correct|acc@\d|top-?[15]|prec@\d|bleu|wer|cer|map|miou|iou|dice|f1|auc|precision|recall|psnr|ssim|fid|"
    r"kl|mse|mae|rmse|errors?|err|objective)(?:$|[\W_])",
    re.I,
)
_OPTIMISER = re.compile(r"lr|l\.r|rate|norm", re.I)
_QUALIFIER = frozenset({
    "train", "training", "val", "valid", "validation", "eval", "evaluation", "test", "dev", "total", "avg", "average",
    "mean", "running", "lm", "cross", "ce", "nll", "loss", "grad", "gradient", "global", "learning", "current", "l2",
    "dynamic", "smoothed", "best", "min", "max", "epoch", "batch", "generator", "discriminator", "actor", "critic",
    "policy", "value", "reconstruction", "kl", "negative", "neg",
})  # fmt: skip
_STOP = frozenset({
    "a", "an", "the", "with", "at", "for", "of", "to", "in", "and", "is", "was", "on", "by", "after", "from", "got",
    "has", "had", "are", "be", "info", "warning", "error", "debug", "took", "so",
})  # fmt: skip
_SPREAD = frozenset({"std", "stddev", "var", "variance", "min", "max", "minimum", "maximum", "median"})
_DELIMITER = re.compile(
    r"[,;|\[\]{}<>\"=:!?&~(]|\s[-\u2013\u2014>*#•@]{1,3}(?:\s|$)|\s{2}|^[-\u2013\u2014>*#•]{1,3}\s|\.\s|\)(?=\s?\w)"
)
_ASIDE = re.compile(r" ?\([^()]{0,40}\)(?= (?:at|after|for|in|on) )")  # `loss (for one batch) at step`
_ORNAMENT = re.compile(r"^[^\w\s()%]{1,4}\s{1,2}(?=[A-Za-z])")  # a picture in front of a name: `📊 Validation Loss`
_NAME = re.compile(r"[A-Za-z_][\w ./@%+*'$()-]*+")
_FILE = re.compile(
    r"\.(?:py|cc|cpp|cu|h|hpp|js|ts|sh|rs|go|json|ya?ml|txt|log|pth?|ckpt|bin|npy|csv|so|png|jpe?g|pdf|tar|gz|zip|"
    r"pkl|h5|hdf5|onnx|safetensors)$|\\|//",
    re.I,
)
_NOT_METRICS = frozenset({
    "gb", "mb", "kb", "gib", "mib", "ms", "s", "sec", "secs", "seconds", "min", "mins", "h", "hours", "it/s", "cuda",
    "gpu", "cpu", "rank", "local_rank", "device", "line", "pid", "port", "version", "seed", "file", "eta", "id", "ip",
    "v_num", "warnings.warn", "code", "errno", "rpc_code",
})  # fmt: skip
_LONGEST, _MOST_WORDS, _MOST_WORDS_WITH_NOUN = 100, 4, 7
_NOUN_ALIASES = {"l.r.": "lr", "l.r": "lr"}


_TITLE = re.compile(rf"(?:^|[^\w\s])\s*+({'|'.join(sorted(HELD_OUT))})\b[\w ]{{0,20}}:\s*$", re.I)
_IN_TITLES = frozenset({"phase", "set", "results", "result", "metrics", "data", "stage", "mode", "on", "the", "scores",
    "testing", "evaluating", "validating",
})  # fmt: skip


def name_of(front: str) -> str:
    """The words in front of a number that may hold its name: those behind whatever ends something else."""
    text, suffix = _parenthesised(_ASIDE.sub("", front).rstrip())
    phrase = _ORNAMENT.sub("", _DELIMITER.split(text)[-1].strip(" '\"#*•>-_$"), count=1)
    return f"{' '.join(phrase.split())}{suffix}" if phrase else ""


def _parenthesised(text: str) -> tuple[str, str]:
    """A text whose end is a group in parentheses, and the group: `D(G(z))`, `lr(LinearWarmup)`, `time (ms)`."""
    depth = 0
    if not text.endswith(")"):
        return text, ""
    for at in range(len(text) - 1, max(-1, len(text) - 60), -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth == 0:
            return text[:at], text[at:] if at and text[at - 1] != " " else f" {text[at:]}"
    return text, ""


def count_word(phrase: str) -> str | None:
    """What a phrase counts, if it is a count: `Epoch`, `global step`, `training iteration`."""
    words = phrase.lower().split("(")[0].split()
    if not words or len(words) > 6:
        return None
    if len(words) > 1 and (both := _SPELLED.get(f"{words[-2]}_{words[-1]}")):
        return both
    if len(words) > 1 and words[-1] in _INDEX:
        words = words[:-1]
    placed = next((index for index in range(len(words) - 1, 0, -1) if words[index - 1] in _PLACED), 0)
    word = _spelled(words[-1])
    other = set(words[placed:-1]) & _OTHER
    return None if other - (HELD_OUT if word == "epoch" else frozenset()) else word


def _spelled(word: str) -> str | None:
    """What a word counts, also with an index in its name."""
    known = _SPELLED.get(word)
    if known or "_" not in word:
        return known
    parts = [part for part in re.sub(r"_(?:num|number)$", "", word).split("_") if part not in _INDEX]
    return _SPELLED.get(parts[0]) if len(parts) == 1 and not parts[0].endswith("s") else None


def counted(phrase: str) -> str | None:
    """What a phrase counts in front of `3/100`, where it may have any form: `n_batch`, `batch no`."""
    parts = re.split(r"[\W_]+", phrase.lower())
    return next((_SPELLED[part] for part in parts if part in _SPELLED and len(part) > 1), None)


def data_of(word: str) -> str:
    """What numbers behind a word are about, as their names begin; nothing for training data."""
    low = word.lower()
    return "" if low not in HELD_OUT else low if low in ("test", "dev") else "val"


def title_of(line: str) -> str:
    """The data that the lines below a title are about: `Test Error:`, `--- Validation ---`; else nothing."""
    words = re.findall(r"[^\W\d_]+", line[-_LONGEST:].lower())
    if words and all(word in _IN_TITLES or word in HELD_OUT for word in words):
        return next((data_of(word) for word in words if word in HELD_OUT), "")
    match = _TITLE.search(line[-_LONGEST:])
    return data_of(match[1]) if match else ""


def is_noun(name: str) -> bool:
    """Whether a name is one that people give to metrics."""
    return _NOUN.search(name) is not None


def optimiser(name: str) -> bool:
    """Whether a name is that of a setting or a measure of the optimiser."""
    return _OPTIMISER.search(name) is not None


def measured(name: str) -> bool:
    """Whether a name is that of something that an evaluation measures, and not of the optimiser."""
    return has_loss(name) or (is_noun(name) and not optimiser(name))


def has_loss(name: str) -> bool:
    """Whether a name says that it is a loss."""
    low = name.lower().replace("-", "_").replace(" ", "_")
    return low == "cost" or any(word in low for word in LOSS_WORDS)


def metric_name(phrase: str, separated: bool) -> str | None:
    """A phrase as the name of a metric; None if nobody would call a metric so."""
    words = phrase.removesuffix(" so far").split()
    spread = words[:1] and words[0].lower() in _SPREAD  # `Std of Reward` is not `Reward`
    stops = [] if spread else [index + 1 for index, word in enumerate(words[:-1]) if word.lower() in _STOP]
    words = words[stops[-1] :] if stops else words
    if len(words) > _MOST_WORDS or (len(words) > 1 and not separated and not _short(words)):
        if not is_noun(phrase):
            return None
        whole = words if separated and len(words) <= _MOST_WORDS_WITH_NOUN else []
        words = _noun_with_qualifiers(words) or whole
    name = " ".join(words)
    low = name.lower()
    if not name or len(name) > _LONGEST or not _NAME.fullmatch(name) or name.count("(") != name.count(")"):
        return None
    if low.split()[-1] in _NOT_METRICS or low in _STOP or _FILE.search(name) or _spelled(re.split(r"[/.]", low)[-1]):
        return None
    return _NOUN_ALIASES.get(low, name)


def _short(words: list[str]) -> bool:
    """Words that are a name as they stand: each but the noun at the end says which one it is."""
    return len(words) <= 2 or all(word.lower() in _QUALIFIER for word in words[:-1])


def _noun_with_qualifiers(words: list[str]) -> list[str]:
    """The noun at the end of a sentence, with the words that belong to it: `best val loss`."""
    last = len(words) - 1
    first = last
    while first and (words[first - 1].lower() in _QUALIFIER):
        first -= 1
    return words[first:] if is_noun(" ".join(words[first:])) else []
