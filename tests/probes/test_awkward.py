"""Training loops as people really write them: what broke once, and must not again."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_programs import Block, batch_of, loss_of, mlp, true_norm, values
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.optim.optimizer import register_optimizer_step_post_hook

import steadyrun


def spectral_convolution() -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(1, 8, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1))


class SpectralAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = parametrizations.spectral_norm(nn.MultiheadAttention(8, 2, batch_first=True), "in_proj_weight")

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize(
    ("build", "shape"),
    [(spectral_convolution, (4, 1, 8, 8)), (SpectralAttention, (4, 5, 8))],
    ids=["conv", "attention"],
)
def test_parametrized_weights_are_not_even_read(tmp_path: Path, build: Any, shape: tuple[int, ...]) -> None:
    """Reading a spectral-normed weight in training mode runs a power iteration: it changes the model."""

    def train(run: Any) -> list[Tensor]:
        torch.manual_seed(0)
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if run is not None:
            run.watch(model, optimizer)
        for _ in range(4):
            loss = model(torch.randn(shape)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if run is not None:
                run.step(loss)
        return list(model.state_dict().values())

    bare = train(None)
    with steadyrun.record(tmp_path, every=1) as run:
        recorded = train(run)
    assert all(torch.equal(one, other) for one, other in zip(bare, recorded, strict=True))


class Averaged(nn.Module):
    """A model whose own attribute is called module."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Sequential(Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (nn.Sequential(Block(), Block()), ["stem", "0", "1"]),
        (Averaged(), ["stem", "module.0", "module.1"]),
        (nn.DataParallel(nn.Sequential(Block(), Block())), ["stem", "0", "1"]),
        (torch.compile(nn.Sequential(Block(), Block()), backend="eager"), ["stem", "0", "1"]),
        (torch.optim.swa_utils.AveragedModel(nn.Sequential(Block(), Block())), ["stem", "0", "1"]),
    ],
    ids=["sequential", "module", "data parallel", "compiled", "averaged"],
)
def test_wrapped_models(tmp_path: Path, model: nn.Module, names: list[str]) -> None:
    with steadyrun.record(tmp_path) as run:
        run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert [block["name"] for block in steadyrun.open_run(tmp_path).manifest["blocks"]] == names


def test_the_dry_run_of_a_schedule_disturbs_nobody(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    noisy = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: torch.rand(()).item() * random.random())
    calls: list[Any] = []
    handle = register_optimizer_step_post_hook(lambda *_: calls.append(1))
    before = torch.get_rng_state(), random.getstate()
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, scheduler=noisy)
    handle.remove()
    assert calls == []
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_a_schedule_that_is_a_method_of_the_trainer_is_left_alone(tmp_path: Path) -> None:
    class Trainer:
        def rate(self, step: int) -> float:
            return 1.0 / (step + 1)

        def __deepcopy__(self, memo: Any) -> Any:
            pytest.fail("the trainer was copied")

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, Trainer().rate))
    assert steadyrun.open_run(tmp_path).manifest["inferred"]["expected_lr"]["source"] == "unknown"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, in code that only this imports
def test_a_compiled_optimizer_step_is_compiled_once(tmp_path: Path) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for number in range(6):
            loss = loss_of(model, batch_of(number))
            loss.backward()
            step()
            optimizer.zero_grad()
            run.step(loss)
    assert counters["stats"]["unique_graphs"] == 1
    assert len(values(tmp_path, "loss")) == 6
    torch._dynamo.reset()


def test_a_backward_that_raised_once_does_not_spoil_the_rest(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(6):
            loss = loss_of(model, batch_of(step))
            if step == 2:
                broken = loss * 1.0
                broken.register_hook(lambda _: None)
                model[0].weight.register_hook(lambda _: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    broken.backward()
                model[0].weight._backward_hooks.clear()
                optimizer.zero_grad()
                continue
            loss.backward()
            truth.append(true_norm(model))
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert values(tmp_path, "clipped") == [1.0] * 5


def test_parameters_that_thaw_later_are_counted(tmp_path: Path) -> None:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(6):
            model[0].requires_grad_(step >= 3)
            loss = loss_of(model, batch_of(step))
            loss.backward()
            truth.append(true_norm(model))
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert steadyrun.open_run(tmp_path).series("block_grad_norm/0").steps.tolist() == [3, 4, 5]


def test_optimizers_that_take_turns_keep_their_names(tmp_path: Path) -> None:
    model = nn.ModuleDict({"g": nn.Linear(4, 4), "d": nn.Linear(4, 1)})
    g = torch.optim.SGD(model["g"].parameters(), lr=1e-4)
    d = torch.optim.SGD(model["d"].parameters(), lr=4e-3)
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model, [g, d])
        for step in range(6):
            optimizer, part = (g, model["g"]) if step % 3 == 2 else (d, model["d"])
            loss = model["d"](model["g"](torch.randn(8, 4))).mean()
            loss.backward()  # leaves gradients on both; only one of them steps
            truth.append(true_norm(part))
            optimizer.step()
            g.zero_grad()
            d.zero_grad()
            run.step(loss)
    view = steadyrun.open_run(tmp_path)
    assert view.series("lr/0").steps.tolist() == [2, 5]
    assert set(view.series("lr/0").values) == {1e-4}
    assert set(view.series("lr/1").values) == {4e-3}
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)


