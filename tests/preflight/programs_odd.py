"""Healthy programs that do unusual things."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from programs_model import (
    GPT,
    LENGTH,
    ROWS,
    VOCAB,
    WIDTH,
    Program,
    accumulated,
    cross_entropy,
    gan,
    images,
    plain,
    tables,
    texts,
)
from torch import Tensor, nn
from torch.nn import functional

from steadyrun import Task


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))


def made(
    model: nn.Module, batches: list[Any] | None = None, loss_fn: Any = cross_entropy, step: Any = plain
) -> Program:
    return Program(
        Task(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn, None, None, step), batches or tables()
    )


def critic_alone() -> Program:
    """Of a GAN only the critic's optimizer is given, and no step."""
    program = gan()
    program.task.optimizer, program.task.train_step = program.task.optimizer[1], None
    return program


def physics() -> Program:
    """A loss that differentiates by itself, and two optimizers in turn over the same parameters."""
    model = mlp()
    adam, lbfgs = torch.optim.Adam(model.parameters(), 1e-3), torch.optim.LBFGS(model.parameters(), max_iter=2)

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        x = batch[0].clone().requires_grad_(True)
        y = net(x)
        slope = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
        return (slope**2).mean() + (y**2).mean()

    def step(task: Task, batch: Any) -> Any:
        def closure() -> Tensor:
            for optimizer in task.optimizer:
                optimizer.zero_grad()
            loss = loss_fn(task.model, batch)
            loss.backward()
            return loss

        if task.step < 1:
            loss = closure()
            adam.step()
            return loss
        return lbfgs.step(closure)

    return Program(Task(model, [adam, lbfgs], loss_fn, None, None, step), tables())


def q_learning() -> Program:
    class Nets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = mlp()
            self.target = copy.deepcopy(self.online)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.online(x), self.target(x).detach()

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        now, later = net(batch[0])
        return functional.smooth_l1_loss(now.gather(1, batch[1][:, None])[:, 0], 0.9 * later.max(1).values)

    model = Nets()
    optimizer = torch.optim.Adam(model.online.parameters(), 1e-3)
    return Program(Task(model, optimizer, loss_fn, None, None, plain), tables(), {"init": "random"})


class Sharp(torch.optim.Optimizer):
    """Sharpness-aware: two backward passes, parameters exchanged between."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.base = torch.optim.SGD(self.param_groups, lr=lr)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["old"] = parameter.data.clone()
            parameter.add_(parameter.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def descend(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data = self.state[parameter]["old"]
        self.base.step()
        self.zero_grad()

    def step(self, closure: Any = None) -> None:
        raise NotImplementedError("climb, then descend")


def sharpness_aware() -> Program:
    model = mlp()
    optimizer = Sharp(model.parameters(), 0.1)

    def step(task: Task, batch: Any) -> Tensor:
        loss = cross_entropy(task.model, batch)
        loss.backward()
        optimizer.climb()
        cross_entropy(task.model, batch).backward()
        optimizer.descend()
        return loss

    return Program(Task(model, optimizer, cross_entropy, None, None, step), tables())


def steps_inside_backward() -> Program:
    model = mlp()
    optimizers = {parameter: torch.optim.AdamW([parameter], 1e-3) for parameter in model.parameters()}

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def step(task: Task, batch: Any) -> Tensor:
        loss = cross_entropy(task.model, batch)
        loss.backward()
        return loss

    return Program(Task(model, list(optimizers.values()), cross_entropy, None, None, step), tables())


def sparse_gradients() -> Program:
    model = nn.Sequential(nn.Embedding(VOCAB, 8, sparse=True), nn.Flatten(), nn.Linear(8 * LENGTH, 3))
    optimizers = [torch.optim.SparseAdam(model[0].parameters()), torch.optim.Adam(model[2].parameters())]

    def step(task: Task, batch: Any) -> Tensor:
        for optimizer in task.optimizer:
            optimizer.zero_grad()
        loss = cross_entropy(task.model, batch)
        loss.backward()
        for optimizer in task.optimizer:
            optimizer.step()
        return loss

    batches = [(x, x[:, 0] % 3) for x, _ in texts()]
    return Program(Task(model, optimizers, cross_entropy, None, None, step), batches)


def carries_its_state() -> Program:
    """A recurrent state from batch to batch, as a plain attribute."""

    class Carrying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.rnn, self.head = nn.Embedding(VOCAB, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, VOCAB)
            self.hidden: Any = None

        def forward(self, ids: Tensor) -> Tensor:
            y, hidden = self.rnn(self.tok(ids), self.hidden)
            self.hidden = tuple(state.detach() for state in hidden)
            return self.head(y)

    return made(Carrying(), texts())


def odd_tensors() -> Program:
    """Doubles, complex numbers, empty and scalar parameters, a buffer that is None."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.empty = nn.Linear(10, 5).double(), nn.Parameter(torch.zeros(0))
            self.scale = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
            self.waves = nn.Parameter(torch.randn(5, dtype=torch.complex128))
            self.register_buffer("count", torch.tensor(3))
            self.register_buffer("nothing", None)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x.double()) * self.scale + (self.waves * self.waves.conj()).real

    return made(Odd())


