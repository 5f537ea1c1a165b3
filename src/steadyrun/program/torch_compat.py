"""Every patch of torch and every private name of it that steadyrun uses: when torch changes, this file does.

One policy for every patch. On top, the wrapper is taken off and what was found there is put back. If another tool
has wrapped it meanwhile, it stays inside theirs and only passes calls on; the next user finds it there and uses it
again, so it never stands in the chain twice. A wrapper always calls what it was put around and nothing else, so the
chain cannot become a circle.

Behind each name stand the versions of torch with which it was tried. What a version lacks is None, or a patch point
that does not exist, and who uses it does without.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode  # 2.11, 2.13
from torch.utils.data import dataloader
from torch.utils.hooks import RemovableHandle

Around = Callable[..., Any]
"""Called as `around(call, *args, **options)` instead of the function, which is `call`."""

_MARK = "__steadyrun__"
_TORCH = str(Path(torch.__file__).parent) + os.sep
_PLAIN = (type, str, int, float, type(None))  # what refers to no other function
_MOST_NODES = 2_000  # of what another tool's wrapper refers to
_MISSING: Any = object()
_lock = threading.RLock()


@contextmanager
def wrapped(owner: Any, name: str, around: Around) -> Iterator[None]:
    """Have `around` called instead of `owner.name` inside the body."""
    wrapping = wrap(owner, name, around)
    try:
        yield
    finally:
        wrapping.remove()


def wrap(owner: Any, name: str, around: Around) -> Wrapping:
    """Have `around` called instead of `owner.name` (of a module, a class or an object) until `remove()`."""
    with _lock:
        layer = _layer_within(getattr(owner, name), owner, name) or _Layer(owner, name)
        return Wrapping(layer, around)


class Wrapping:
    """One use of a wrapper, to be removed as torch's hooks are."""

    def __init__(self, layer: _Layer, around: Around) -> None:
        self.around = around
        self._layer = layer
        layer.users = (*layer.users, self)

    def remove(self) -> None:
        """Take it off; twice does no harm."""
        with _lock:
            layer = self._layer
            layer.users = tuple(user for user in layer.users if user is not self)
            if not layer.users:
                layer.take_off()


