"""The JAX helper, with optax: the same numbers as numpy gives, nothing waits, real bugs are caught."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steadyrun
from steadyrun.integrations.jax import record

STEPS = 120


def batches(count: int = STEPS) -> Any:
    draw = np.random.default_rng(0)
    for _ in range(count):
        x = draw.normal(size=(32, 20)).astype(np.float32)
        yield x, (x[:, :5] + 0.3 * draw.normal(size=(32, 5))).argmax(axis=1)


def first_params() -> dict[str, Any]:
    one, two = jax.random.split(jax.random.key(0))
    return {
        "hidden": {"kernel": jax.random.normal(one, (20, 32)) * 0.2, "bias": jnp.zeros(32)},
        "out": {"kernel": jax.random.normal(two, (32, 5)) * 0.1, "bias": jnp.zeros(5)},
    }


def loss_of(params: Any, batch: Any) -> Any:
    hidden = jax.nn.relu(batch[0] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    scores = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch[1]).mean()


validate = jax.jit(loss_of)


def train(run: Any, optimizer: Any, steps: int = STEPS, loss_fn: Any = loss_of) -> tuple[Any, list[dict[str, Any]]]:
    """A loop with donated buffers, as is usual; what it returns was computed on the host."""

    @jax.jit
    def train_step(params: Any, state: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss, grads, updates

    params = first_params()
    state = optimizer.init(params)
    seen = []
    held = list(batches(8))
    for batch in batches(steps):
        params, state, loss, grads, updates = train_step(params, state, batch)
        if run is not None:
            run.step(loss, grads=grads, params=params, updates=updates, opt_state=state, batch=batch)
        seen.append({"loss": loss, "grads": grads, "params": params, "updates": updates})
        if run is not None and len(seen) % 40 == 0:
            run.val(np.mean([float(validate(params, each)) for each in held]))
    return params, seen


def norm(tree: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(tree))))


def adamw() -> tuple[Any, Any]:
    schedule = optax.warmup_cosine_decay_schedule(1e-3, 1e-2, 20, STEPS)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3)), schedule


def test_the_same_numbers_as_numpy(tmp_path: Path) -> None:
    optimizer, schedule = adamw()
    config = {"num_classes": 5, "clip": 1.0, "total_steps": STEPS, "dtype": "fp32"}
    with record(tmp_path, config, schedule=schedule) as run:
        ends, seen = train(run, optimizer)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values == pytest.approx([float(each["loss"]) for each in seen], rel=1e-6)
    assert view.series("grad_norm").values == pytest.approx([norm(each["grads"]) for each in seen], rel=1e-5)
    assert view.series("lr/0").values == pytest.approx([float(schedule(step)) for step in range(STEPS)], rel=1e-5)
    assert view.series("block_grad_norm/hidden").steps.tolist() == [0, 1, 2, 5, 10, 19, 100]
    assert view.series("block_param_norm/out").values[0] == pytest.approx(norm(seen[0]["params"]["out"]), rel=1e-5)
    ratio = norm(seen[5]["updates"]["hidden"]) / norm(seen[5]["params"]["hidden"])
    assert view.series("update_ratio/hidden").values[3] == pytest.approx(ratio, rel=1e-5)
    assert len(set(view.series("batch_hash").values)) == STEPS
    assert view.events("probe-failed") == []
    report = steadyrun.check(tmp_path)
    assert report.verdict == "healthy", str(report)
    again, _ = train(None, optimizer)
    assert all(np.array_equal(one, two) for one, two in zip(jax.tree.leaves(ends), jax.tree.leaves(again), strict=True))


def test_no_step_waits_for_its_loss(tmp_path: Path) -> None:
    """A loss that is still being computed when `run.step` returns; it is on the disk in the end."""
    late = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: jnp.tanh(y @ y), x).sum() * 0 + 7)
    start = jnp.full((400, 400), 0.01)
    late.lower(start).compile()
    with record(tmp_path, flush_steps=1) as run:
        for step in range(3):
            run.step(jnp.float32(step))
        waiting = late(start)
        run.step(waiting)
        assert not waiting.is_ready()
    assert steadyrun.open_run(tmp_path).series("loss").values.tolist() == [0, 1, 2, 7]


def test_the_rate_of_injected_hyperparameters(tmp_path: Path) -> None:
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.05)
    with record(tmp_path) as run:
        train(run, optimizer, steps=5)
    assert steadyrun.open_run(tmp_path).series("lr/0").values == pytest.approx([0.05] * 5)


def test_resuming(tmp_path: Path) -> None:
    optimizer, schedule = adamw()
    for first in (0, 3):
        with record(tmp_path, {"total_steps": STEPS}, schedule=schedule, first_step=first) as run:
            train(run, optimizer, steps=5)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").steps.tolist() == list(range(8))
    assert [event.step for event in view.events("resume")] == [3]


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    def overflows(params: Any, batch: Any) -> Any:
        return jnp.exp(loss_of(params, batch) * 20)

    with pytest.raises(steadyrun.FaultFound), record(tmp_path, on_fault="stop", flush_steps=5) as run:
        train(run, optax.sgd(10.0), steps=400, loss_fn=overflows)
    view = steadyrun.open_run(tmp_path)
    assert view.manifest["state"] == "stopped"
    headline = steadyrun.check(tmp_path).headline
    assert headline is not None
    assert headline.question.code.startswith("D1")


def test_options_are_those_of_a_loop_in_torch(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.UsageError, match="on_suspect must be a function"):
        record(tmp_path / "bad", on_suspect=3)  # type: ignore[arg-type]
    with record(tmp_path / "run") as run:
        for step in range(3):
            run.step(1.0, class_losses={"rare": 2.0}, step=2 * step)
        run.val(1.5, class_losses={"rare": 2.5}, step=2, accuracy=0.5)
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("class_loss/rare").steps.tolist() == [0, 2, 4]
    (validation,) = view.events("validation")
    assert validation.step == 2
    assert validation.fields["values"] == {"val_loss": 1.5, "accuracy": 0.5, "val_class_loss/rare": 2.5}


def test_a_schedule_that_was_not_given_to_the_optimizer_is_caught(tmp_path: Path) -> None:
    _, schedule = adamw()
    optimizer = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2)
    config = {"num_classes": 5, "total_steps": STEPS, "warmup_steps": 20, "lr_max": 1e-2}
    with record(tmp_path, config, schedule=schedule) as run:
        train(run, optimizer)
    headline = steadyrun.check(tmp_path).headline
    assert headline is not None
    assert headline.question.code == "C2.1"


def test_no_torch_is_needed(tmp_path: Path) -> None:
    program = f"""
import sys
import jax.numpy as jnp
from steadyrun.integrations.jax import record
with record({str(tmp_path / "run")!r}) as run:
    for step in range(300):
        run.step(jnp.float32(1.0) / (1 + step), grads={{"a": jnp.ones(3), "b": jnp.ones(2)}})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert len(steadyrun.open_run(tmp_path / "run").series("grad_norm")) == 300


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "integrations" / "jax.md"
    monkeypatch.chdir(tmp_path)
    for block in page.read_text().split("```python\n")[1:]:
        exec(block.split("```")[0], {"__name__": "example"})
    assert len(steadyrun.open_run("experiments/my-run").series("loss")) == 200
    assert steadyrun.check("experiments/my-run").verdict == "healthy"
