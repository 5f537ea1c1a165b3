"""Recording a JAX loop (optax, Flax, Equinox, anything made of pytrees).

    from steadyrun.integrations.jax import record

    with record("experiments/my-run", config=config, schedule=schedule) as run:
        for batch in batches:
            params, opt_state, loss, grads, updates = train_step(params, opt_state, batch)
            run.step(loss, grads=grads, params=params, updates=updates, opt_state=opt_state, batch=batch)

No step waits for the device: norms are computed by jitted functions, and their numbers are read when they are there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.probes.cadence import Cadence, parse_cadence
from steadyrun.probes.problems import Problems
from steadyrun.recording import record as recording
from steadyrun.recording.run import Run
from steadyrun.signals.curves import knots

if TYPE_CHECKING:
    from steadyrun.monitor.monitor import OnFault

try:
    import jax
    import jax.numpy as jnp
except ImportError as problem:
    raise ImportError("steadyrun.integrations.jax needs JAX: pip install 'steadyrun[jax]'") from problem

_MOST_BLOCKS = 128
_UNPLANNED_STEPS = 10_000

Schedule = Callable[[Any], object]  # optax calls it with an integer, an array or a tracer


def record(
    path: str | os.PathLike[str],
    config: Mapping[str, Any] | None = None,
    *,
    schedule: Schedule | None = None,
    monitor: bool = True,
    on_fault: OnFault | str | None = None,
    on_suspect: OnFault | str | None = None,
    **options: Any,
) -> JaxRun:
    """Start recording a JAX loop into the run directory `path`.

    `schedule` is the optax schedule that the optimizer was built with: it gives the learning rates to expect and, with
    `run.step(…, opt_state=…)`, the rates that were used. `monitor`, `on_fault` and `on_suspect` are those of
    `run.watch`, `config` and all other options those of `steadyrun.record`.
    """
    run = recording.record(path, config, **options)
    if monitor:
        run.monitor(on_fault, on_suspect)
    return JaxRun(run, schedule, parse_cadence(options.get("every")))


class JaxRun:
    """A run being recorded: a `steadyrun.Run` (`.run`) whose `step` takes pytrees."""

    def __init__(self, run: Run, schedule: Schedule | None, every: Mapping[str, int]) -> None:
        self.run = run
        self._schedule = schedule
        self._rate = None if schedule is None else jax.jit(lambda count: schedule(count))
        self._every = every
        self._cadence: Cadence | None = None
        self._problems = Problems(lambda _kind, **_fields: None)
        if schedule is not None:
            with self._problems.contained("the schedule's dry run"):
                self._expect()

    def step(
        self,
        loss: object,
        *,
        grads: object = None,
        params: object = None,
        updates: object = None,
        opt_state: object = None,
        lr: object = None,
        batch: object = None,
        class_losses: Mapping[str, Any] | None = None,
        step: int | None = None,
        **values: object,
    ) -> None:
        """Record one optimizer step; everything but the loss is optional.

        `grads` are the gradients given to the optimizer, before any clipping in its chain. `params` are the parameters
        after the step, `updates` what was added to them. `opt_state` is the optimizer's state after the step: it holds
        the learning rate that was used, unless `lr` is given. `batch`, `class_losses` and `step` are those of
        `steadyrun.Run.step`. Any other `values` are logged under their names.
        """
        before = self.run.next_step if step is None else step
        if self._cadence is None:
            self._cadence = Cadence(self._every, before)
        series: dict[str, object] = dict(values)
        with self._problems.contained("norms"):
            series |= self._norms(before, grads, params, updates)
        with self._problems.contained("learning rate"):
            rate = self._used(opt_state) if lr is None else lr
            series |= {} if rate is None else {"lr/0": rate}
        try:
            self.run.step(loss, batch=_plain(batch), class_losses=class_losses, step=step)
        finally:  # it raises if a fault stops the run
            if series:
                self.run.log(before, **series)

    def val(
        self,
        loss: object,
        *,
        batches: Iterable[object] | None = None,
        class_losses: Mapping[str, Any] | None = None,
        step: int | None = None,
        **metrics: Any,
    ) -> None:
        """Record a validation result at the last recorded step, or at `step`, as `steadyrun.Run.val` does."""
        plain_batches = None if batches is None else [_plain(batch) for batch in batches]
        self.run.val(loss, batches=plain_batches, class_losses=class_losses, step=step, **metrics)

    def log(self, step: int | None = None, **values: object) -> None:
        """Record any scalars at the last recorded step, or at `step`."""
        self.run.log(step, **values)

    def note(self, text: str) -> None:
        """Add a note to the event log."""
        self.run.note(text)

    def checkpoint(self, path: object = None) -> None:
        """Record that the state after the last recorded step was saved, optionally at `path`."""
        self.run.checkpoint(path)

    def flush(self) -> None:
        """Write everything recorded so far to disk; this waits for the device."""
        self.run.flush()

    def close(self, failure: BaseException | None = None) -> None:
        """End the recording: state `finished`, or `crashed` with the `failure`."""
        self.run.close(failure)

    def __enter__(self) -> JaxRun:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, failure: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close(failure)

    # -- inside -----------------------------------------------------------------------------------

    def _norms(self, step: int, grads: object, params: object, updates: object) -> dict[str, jax.Array]:
        assert self._cadence is not None
        if "blocks" not in self._cadence.due(step):
            return {} if grads is None else {"grad_norm": _global_norm(grads)}
        norms: dict[str, jax.Array] = {}
        if grads is not None:
            norms["grad_norm"] = _global_norm(grads)
            norms |= _per_block("block_grad_norm", grads)
        sizes = {} if params is None else _per_block("block_param_norm", params)
        norms |= sizes
        if params is not None and updates is not None:
            moves = _per_block("update_ratio", updates)
            for name, move in moves.items():
                norms[name] = move / sizes[name.replace("update_ratio", "block_param_norm", 1)]
        return norms

    def _used(self, opt_state: object) -> object:
        """The learning rate of the step: injected into the state, or the schedule at the state's own count."""
        if opt_state is None:
            return None
        for state in _states(opt_state):
            hyperparams = getattr(state, "hyperparams", None)
            if isinstance(hyperparams, Mapping) and "learning_rate" in hyperparams:
                return hyperparams["learning_rate"]
        for state in _states(opt_state):
            if type(state).__name__ == "ScaleByScheduleState" and self._rate is not None:
                return self._rate(state.count - 1)
        return None

    def _expect(self) -> None:
        assert self._schedule is not None
        planned = self.run.config.get("total_steps")
        steps = planned if isinstance(planned, int) and planned > 0 else _UNPLANNED_STEPS
        start = self.run.next_step
        rates = jax.jit(jax.vmap(self._schedule))(jnp.arange(start, start + steps))
        curve = knots([float(rate) for rate in jnp.broadcast_to(rates, (steps,)).tolist()])
        source = f"dry run of {getattr(self._schedule, '__qualname__', 'the schedule')}"
        self.run.infer(expected_lr={"source": source, "steps": steps, "groups": [curve], "why": ""})


