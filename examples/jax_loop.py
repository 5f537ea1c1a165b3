"""A JAX loop with optax, recorded by what it hands over; torch is not needed.

pip install "steadyrun[jax]"
python jax_loop.py                                  # healthy
python jax_loop.py experiments/too-high --lr 30     # a learning rate that breaks it
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import steadyrun
from steadyrun.integrations.jax import record

parser = argparse.ArgumentParser()
parser.add_argument("run", nargs="?", default="experiments/jax", help="the run directory")
parser.add_argument("--lr", type=float, default=1e-2)
args = parser.parse_args()

config = {"seed": 0, "lr_max": args.lr, "total_steps": 300, "warmup_steps": 20, "clip": 1.0, "num_classes": 5}
schedule = optax.warmup_cosine_decay_schedule(0.0, args.lr, config["warmup_steps"], config["total_steps"])
optimizer = optax.chain(optax.clip_by_global_norm(config["clip"]), optax.adamw(schedule))

random = np.random.default_rng(config["seed"])
params = {"hidden": random.normal(size=(20, 64)) * 0.2, "out": random.normal(size=(64, 5)) * 0.1}
params = jax.tree.map(jnp.float32, params)
opt_state = optimizer.init(params)


def draw(size):
    inputs = random.normal(size=(size, 20)).astype(np.float32)
    return inputs, inputs[:, :5].argmax(axis=1)  # the class is the largest of the first five inputs


def loss_fn(params, batch):
    hidden = jax.nn.relu(batch[0] @ params["hidden"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], batch[1]).mean()


@jax.jit
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss, grads, updates


val_batch = draw(256)
with record(args.run, config=config, schedule=schedule, resume=False) as run:
    for step in range(config["total_steps"]):
        batch = draw(32)
        params, opt_state, loss, grads, updates = train_step(params, opt_state, batch)
        run.step(loss, grads=grads, params=params, updates=updates, opt_state=opt_state, batch=batch)
        if step % 50 == 49:
            run.val(loss_fn(params, val_batch), batches=[val_batch])

print(steadyrun.check(args.run))
