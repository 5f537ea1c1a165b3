"""Operations, autograd nodes and lines of code by the names that people know."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType

import torch

_SKIPPED = tuple(f"{Path(each).parent}/" for each in (torch.__file__, str(Path(__file__).parent)))
_PREFIXES = re.compile(r"^(_|native_|cudnn_|miopen_|mkldnn_|foreach_)+")
_SUFFIXES = re.compile(r"(_forward|_backward|_legit|_no_training|_default)+$")
_KNOWN = {
    "to_copy": "cast",
    "convolution": "conv",
    "convolution_overrideable": "conv",
    "linalg_vector_norm": "norm",
    "embedding_dense": "embedding",
    "embedding_sparse": "embedding",
    "thnn_fused_lstm_cell": "lstm",
    "thnn_fused_gru_cell": "gru",
    "rnn_layer": "rnn",
    "amp_foreach_non_finite_check_and_unscale": "unscale",
}


@lru_cache(maxsize=4096)
def friendly(operation: str) -> str:
    """`_softmax` is softmax, `native_layer_norm_backward` is layer_norm."""
    plain = _SUFFIXES.sub("", _PREFIXES.sub("", operation).removesuffix("_"))
    if plain.startswith(("scaled_dot_product", "flash_attention", "efficient_attention")):
        return "scaled_dot_product_attention"
    return _KNOWN.get(plain, plain)


@lru_cache(maxsize=4096)
def differentiated(node: str) -> str:
    """The forward operation of an autograd node: `SqrtBackward0` is sqrt; a custom Function keeps its class name."""
    name = node.rpartition("::")[2]
    builtin = re.fullmatch(r"(\w+?)Backward\d+", name)
    if builtin is None:
        return name.removesuffix("Backward")
    return friendly(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", builtin[1]).lower())


def same_operation(node: str, operation: str) -> bool:
    """Whether an autograd node belongs to an operation, by name."""
    return re.sub(r"Backward\d*$", "", node).lower() == operation.replace("_", "")


def calling_line(*, in_backward: bool = False) -> str:
    """The innermost line of code that is neither torch nor ours: `model.py:31 in forward`; empty where there is none.

    In backward that is a line of a Python `backward` or hook; below the engine lies only the call of `backward()`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (in_backward and frame.f_code.co_name == "_engine_run_backward"):
        file = frame.f_code.co_filename
        if not file.startswith(_SKIPPED) and not file.startswith("<frozen"):
            return f"{Path(file).name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
