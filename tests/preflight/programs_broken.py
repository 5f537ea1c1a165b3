"""The programs of `programs_model`, each with one real mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import programs_model as healthy
import torch
from programs_model import Program, cross_entropy, images, plain, tables, texts
from torch import Tensor, nn
from torch.nn import functional

from steadyrun import Task


def with_model(model: nn.Module, batches: list[Any], config: dict[str, Any] | None = None, **options: Any) -> Program:
    optimizer = options.pop("optimizer", None) or torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0)
    loss_fn = options.pop("loss_fn", cross_entropy)
    return Program(
        Task(model, optimizer, loss_fn, train_step=options.pop("step", plain), **options), batches, config or {}
    )


def stepping(step: Callable[[Task, Any], Any], **config: Any) -> Program:
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
    return with_model(model, tables(), config, step=step)


# -- P3: what outputs may know ------------------------------------------------------------------------


def leak_declared() -> Program:
    return healthy.gpt(causal=False)


def leak_undeclared() -> Program:
    return with_model(healthy.LSTM(bidirectional=True), texts())


def mask_off_by_one() -> Program:
    """Each position sees one token too many: its own target."""
    program = healthy.prefix_lm()
    mask = torch.ones(healthy.LENGTH, healthy.LENGTH).tril(1).bool()
    program.batches = texts()
    program.task.loss_fn = lambda net, batch: functional.cross_entropy(
        net(batch[0], mask).flatten(0, 1), batch[1].flatten()
    )
    return program


def leak_in_convolution() -> Program:
    program = healthy.causal_convolution()
    program.task.model.forward = lambda x, net=program.task.model: net.two(  # type: ignore[method-assign]
        functional.pad(torch.relu(net.one(functional.pad(x, (0, 1)))), (1, 1))
    )
    return program


def leak_time_first() -> Program:
    program = healthy.time_first()
    model = program.task.model
    model.forward = lambda ids: model.head(model.inner(model.tok(ids)))  # type: ignore[method-assign]
    return program


class SoftmaxOverRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.out = nn.Linear(10, 10), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x * self.gate(x).softmax(0))


def rows_by_softmax() -> Program:
    return with_model(SoftmaxOverRows(), tables(), {"batch_size": 8})


def rows_in_a_loader() -> Program:
    x, y = torch.randn(32, 10), torch.randint(0, 5, (32,))
    program = rows_by_softmax()
    program.config = {}
    program.batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8)  # type: ignore[assignment]
    return program


class LastState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(6, 8), nn.Linear(8, 3)  # batch_first is missing

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def rows_by_batch_first() -> Program:
    return with_model(LastState(), [(torch.randn(5, 9, 6), torch.randint(0, 3, (5,))) for _ in range(3)])


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        swapped = x.view(64, len(x), 3)  # a permute is meant
        return self.net(swapped).mean(0)


def rows_by_view() -> Program:
    return with_model(Viewed(), images())


def padding_attended() -> Program:
    return healthy.bert(masked=False)


def padding_on_the_left() -> Program:
    batches = []
    for x, y in texts():
        x, y = x.clone(), y.clone()
        x[1, :5], y[1, :5] = 0, -100
        x[2, :2], y[2, :2] = 0, -100
        batches.append((x, y))
    return with_model(healthy.GPT(), batches, {"pad_id": 0})


# -- P4: parameters -----------------------------------------------------------------------------------


def head_replaced() -> Program:
    program = stepping(plain)
    program.task.model[2] = nn.Linear(16, 5)  # type: ignore[index]
    return program


def head_left_out() -> Program:
    program = stepping(plain, init="random")
    program.task.optimizer = torch.optim.SGD(program.task.model[0].parameters(), 0.1)  # type: ignore[index]
    return program


def twice() -> Program:
    program = stepping(plain)
    group = program.task.optimizer.param_groups[0]
    group["params"].append(group["params"][0])
    return program


def two_optimizers_one_gradient() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        for optimizer in task.optimizer:
            optimizer.zero_grad()
        loss = cross_entropy(task.model, batch)
        loss.backward()
        for optimizer in task.optimizer:
            optimizer.step()
        return loss

    program = stepping(step)
    parameters = list(program.task.model.parameters())
    program.task.optimizer = [torch.optim.SGD(parameters, 0.1), torch.optim.SGD(parameters[:2], 0.1)]
    return program


def all_frozen() -> Program:
    program = stepping(plain)
    model = program.task.model.requires_grad_(False)
    model.append(nn.Linear(5, 5))  # type: ignore[operator]
    program.task.train_step = None
    return program


def all_frozen_with_a_step() -> Program:
    program = stepping(plain)
    program.task.model.requires_grad_(False)
    return program


def random_head_frozen() -> Program:
    program = stepping(plain, init="random")
    program.task.model[2].requires_grad_(False)  # type: ignore[index]
    return program


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(10, 10) for _ in range(2)]
        self.scale = torch.ones(10, requires_grad=True)
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x * self.scale)


def in_a_list() -> Program:
    return with_model(Listed(), tables())


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Sequential(nn.Linear(10, 16), nn.ReLU()), nn.Linear(16, 5)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).detach())


def detached() -> Program:
    return with_model(Detached(), tables())


def through_numpy() -> Program:
    program = with_model(Detached(), tables())
    model = program.task.model
    model.forward = lambda x: model.head(torch.from_numpy(model.encoder(x).detach().numpy()))  # type: ignore[method-assign]
    program.task.train_step = None
    return program


def never_steps() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = cross_entropy(task.model, batch)
        loss.backward()
        return loss

    return stepping(step)


def put_back_by_hand() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        weight = task.model[0].weight.detach().clone()  # type: ignore[index]
        loss = plain(task, batch)
        task.model[0].weight.data.copy_(weight)  # type: ignore[index]
        return loss

    return stepping(step)


def bf16_stalls() -> Program:
    program = healthy.bf16_parameters()
    program.task.optimizer.param_groups[0]["lr"] = 1e-7
    return program


def decayed_against_intent() -> Program:
    program = stepping(plain, no_decay=["bias"])
    program.task.optimizer.param_groups[0]["weight_decay"] = 0.1
    return program


def untied() -> Program:
    program = healthy.gpt()
    program.config["tied"] = True
    return program


def generator_detached() -> Program:
    """The generator's own loss is computed on what was detached for the critic."""
    program = healthy.gan()

    def step(task: Task, batch: Any) -> Tensor:
        generator, discriminator = task.optimizer
        fake = task.model["g"](torch.randn(len(batch[0]), 4)).detach()  # type: ignore[index]
        discriminator.zero_grad()
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        discriminator.step()
        generator.zero_grad()
        (-task.model["d"](fake).mean()).backward()  # type: ignore[index]
        generator.step()
        return loss

    program.task.train_step = step
    return program