class _Layer:
    """Our wrapper around one function, with all who use it; the first of them is the outermost."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.users: tuple[Wrapping, ...] = ()
        self._own_attribute = vars(owner).get(name, _MISSING)  # a class or an object may have it from elsewhere
        self.wrapper = self._around(getattr(owner, name))
        setattr(owner, name, self.wrapper)

    def take_off(self) -> None:
        """Put back what was found, unless another tool has wrapped it: then it stays and passes calls on."""
        if vars(self.owner).get(self.name) is not self.wrapper:
            return
        if self._own_attribute is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._own_attribute)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling():  # nothing of ours gets into a graph
                return original(*args, **options)
            call = original
            for user in reversed(self.users):
                call = functools.partial(user.around, call)
            return call(*args, **options)

        setattr(wrapper, _MARK, self)
        return wrapper


def _layer_within(function: Any, owner: Any, name: str) -> _Layer | None:
    """Our layer for this function somewhere inside what stands there now: another tool may have wrapped it."""
    if _is_torchs(function):
        return None
    waiting, known = deque([function]), {id(function): function}
    while waiting:
        node = waiting.popleft()
        layer = _layer_of(node)
        if layer is not None and layer.owner is owner and layer.name == name:
            return layer
        for part in _parts(node):
            if id(part) not in known and len(known) < _MOST_NODES:
                known[id(part)] = part
                waiting.append(part)
    return None


def _is_torchs(function: Any) -> bool:
    """Whether this is a function of torch, around another of torch at most: nobody has wrapped it."""
    if type(function) is not FunctionType or not function.__code__.co_filename.startswith(_TORCH):
        return False
    try:
        inner = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell that is still empty
        return False
    return all(isinstance(part, _PLAIN) or _is_torchs(part) for part in (*inner, *vars(function).values()))


def _layer_of(function: Any) -> _Layer | None:
    """The layer whose wrapper this is. `functools.wraps` copies the mark onto wrappers of others."""
    layer = vars(function).get(_MARK) if type(function) is FunctionType else None
    return layer if isinstance(layer, _Layer) and layer.wrapper is function else None


def _parts(node: Any) -> Iterable[Any]:
    """What a wrapper may call: what it closes over, its globals, its attributes. Nothing is executed."""
    kind = type(node)
    if kind in (list, tuple, dict):
        return list(islice(node.values() if kind is dict else node, _MOST_NODES))
    if kind is MethodType:
        return [node.__func__, node.__self__]
    if kind is FunctionType:
        return _parts_of_function(node)
    parts = [node.func, node.args, node.keywords] if issubclass(kind, functools.partial) else []
    if not issubclass(kind, ModuleType | torch.Tensor | Wrapping | _Layer):  # ours lead to layers that nobody calls
        with suppress(Exception):  # it has no attributes, or is a cell that is still empty
            parts += [node.cell_contents] if kind is CellType else list(vars(node).values())
    return parts


def _parts_of_function(function: FunctionType) -> list[Any]:
    known = function.__globals__
    names = [known[name] for name in function.__code__.co_names if name in known]
    closed = list(function.__closure__ or ())
    return [*closed, *vars(function).values(), *names, function.__defaults__, function.__kwdefaults__]


@dataclass(frozen=True)
class PatchPoint:
    """A function of torch that is looked up by its name at every call, so that a wrapper is seen."""

    owner: Any
    name: str

    @property
    def exists(self) -> bool:
        return hasattr(self.owner, self.name)

    def wrap(self, around: Around) -> Wrapping:
        return wrap(self.owner, self.name, around)

    def wrapped(self, around: Around) -> AbstractContextManager[None]:
        return wrapped(self.owner, self.name, around)


BACKWARD = PatchPoint(torch.autograd, "backward")  # 2.11, 2.13: what Tensor.backward calls
GRAD = PatchPoint(torch.autograd, "grad")  # 2.11, 2.13
TOTAL_NORM = PatchPoint(clip_grad, "_get_total_norm")  # 2.11, 2.13: the two halves of clip_grad_norm_
CLIP_WITH_NORM = PatchPoint(clip_grad, "_clip_grads_with_norm_")  # 2.11, 2.13
ENTER_AUTOCAST = PatchPoint(torch.autocast, "__enter__")  # 2.11, 2.13
UNSCALE_GRADIENTS = PatchPoint(
    torch.amp.GradScaler, "_unscale_grads_"
)  # 2.11, 2.13: whether unscale_ or step asks for it

OPTIMIZER_INIT = PatchPoint(torch.optim.Optimizer, "__init__")  # 2.11, 2.13: every optimizer of torch calls it
SCALER_STEP = PatchPoint(torch.amp.GradScaler, "step")  # 2.11, 2.13
NEXT_BATCH = PatchPoint(dataloader._BaseDataLoaderIter, "__next__")  # 2.11, 2.13: of every data loader
SAVE = PatchPoint(torch, "save")  # 2.11, 2.13
COMPILE = PatchPoint(torch, "compile")  # 2.11, 2.13
COMPILE_MODULE = PatchPoint(nn.Module, "compile")  # 2.11, 2.13

# Arithmetic on many tensors at once.
foreach_norm = torch._foreach_norm  # 2.11, 2.13
foreach_sub = torch._foreach_sub  # 2.11, 2.13
foreach_copy_ = torch._foreach_copy_  # 2.11, 2.13

# Inside of it no mode sees what is called, ours for attention included: it costs several microseconds a call.
Unseen = torch._C.DisableTorchFunction  # 2.11, 2.13

# The autograd engine and its graph.
backward_id: Callable[[], int] = torch._C._current_graph_task_id  # 2.11, 2.13: of the backward pass under way
current_node: Callable[[], Any] | None = getattr(torch._C, "_current_autograd_node", None)  # 2.11, 2.13
sequence_number: Callable[[], int] | None = getattr(torch.autograd, "_get_sequence_nr", None)  # 2.11, 2.13
SAVED = "_saved_"  # 2.11, 2.13: what a node has kept for its backward, as attributes

Dropout = nn.modules.dropout._DropoutNd  # 2.11, 2.13: what all dropouts of torch.nn are
hooks_with_kwargs: dict[int, bool] = getattr(nn.modules.module, "_global_forward_hooks_with_kwargs", {})  # 2.11, 2.13
COMPILED = "_orig_mod"  # 2.11, 2.13: the user's module inside of what torch.compile returns
PATH_PARTS = (COMPILED, "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # 2.11, 2.13: put into parameter names
_STAGES = "_per_optimizer_states"  # 2.11, 2.13: of a GradScaler, what it has done in this step

# torch's generator on the CPU, as its state lies in memory: seed, words left, flag and position, then the words of a
# Mersenne twister in 8 bytes each, then what is left of a pair of Gaussians. 2.11, 2.13
GENERATOR_HEAD, GENERATOR_WORDS = 24, 624 * 8
GENERATOR_ADDRESS = "_cdata"  # 2.11, 2.13: of the generator itself, behind its Python object


def is_spread(tensor: Any) -> bool:
    """Whether a tensor is spread over processes (a DTensor): arithmetic with it may wait for the other ranks."""
    return hasattr(tensor, "full_tensor")


def saved(node: Any, name: str, default: Any = None) -> Any:
    """What a node of the graph has kept for its backward, such as `saved(node, "target")`; no spread tensor."""
    kept = getattr(node, SAVED + name, default)
    return default if is_spread(kept) else kept


def after_backward(callback: Callable[[], None]) -> None:
    """Call it when the backward pass under way ends: queued twice, so that it comes after what others queue (DDP)."""
    engine = torch.autograd.Variable._execution_engine  # 2.11, 2.13
    engine.queue_callback(lambda: engine.queue_callback(callback))


def without_compiler(module: Any) -> Any | None:
    """The user's module inside of a compiled one; None where it is not compiled."""
    return getattr(module, COMPILED, None)