def moving_codebook() -> Program:
    """A codebook that is a running mean, put into the place of the parameter in every pass."""

    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.codes = nn.Linear(10, 4), nn.Linear(4, 10), nn.Parameter(torch.randn(6, 4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.one(x)
            chosen = functional.one_hot(torch.cdist(z, self.codes.detach()).argmin(1), 6).float()
            near = (chosen @ self.codes).detach()
            if self.training:
                mean = (chosen.T @ z.detach()) / chosen.sum(0)[:, None].clamp(min=1)
                self.codes = nn.Parameter(0.9 * self.codes.detach() + 0.1 * mean)
            return self.two(z + (near - z).detach()), functional.mse_loss(z, near)

    def loss_fn(net: nn.Module, batch: Any) -> Tensor:
        made_of, extra = net(batch[0])
        return functional.mse_loss(made_of, batch[0]) + extra

    return made(Codes(), loss_fn=loss_fn)


def replaced_buffer() -> Program:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(10, 5)
            self.register_buffer("mean", torch.zeros(10))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return self.net(x - self.mean)

    return made(Scaled())


def monte_carlo() -> Program:
    class Always(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            hidden = functional.dropout(
                self.one(x),
                p=0.3,
                training=True,
            )
            return self.two(hidden)

    return made(Always())


def half_precision() -> Program:
    """fp16 with a loss scaler that only the step knows, and whose first steps overflow."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)

    def step(task: Task, batch: Any) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(task.model, batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return Program(Task(model, optimizer, cross_entropy, None, None, step), tables(), {"dtype": "fp16"})


def perceptual() -> Program:
    """A fixed network, hidden in a list, that only the loss looks through."""

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.eye = nn.Linear(10, 10), [nn.Linear(10, 4)]

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    loss_fn = lambda net, batch: functional.mse_loss(net.eye[0](net(batch[0])), net.eye[0](batch[0]))  # noqa: E731
    return made(Looking(), loss_fn=loss_fn)


def tokens_count() -> Program:
    """Accumulation as a mean over all tokens of unequal micro-batches."""
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(task: Task, micro: list[Any]) -> Tensor:
        optimizer.zero_grad()
        count = sum(int((y != -100).sum()) for _, y in micro)
        total = torch.zeros(())
        for x, y in micro:
            loss = functional.cross_entropy(task.model(x).flatten(0, 1), y.flatten(), reduction="sum") / count
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    batches = []
    for index, (x, y) in enumerate(texts(8)):
        masked = torch.where(torch.arange(LENGTH) < (3 if index % 2 else 11), y, -100)
        batches.append((x, masked))
    return Program(Task(model, optimizer, cross_entropy, None, None, step), batches, {"accumulation": 2})


def divides_in_the_loss() -> Program:
    """loss_fn divides by the number of micro-batches, and the step adds up."""
    program = accumulated(divide=1.0)
    program.task.loss_fn = lambda net, batch: cross_entropy(net, batch) / 4
    step = program.task.train_step
    assert step is not None
    program.task.train_step = lambda task, micro: step(task, micro) * 4
    return program


def compiled() -> Program:
    model = mlp()
    compiled_model: Any = torch.compile(model, backend="eager")
    return Program(
        Task(compiled_model, torch.optim.Adam(model.parameters(), 1e-3), cross_entropy, None, None, plain), tables()
    )


def no_rate() -> Program:
    """An optimizer that finds its own learning rate."""

    class Own(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": None})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None:
                    parameter.sub_(0.01 * parameter.grad)

    program = made(mlp())
    program.task.optimizer = Own(program.task.model.parameters())
    return program


def wholly_frozen() -> Program:
    """Nothing of the model learns, only a temperature outside of it."""
    model = mlp().requires_grad_(False)
    heat = nn.Parameter(torch.ones(5))
    loss_fn = lambda net, batch: functional.cross_entropy(net(batch[0]) * heat, batch[1])  # noqa: E731
    return Program(Task(model, torch.optim.SGD([heat], 0.1), loss_fn), tables())


def class_first() -> Program:
    """A class stands before the tokens: one output more than tokens."""

    class Conditional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.kind = GPT(), nn.Embedding(5, WIDTH)

        def forward(self, ids: Tensor, kind: Tensor) -> Tensor:
            x = torch.cat([self.kind(kind)[:, None], self.inner.tok(ids)], 1)
            for block in self.inner.blocks:
                x = block(x)
            return self.inner.head(self.inner.norm(x))

    batches = [(x[:, :-1].contiguous(), torch.arange(ROWS), x) for x, _ in texts()]
    loss_fn = lambda net, batch: functional.cross_entropy(net(*batch[:2]).flatten(0, 1), batch[2].flatten())  # noqa: E731
    program = made(Conditional(), batches, loss_fn)
    program.config = {"causal": True}
    return program


def features_without_gradient() -> Program:
    """A backbone within no_grad, nobody froze it, and all parameters are in the optimizer."""

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(10, 16), nn.ReLU()), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.body(x)
            return self.head(x)

    return made(Features())


def frames_of_a_video() -> Program:
    """Rows are frames of one video, and a recurrent layer looks along them."""

    class Video(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eye, self.rnn, self.head = nn.Conv2d(3, 4, 3), nn.GRU(4, 8, batch_first=True), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(self.eye(x).mean((2, 3))[None])[0][0])

    return made(Video(), images())


def few_shots() -> Program:
    """As many examples to learn from as to classify: each output depends on all of the first."""

    class Episode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Conv2d(3, 8, 8)

        def forward(self, support: Tensor, query: Tensor) -> Tensor:
            return -torch.cdist(self.net(query).flatten(1), self.net(support).flatten(1)[:4])

    batches = [(x, x.flip(0) + 0.1, y) for x, y in images()]
    loss_fn = lambda net, batch: functional.cross_entropy(net(batch[0], batch[1]), batch[2])  # noqa: E731
    return made(Episode(), batches, loss_fn)


def small_scales() -> Program:
    """Every block begins with a tiny factor."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Linear(20, 10))
            self.scale = nn.Parameter(torch.full((10,), 1e-7))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.scale * self.net(x)

    model = nn.Sequential(*[Scaled() for _ in range(8)], nn.Linear(10, 5))
    return Program(Task(model, torch.optim.SGD(model.parameters(), 0.1), cross_entropy, None, None, plain), tables())


def one_row() -> Program:
    model = nn.Sequential(nn.Linear(10, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    loss_fn = lambda net, batch: (net(batch[0])[:, 0] - batch[1]).abs().mean()  # noqa: E731
    return made(model, [(torch.randn(1, 10), torch.randn(1))] * 2, loss_fn)


def words() -> Program:
    """Batches of strings and lists."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.head = nn.EmbeddingBag(64, 8), nn.Linear(8, 2)

        def forward(self, texts: list[str]) -> Tensor:
            return self.head(self.bag(torch.tensor([[len(word), ord(word[0]) % 64] for word in texts])))

    loss_fn = lambda net, batch: functional.cross_entropy(net(batch["text"]), torch.tensor(batch["label"]))  # noqa: E731
    return made(Reader(), [{"text": ["a", "bc", "def", "g"], "label": [0, 1, 0, 1]}] * 3, loss_fn)


ODD: dict[str, Callable[[], Program]] = {
    make.__name__: make
    for make in (
        critic_alone, physics, q_learning, sharpness_aware, steps_inside_backward, sparse_gradients, carries_its_state,
        odd_tensors, moving_codebook, replaced_buffer, monte_carlo, half_precision, perceptual, tokens_count,
        divides_in_the_loss, compiled, no_rate, wholly_frozen, class_first, one_row, words,
        features_without_gradient, frames_of_a_video, few_shots, small_scales,
    )
}  # fmt: skip