# -- P5: the step -------------------------------------------------------------------------------------


def never_cleared() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        loss = cross_entropy(task.model, batch)
        loss.backward()
        task.optimizer.step()
        return loss

    return stepping(step)


def never_cleared_scaled() -> Program:
    program = healthy.amp()

    def step(task: Task, batch: Any) -> Tensor:
        loss = task.loss_fn(task.model, batch)
        task.scaler.scale(loss).backward()
        task.scaler.step(task.optimizer)
        task.scaler.update()
        return loss

    program.task.train_step, program.config = step, {}
    return program


def cleared_too_early() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        loss = cross_entropy(task.model, batch)
        loss.backward()
        task.optimizer.zero_grad()
        task.optimizer.step()
        return loss

    return stepping(step)


def clipped_late() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = cross_entropy(task.model, batch)
        loss.backward()
        task.optimizer.step()
        nn.utils.clip_grad_norm_(task.model.parameters(), 0.1)
        return loss

    return stepping(step)


def clipped_scaled() -> Program:
    program = healthy.amp()

    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = task.loss_fn(task.model, batch)
        task.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        task.scaler.step(task.optimizer)
        task.scaler.update()
        return loss

    program.task.train_step = step
    return program


def clip_forgotten() -> Program:
    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = cross_entropy(task.model, batch)
        loss.backward()
        task.optimizer.step()
        return loss

    return stepping(step, clip=0.01)


def not_divided() -> Program:
    return healthy.accumulated(divide=1.0)


def divided_twice() -> Program:
    return healthy.accumulated(divide=16.0)


def chunks_not_divided() -> Program:
    program = healthy.chunked()

    def step(task: Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
            cross_entropy(task.model, (x, y)).backward()
        task.optimizer.step()
        return cross_entropy(task.model, batch).detach()

    program.task.train_step = step
    return program


def only_the_last() -> Program:
    return healthy.accumulated(clear_each=True)


class FunctionalDropout(nn.Module):
    def __init__(self, reached: bool = True) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(10, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.dropout(self.body(x), 0.3))


def dropout_always() -> Program:
    return with_model(FunctionalDropout(), tables())


def dropout_in_attention() -> Program:
    program = healthy.gpt(dropout=0.0)

    def forward(self: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
        return self.out(y.transpose(1, 2).flatten(2))

    for block in program.task.model.blocks:  # type: ignore[union-attr]
        block.attention.forward = forward.__get__(block.attention)
    return program


class ListedDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.extra = nn.Linear(10, 32), nn.Linear(32, 5), [nn.Dropout(0.3)]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.extra[0](self.body(x)))


def dropout_in_a_list() -> Program:
    return with_model(ListedDropout(), tables())


class ForgetsChildren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.Dropout(0.3), nn.Linear(32, 5))

    def train(self, mode: bool = True) -> ForgetsChildren:
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def eval_not_passed_on() -> Program:
    return with_model(ForgetsChildren(), tables())