def is_compiled_module(module: Any) -> bool:
    """By torch.compile(module), by module.compile(), or by Lightning, which keeps its compiler's settings."""
    return (
        hasattr(module, COMPILED)
        or getattr(module, "_compiled_call_impl", None) is not None  # 2.11, 2.13
        or getattr(module, "_compiler_ctx", None) is not None
    )


def something_was_compiled() -> bool:
    """Whether torch.compile has been at work anywhere in this process."""
    utils = sys.modules.get("torch._dynamo.utils")  # 2.11, 2.13
    return utils is not None and bool(utils.counters["stats"])


def scaler_stages(scaler: Any) -> dict[int, Any] | None:
    """What a loss scaler has done in this step, by optimizer; None if it is not a GradScaler."""
    stages: dict[int, Any] | None = getattr(scaler, _STAGES, None)
    return stages


def observe_out_of_memory(observer: Callable[[int, int, int, int], None]) -> bool:
    """Called inside the CUDA allocator with device, size, allocated, free. torch keeps it for the process's life."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)  # 2.11, 2.13
    if attach is None or not torch.cuda.is_available():
        return False
    attach(observer)
    return True


def recorded_collectives() -> bytes | None:
    """The last collectives of gloo's process groups as JSON, from torch's Flight Recorder; None if it has none.

    NCCL's recorder is not asked: it queries events of the device, which may hang.
    """
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)  # 2.13
    if dump is None:
        return None
    trace = dump(True, False)
    return trace if isinstance(trace, bytes) else str(trace).encode()


@contextmanager
def no_autocast() -> Iterator[None]:
    """An autocast that was made before is entered as one that is off; one that is on already is left."""
    with ExitStack() as stack:
        stack.enter_context(ENTER_AUTOCAST.wrapped(_enter_disabled))
        for device in ("cpu", "cuda", "mps", "xpu"):
            with suppress(RuntimeError):  # a kind of device for which this torch knows no autocast
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _enter_disabled(enter: Any, autocast: Any) -> Any:
    """The object is the program's, which may have made it once for all steps: it is left enabled."""
    enabled, autocast._enabled = autocast._enabled, False
    try:
        return enter(autocast)
    finally:
        autocast._enabled = enabled