def test_two_backward_passes_in_a_step(tmp_path: Path) -> None:
    model = nn.ModuleDict({"actor": nn.Linear(4, 2), "critic": nn.Linear(4, 1)})
    actor, critic = (torch.optim.SGD(model[name].parameters(), lr=0.1) for name in ("actor", "critic"))
    with steadyrun.record(tmp_path) as run:
        run.watch(model, [actor, critic])
        for _ in range(5):
            for name, optimizer in (("actor", actor), ("critic", critic)):
                optimizer.zero_grad()
                loss = model[name](torch.randn(8, 4)).pow(2).mean()
                loss.backward()
                optimizer.step()
            run.step(loss)
    assert values(tmp_path, "backwards") == [2.0] * 5
    assert "clipped" not in steadyrun.open_run(tmp_path).names()


def test_the_schedule_of_the_second_optimizer(tmp_path: Path) -> None:
    model = mlp()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(second, 10)
    with steadyrun.record(tmp_path, config={"total_steps": 30}) as run:
        run.watch(model, [first, second], scheduler=scheduler)
    curve = steadyrun.open_run(tmp_path).manifest["inferred"]["expected_lr"]["groups"][0]
    assert curve[0] == [0, 0.5]
    assert curve[-1][1] == pytest.approx(0.005)


def test_probes_keep_their_cadence_when_steps_are_numbered_in_strides(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every={"activations": 20}) as run:
        run.watch(model, optimizer)
        for step in range(60):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            run.step(loss, step=10 * step)
    steps = steadyrun.open_run(tmp_path).series("activation/0").steps.tolist()
    assert steps == [0, 10, 20, 50, 100, 190, 200, 400]


def test_steps_without_a_forward_pass_do_not_end_the_forward_probe(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every={"activations": 5}) as run:
        run.watch(model, optimizer)
        run.step(0.0)  # filling a replay buffer
        run.step(0.0)
        for step in range(20):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            run.step(loss)
    assert steadyrun.open_run(tmp_path).series("activation/0").steps.tolist() == [2, 5, 10, 15, 19, 20]


def test_a_loop_without_an_optimizer(tmp_path: Path) -> None:
    model = mlp()
    truth = []
    with steadyrun.record(tmp_path) as run:
        run.watch(model)
        for step in range(4):
            model.zero_grad()
            loss = loss_of(model, batch_of(step))
            loss.backward()
            truth.append(true_norm(model))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
            run.step(loss)
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert "skipped" not in steadyrun.open_run(tmp_path).names()


def test_resuming_after_skipped_steps(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def train(steps: range) -> None:
        with steadyrun.record(tmp_path) as run:
            run.watch(model, optimizer)
            for step in steps:
                loss = loss_of(model, batch_of(step))
                loss.backward()
                if step not in (3, 7, 11):
                    optimizer.step()
                optimizer.zero_grad()
                run.step(loss)

    train(range(20))
    train(range(20, 25))
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").steps.tolist() == list(range(25))
    assert view.events("resume")[0].step == 20


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    odd = "caf\udce9"  # what os.listdir gives for a file name in another encoding
    failure = ValueError(f"cannot read {odd}.jpg")
    with pytest.raises(ValueError, match="cannot read"), steadyrun.record(tmp_path, config={"data": odd}) as run:
        for _ in range(10):
            run.step(1.0, class_losses={odd: 2.0})
        run.log(time=3.5, step=4)
        raise failure
    view = steadyrun.open_run(tmp_path)
    assert view.state == "crashed"
    assert len(view.series("loss")) == 10
    assert len(view.series("class_loss/caf\\udce9")) == 10
    assert view.series("logged/time").values.tolist() == [3.5]


def test_notes_cannot_fake_lines_on_a_terminal(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
        run.note("fine\n  crash at step 3: \x1b[31mno\x1b[0m")
    assert "\x1b" not in str(steadyrun.open_run(tmp_path))
    assert "\n  crash" not in str(steadyrun.open_run(tmp_path))


def test_leaks_are_seen_across_batch_sizes(tmp_path: Path) -> None:
    images = torch.rand(64, 3, 32, 32)
    with steadyrun.record(tmp_path) as run:
        for start in range(0, 64, 8):
            run.step(1.0, batch=images[start : start + 8])
        run.val(1.0, batches=[images[:32], images[32:]])
    view = steadyrun.open_run(tmp_path)
    train, val = (set(view.series(f"example_hash/{split}").values) for split in ("train", "val"))
    assert len(train & val) == 64


def test_batches_of_any_kind(tmp_path: Path) -> None:
    @dataclass
    class Batch:
        x: Tensor
        names: list[str]

    with steadyrun.record(tmp_path / "a") as run:
        run.step(1.0, batch=Batch(torch.ones(5, 2), ["a"]))
    assert values(tmp_path / "a", "examples") == [5]
    with steadyrun.record(tmp_path / "b") as run:
        run.step(1.0, batch=["only", "words"])
    assert steadyrun.open_run(tmp_path / "b").events("not-recorded")[0].fields["probe"] == "batch hash"


def test_one_bad_metric_does_not_cost_the_validation_loss(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
        run.val(0.5, confusion=torch.ones(3, 3))
    assert values(tmp_path, "val_loss") == [0.5]


def test_a_lost_manifest_does_not_cost_the_data(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
    (tmp_path / "manifest.json").unlink()
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.tolist() == [1.0]
    assert (view.state, view.dropped[0].file) == ("unknown", "manifest.json")


def test_a_damaged_attempt_number_hides_nothing(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
    log = tmp_path / "events" / "rank-00000.jsonl"
    log.write_text(log.read_text().replace('"attempt": 1', '"attempt": 9'))
    assert values(tmp_path, "loss") == [1.0]