class Averaging(nn.Module):
    """A running mean that matters and is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(10, 5)
        self.register_buffer("mean", torch.zeros(10), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.5)
        return self.net(x - self.mean)


def buffer_not_saved() -> Program:
    return with_model(Averaging(), tables())


class OwnMomentum(torch.optim.Optimizer):
    """Keeps its moments where no state_dict looks."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.moments: dict[int, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for index, parameter in enumerate(group["params"]):
                if parameter.grad is not None:
                    moment = self.moments.setdefault(index, torch.zeros_like(parameter))
                    moment.mul_(0.9).add_(parameter.grad)
                    parameter.sub_(group["lr"] * moment)


def moments_not_saved() -> Program:
    model = nn.Linear(10, 5)
    return with_model(model, tables(), optimizer=OwnMomentum(model.parameters(), 0.1))


class Overflowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x * 3e5) / 3e5)


def fp16_overflow() -> Program:
    return with_model(Overflowing(), tables(), {"dtype": "fp16"})


# -- P6: learning -------------------------------------------------------------------------------------


def uphill() -> Program:
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
    return with_model(model, tables(), optimizer=torch.optim.SGD(model.parameters(), 0.1, maximize=True))


def sigmoids() -> Program:
    layers = [layer for _ in range(12) for layer in (nn.Linear(10, 10), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.Linear(10, 5))
    return with_model(model, tables(), optimizer=torch.optim.SGD(model.parameters(), 0.1))


def dead_relu() -> Program:
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
    nn.init.constant_(model[0].bias, -10.0)
    return with_model(model, tables())


def pixels_into_tanh() -> Program:
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 5))
    return with_model(model, [(x.abs() * 255, y) for x, y in tables()], {"init": "random"})


BROKEN: list[tuple[Callable[[], Program], str, str]] = [
    (leak_declared, "S1.1", "sees-the-answer"),
    (leak_undeclared, "S1.1", "sees-target"),
    (mask_off_by_one, "S1.1", "sees-target"),
    (leak_in_convolution, "S1.1", "sees-the-answer"),
    (leak_time_first, "S1.1", "sees-the-answer"),
    (rows_by_softmax, "P3.7", "rows-mix"),
    (rows_in_a_loader, "P3.7", "rows-mix"),
    (rows_by_batch_first, "P3.7", "rows-mix"),
    (rows_by_view, "P3.7", "rows-mix"),
    (padding_attended, "A8.1", "attended"),
    (padding_on_the_left, "A8.1", "attended"),
    (head_replaced, "A4.1", "stale"),
    (head_left_out, "A4.1", "left-out"),
    (twice, "P4.2", "twice"),
    (two_optimizers_one_gradient, "P4.2", "two-steps"),
    (all_frozen, "A4.4", "nothing-trainable"),
    (all_frozen_with_a_step, "A4.4", "nothing-trainable"),
    (random_head_frozen, "A4.4", "frozen-at-random"),
    (in_a_list, "A4.2", "unregistered"),
    (detached, "A4.3", "cut-off"),
    (through_numpy, "A4.3", "cut-off"),
    (never_steps, "A4.5", "no-step"),
    (put_back_by_hand, "A4.5", "still"),
    (generator_detached, "A4.5", "empty-step"),
    (bf16_stalls, "A4.5", "rounded-away"),
    (decayed_against_intent, "C6.1", "declared-exempt"),
    (untied, "A4.7", "untied"),
    (never_cleared, "A1.1", "not-cleared"),
    (never_cleared_scaled, "A1.1", "not-cleared"),
    (cleared_too_early, "A1.2", "erased"),
    (clipped_late, "A1.3", "after-step"),
    (clipped_scaled, "A1.3", "before-unscale"),
    (clip_forgotten, "A1.3", "not-clipped"),
    (not_divided, "C6.3", "not-divided"),
    (divided_twice, "C6.3", "divided-twice"),
    (chunks_not_divided, "C6.3", "not-divided"),
    (only_the_last, "C6.3", "only-last"),
    (dropout_always, "P5.4", "functional"),
    (dropout_in_attention, "P5.4", "functional"),
    (dropout_in_a_list, "P5.4", "unreached"),
    (eval_not_passed_on, "P5.4", "unreached"),
    (buffer_not_saved, "P5.6", "lost"),
    (moments_not_saved, "P5.6", "lost"),
    (fp16_overflow, "P5.7", "overflow"),
    (uphill, "P6.1", "does-not-fall"),
    (sigmoids, "A4.8", "vanishing"),
    (dead_relu, "S6.1", "silent"),
    (pixels_into_tanh, "S6.3", "saturated"),
]