_HOOK_KWARGS: dict[int, bool] = getattr(nn.modules.module, "_global_forward_hooks_with_kwargs", {})  # 2.11, 2.13


def remove_hook(handle: RemovableHandle) -> None:
    """Take a global hook off with its trace, which torch forgets and which makes torch.compile warn."""
    handle.remove()
    _HOOK_KWARGS.pop(handle.id, None)


_PRE_HOOKS: dict[int, Any] | None = getattr(nn.modules.module, "_global_forward_pre_hooks", None)  # 2.11, 2.13


class ForwardPreHook:
    """A global forward pre-hook that is put on and taken off in every step.

    To register one each time takes 8 µs between two training steps, to put the same one back hardly any.
    """

    def __init__(self, hook: Callable[[nn.Module, Any], None]) -> None:
        self._hook = hook
        self._handle: RemovableHandle | None = None if _PRE_HOOKS is None else RemovableHandle(_PRE_HOOKS)
        self.on = False

    def put_on(self) -> None:
        if self.on:
            return
        self.on = True
        if _PRE_HOOKS is None or self._handle is None:
            self._handle = nn.modules.module.register_module_forward_pre_hook(self._hook)
        else:
            _PRE_HOOKS[self._handle.id] = self._hook

    def take_off(self) -> bool:
        """Whether it was on."""
        was_on, self.on = self.on, False
        if was_on and _PRE_HOOKS is not None and self._handle is not None:
            _PRE_HOOKS.pop(self._handle.id, None)
        elif was_on and self._handle is not None:
            self._handle.remove()
        return was_on


@contextmanager
def joining(module: nn.Module, args: Any) -> Iterator[None]:
    """Global forward pre-hooks that are put on in the body, which is a pre-hook itself, see this call as well."""
    before = set(_PRE_HOOKS or ())
    yield
    for number, hook in list((_PRE_HOOKS or {}).items()):
        if number not in before:
            hook(module, args)


_OPENMP = re.compile(r"\S*/lib(?:gomp|iomp5|omp)[^/\s]*\.so\S*")


def compute_alone() -> None:
    """Let the calling thread compute without OpenMP helpers of its own; other threads keep theirs.

    A second team of helpers makes libgomp put the first one to sleep between operations, because there are more
    threads than cores: a small model then trains 2.6 times slower on two cores.
    """
    torch.get_num_threads()  # sets up this thread, so that torch does not change the number again
    try:
        libraries = set(_OPENMP.findall(Path("/proc/self/maps").read_text()))
    except OSError:  # another operating system
        return
    for library in libraries:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(library).omp_set_num_threads(1)


def collectives_so_far() -> int | None:
    """How many collectives this process has started, in all its process groups; None if they do not count them."""
    try:
        groups: Iterable[Any] = torch.distributed.distributed_c10d._world.pg_map  # 2.11, 2.13
        numbers: list[int] = [group._get_sequence_number_for_group() for group in groups]
    except (AttributeError, RuntimeError):  # a backend without numbers, or another release of torch
        return None
    return sum(numbers)


def unreduced_gradients(model: nn.Module | None) -> int:
    """How many parameters sharded by fully_shard hold a gradient that was not reduced over the ranks; 2.11, 2.13."""
    states = [getattr(each, "_get_fsdp_state", lambda: None)() for each in (model.modules() if model else ())]
    groups = [group for state in states for group in getattr(state, "_fsdp_param_groups", ())]
    parameters = [each for group in groups for each in getattr(group, "fsdp_params", ())]
    waiting = (
        getattr(each, "unsharded_accumulated_grad", None) is not None
        or getattr(getattr(each, "_unsharded_param", None), "grad", None) is not None
        for each in parameters
    )
    return sum(waiting) + sum(getattr(group, "_partial_reduce_output", None) is not None for group in groups)