@jax.jit
def _global_norm(tree: object) -> jax.Array:
    squares = [jnp.sum(jnp.square(jnp.abs(leaf).astype(jnp.float32))) for leaf in jax.tree_util.tree_leaves(tree)]
    return jnp.sqrt(sum(squares))


@jax.jit
def _norms_of(blocks: dict[str, list[jax.Array]]) -> dict[str, jax.Array]:
    return {name: _global_norm(part) for name, part in blocks.items()}


def _per_block(series: str, tree: object) -> dict[str, jax.Array]:
    """The norm of each block: of the children of the outermost node that has several."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    names = [[_word(key) for key in path] for path, leaf in leaves if hasattr(leaf, "dtype")]
    arrays = [leaf for _, leaf in leaves if hasattr(leaf, "dtype")]
    alike = [len(set(words)) == 1 for words in zip(*names, strict=False)] if len(names) > 1 else []
    depth = alike.index(False) if False in alike else 0
    blocks: dict[str, list[jax.Array]] = {}
    for words, array in zip(names, arrays, strict=True):
        blocks.setdefault(".".join(words[: depth + 1]) or "all", []).append(array)
    if len(blocks) > _MOST_BLOCKS:
        return {}
    return {f"{series}/{name}": norm for name, norm in _norms_of(blocks).items()}


def _word(key: object) -> str:
    for name in ("key", "name", "idx"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


def _states(state: object) -> list[Any]:
    """The named states inside of an optimizer's state, outermost first."""
    named_states: list[Any] = []
    waiting = [state]
    while waiting:
        node = waiting.pop(0)
        if hasattr(node, "_fields"):
            named_states.append(node)
        if isinstance(node, tuple | list):
            waiting.extend(node)
        elif isinstance(node, Mapping):
            waiting.extend(node.values())
    return named_states


def _plain(batch: object) -> object:
    """A batch for its hash, as numpy arrays; None if reading it would wait for a device."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(batch) if isinstance(leaf, jax.Array)]
    if any(not leaf.is_ready() or any(device.platform != "cpu" for device in leaf.devices()) for leaf in leaves):
        return None
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, batch)
