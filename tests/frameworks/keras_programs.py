"""Small Keras programs; `python keras_programs.py FOLDER` runs all of them on the backend that KERAS_BACKEND names.

Keras reads its backend when it is imported, so each backend has a process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import steadyrun
from steadyrun.integrations.keras import SteadyrunCallback

SIZE, COUNT = 32, 336  # ten batches and a half


def data(count: int = COUNT, seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 20)).astype("float32")
    return x, (x[:, :5] + 0.3 * draw.normal(size=(count, 5))).argmax(axis=1)


def model(rate: Any = None, **options: Any) -> Any:
    keras.utils.set_random_seed(0)
    built = keras.Sequential(
        [
            keras.Input((20,)),
            keras.layers.Dense(32, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.1, name="drop"),
            keras.layers.Dense(5, name="out"),
        ]
    )
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, 110) if rate is None else rate
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.compile(keras.optimizers.AdamW(schedule, global_clipnorm=1.0, **options), loss, metrics=["accuracy"])
    return built


def fit(built: Any, callbacks: list[Any], epochs: int = 10, **options: Any) -> Any:
    given = {"batch_size": SIZE, "epochs": epochs, "verbose": 0, "validation_data": data(160, seed=7)}
    return built.fit(*data(), callbacks=callbacks, **{**given, **options})


class Losses(keras.callbacks.Callback):
    """What Keras tells of the loss after every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.means: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.means.append(logs["loss"])


def same(folder: Path) -> dict[str, Any]:
    """Training with and without the callback, and what Keras itself tells of the losses."""
    ends, means = [], Losses()
    for callbacks in ([], [SteadyrunCallback(folder / "run", every=1), means]):
        built = model()
        fit(built, callbacks, epochs=3)
        ends.append(built.get_weights())
    equal = all(np.array_equal(one, two) for one, two in zip(*ends, strict=True))
    return {"equal": equal, "means": means.means}


def first_step(folder: Path) -> dict[str, Any]:
    """Loss and gradient norm of the first step, on the torch backend computed by hand."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    keras.utils.set_random_seed(0)
    built = keras.Sequential([keras.Input((20,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(5)])
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.compile(keras.optimizers.SGD(0.1, clipvalue=0.001), loss_fn)
    x, y = data()
    loss = torch.nn.functional.cross_entropy(built(x[:SIZE]), torch.as_tensor(y[:SIZE]))
    grads = torch.autograd.grad(loss, [each.value for each in built.trainable_variables])
    fit(built, [SteadyrunCallback(folder / "run")], epochs=1, shuffle=False)
    return {"loss": loss.item(), "grad_norm": torch.stack([grad.norm() for grad in grads]).norm().item()}


def healthy(folder: Path) -> dict[str, Any]:
    fit(model(), [SteadyrunCallback(folder / "run")])
    plateau = keras.callbacks.ReduceLROnPlateau(patience=2, factor=0.3, min_delta=0.2)
    fit(model(rate=1e-2), [SteadyrunCallback(folder / "plateau"), plateau], epochs=12)
    return {}


def accumulated(folder: Path) -> dict[str, Any]:
    fit(model(gradient_accumulation_steps=3), [SteadyrunCallback(folder / "run")], epochs=3)
    return {}


def resumed(folder: Path) -> dict[str, Any]:
    """The whole model is saved, loaded, and trained on from epoch 2."""
    built = model()
    fit(built, [SteadyrunCallback(folder / "run")], epochs=2)
    built.save(folder / "model.keras")
    loaded = keras.models.load_model(folder / "model.keras")
    fit(loaded, [SteadyrunCallback(folder / "run")], epochs=4, initial_epoch=2)
    fit(model(), [SteadyrunCallback(folder / "run")], epochs=1)
    return {}


def overflow(folder: Path) -> dict[str, Any]:
    """Steps far too large, and a loss that takes the logarithm of zero."""

    def log_loss(y: Any, scores: Any) -> Any:
        chosen = keras.ops.softmax(scores) * keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(y, (-1,)), "int32"), 5)
        return -keras.ops.log(keras.ops.sum(chosen, axis=-1))

    built = model(rate=20.0)
    built.compile(keras.optimizers.SGD(20.0), log_loss)
    try:
        fit(built, [SteadyrunCallback(folder / "run", on_fault="stop")], epochs=40)
    except steadyrun.FaultFound as found:
        return {"stopped": found.found.code}
    return {}


def no_warmup(folder: Path) -> dict[str, Any]:
    """A warmup is meant, and the optimizer has a constant rate."""
    config = {"warmup_steps": 30, "lr_max": 1e-2}
    fit(model(rate=1e-2), [SteadyrunCallback(folder / "run", config=config)])
    return {}


ALL = (same, first_step, healthy, accumulated, resumed, overflow, no_warmup)

if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(json.dumps({program.__name__: program(target / program.__name__) for program in ALL}))
