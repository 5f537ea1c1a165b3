"""What is found in a process: parts of a model, whose turn it is, the loss of a step; and that nothing stays behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.scripts import discovery
from steadyrun.scripts.end_report import why_nothing
from steadyrun.scripts.given_batch import given_batch
from steadyrun.scripts.live_page import LivePage
from steadyrun.scripts.main_module import Ending, Target
from steadyrun.scripts.optimizer_turns import OptimizerTurns
from steadyrun.scripts.recorder import Settings
from steadyrun.scripts.run_script import RunOptions, run_script
from steadyrun.scripts.script_session import Attached
from steadyrun.scripts.step_losses import StepLosses


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([parameter for module in modules for parameter in module.parameters()], lr=0.1)


def ends(letters: str, together: str) -> list[int]:
    turns = OptimizerTurns()
    return [n for n, letter in enumerate(letters) if turns.completes(ord(letter), set(map(ord, together)))]


@pytest.mark.parametrize(
    ("letters", "together", "expected"),
    [
        ("aaa", "a", [0, 1, 2]),
        ("dgdgdg", "dg", [1, 3, 5]),  # a GAN
        ("dddgdddg", "dg", [3, 7]),  # three critic steps per generator step
        ("a" * 12, "ab", [9, 10, 11]),  # an optimizer that is not used yet
        ("abab" + "b" * 3 + "a" * 11, "ab", [1, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17]),  # a second stage
    ],
)
def test_which_optimizer_step_ends_a_recorded_step(letters: str, together: str, expected: list[int]) -> None:
    assert ends(letters, together) == expected


@pytest.mark.parametrize("again", [lambda loss: loss, lambda loss: loss / 1, lambda loss: loss * 1.0 / 1])
def test_the_loss_of_micro_batches_is_undivided(again: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Also if a library divides it once more, by its own number of micro-batches, which is 1."""
    losses, weight = StepLosses(), torch.ones((), requires_grad=True)
    for micro in (1.0, 3.0):
        losses.add(again(weight * micro / 2), object())
    assert losses.take(ends=True) == 2.0
    losses.add(weight * 5.0 / 2, object())  # the last step of an epoch has one micro-batch
    assert losses.take(ends=True) == 5.0
    losses.add(weight * 5.0 / 7, object())  # another division is part of the loss
    assert losses.take(ends=True) == pytest.approx(5 / 7)
    assert losses.take(ends=True) is None


def test_undivided_micro_batches_and_several_terms() -> None:
    losses, weight, batch = StepLosses(), torch.ones((), requires_grad=True), object()
    for micro in (1.0, 3.0):
        losses.add(weight * micro, object())
    assert losses.take(ends=True) == 2.0, "two batches: their mean"
    for term in (1.0, 3.0):
        losses.add(weight * term, batch)
    assert losses.take(ends=True) == 4.0, "one batch: the terms add up"


def test_the_module_that_was_called_is_the_model() -> None:
    body = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    wrapper = nn.Sequential(body, nn.Linear(2, 2))
    found = discovery.find([sgd(body)], wrapper, None, None)
    assert found is not None
    assert found.model is wrapper


def test_a_wrapper_that_a_library_makes_for_one_call_is_not_the_model() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    found = discovery.find([sgd(net)], [nn.Sequential(net)][0], sys._getframe(), None)
    assert found is not None
    assert found.model is net
    held = nn.Sequential(net)
    found = discovery.find([sgd(net)], held, sys._getframe(), None)
    assert found is not None
    assert found.model is held


def test_what_a_model_is_given_are_inputs_unless_it_names_a_target() -> None:
    class Recurrent(nn.Module):
        def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
            return x + hidden

    class Scored(nn.Module):
        def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
            return idx

    x, y, time = torch.ones(4, 2), torch.ones(4), torch.tensor(0.5)
    assert [id(tensor) for tensor in given_batch(Recurrent(), (x, y))] == [id(x)]
    assert given_batch(Recurrent(), (time, x))[0] is x
    given = given_batch(Scored(), (x, y))
    assert given[0] is x
    assert given[1] is y
    assert given_batch(Scored(), (None, time)) == []
    assert given_batch(Recurrent(), (x.requires_grad_() * 2, y)) == []


def test_parts_have_the_names_of_variables() -> None:
    encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = sgd(encoder, decoder)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    found = discovery.find([optimizer], encoder, sys._getframe(), None)
    assert found is not None
    assert dict(found.model.named_children()) == {"encoder": encoder, "decoder": decoder}
    assert found.scheduler is scheduler
    assert found.model.training
    encoder.eval()
    decoder.eval()
    assert not found.model.training


def test_the_model_can_be_named() -> None:
    class Program:
        def __init__(self) -> None:
            self.net = nn.Linear(2, 2)

    program = Program()
    head = nn.Linear(2, 2)
    wanted = discovery.find([sgd(program.net, head)], head, sys._getframe(), "program.net")
    assert wanted is not None
    assert wanted.model is program.net
    missing = discovery.find([sgd(head)], head, sys._getframe(), "nowhere")
    assert missing is not None
    assert missing.model is head
    assert "--model nowhere" in missing.doubts[0]


def test_parameters_outside_of_modules_are_named() -> None:
    layer, loose = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    found = discovery.find([torch.optim.SGD([*layer.parameters(), loose], lr=0.1)], layer, None, None)
    assert found is not None
    assert found.doubts[0] == "1 parameter of the optimizer in no module: not watched"
    alone = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    assert discovery.find([alone], None, None, None) is None


def test_a_loss_scaler_of_an_earlier_training_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(2, 2)
    earlier, own, another = (torch.amp.GradScaler("cpu") for _ in range(3))
    earlier.scale(torch.ones(()))
    alive = [layer, earlier, own]
    monkeypatch.setattr(discovery.gc, "get_objects", lambda: alive)
    found = discovery.find([sgd(layer)], layer, None, None)
    assert found is not None
    assert found.scaler is own
    alive.append(another)
    found = discovery.find([sgd(layer)], layer, None, None)
    assert found is not None
    assert found.scaler is None
    assert found.doubts == ["2 loss scalers found: the loss is recorded as scaled"]


def train(steps: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for step in range(steps):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        total = model(inputs).square().mean()
        ce = total / 2
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(ce.detach()))
    return losses


def test_nothing_stays_active(tmp_path: Path) -> None:
    """Torch is as it was, and nothing of the script's is kept; the loss can be named."""
    import gc
    import weakref

    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers

    def state() -> list[object]:
        functions = [torch.save, torch.compile, torch.autograd.backward, torch.optim.Optimizer.__init__]
        hooks = [modules._global_forward_pre_hooks, modules._global_forward_hooks]
        hooks += [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        return [*functions, *map(dict, hooks), list(sys.meta_path)]

    before = state()
    attached = Attached(Settings(tmp_path / "run", loss="ce"))
    attached.attach()
    assert state() != before
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    losses = train(22, model, optimizer)
    attached.detach()
    attached.recorder.end()
    assert state() == before
    assert steadyrun.open_run(tmp_path / "run").series("loss").values.tolist() == pytest.approx(losses)
    references = [weakref.ref(model), weakref.ref(optimizer)]
    del model, optimizer
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert attached.recorder.folders == [tmp_path / "run"]


def test_an_error_of_ours_ends_recording_and_not_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attached = Attached(Settings(tmp_path / "run"))
    attached.attach()

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(attached.recorder, "record_step", fail)
    model = nn.Linear(4, 1)
    losses = train(3, model, sgd(model))
    attached.detach()
    attached.recorder.end()
    assert len(losses) == 3
    assert capsys.readouterr().err.count("no longer recorded: RuntimeError: ours") == 1
    assert not (tmp_path / "run").exists()


def test_ctrl_c_during_the_report_changes_no_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(3)")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steadyrun.scripts.end_report.print_report", interrupted)
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    assert run_script(Target(str(script)), [], RunOptions(tmp_path / "run")).code == 3
    assert "the report was interrupted" in capsys.readouterr().err


def test_the_live_page_is_served_until_the_script_ends(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of its own, whose address is on stderr; Ctrl-C and its end leave no process behind."""
    monkeypatch.setenv("BROWSER", "true")  # a command that does nothing
    page = LivePage()
    page.start(tmp_path / "run")
    server = page._server
    assert server is not None
    said = ""
    while "http://127.0.0.1" not in said:
        assert server.poll() is None, said
        said += capfd.readouterr().err
        time.sleep(0.05)
    assert "Ctrl-C" not in said, "it is for the script"
    page.stop()
    page.stop()
    assert server.returncode is not None


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def stages() -> list[list[float]]:
    """An autoencoder, then a classifier on its code; both optimizers exist from the start."""
    encoder, decoder, classifier = nn.Linear(4, 2), nn.Linear(2, 4), nn.Linear(2, 1)
    first, second = sgd(encoder, decoder), sgd(classifier)
    losses: list[list[float]] = [[], []]
    for step in range(25):
        loss = (decoder(encoder(batch(step))) - batch(step)).square().mean()
        first.zero_grad()
        loss.backward()
        first.step()
        losses[0].append(loss.item())
    for step in range(25):
        loss = classifier(encoder(batch(step)).detach()).square().mean()
        second.zero_grad()
        loss.backward()
        second.step()
        losses[1].append(loss.item())
    losses[1] = losses[1][3:]  # until it is certain that the first stage is over
    return losses


def late_part() -> list[list[float]]:
    """A discriminator that joins after 15 steps; and critic steps before each step of the generator."""
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    first, second = sgd(generator), sgd(critic)
    losses: list[list[float]] = [[]]
    for step in range(30):
        fake = generator(batch(step))
        loss = (fake - batch(step)).square().mean()
        first.zero_grad()
        loss.backward()
        first.step()
        losses[0].append(loss.item())
        if step >= 15:
            second.zero_grad()
            critic(fake.detach()).mean().backward()
            second.step()
    return losses


def made_late() -> list[list[float]]:
    """The optimizer is made when it is needed first: after the backward pass of the first step."""
    model, optimizer = nn.Linear(4, 1), None
    losses: list[list[float]] = [[]]
    for step in range(12):
        model.zero_grad()
        loss = model(batch(step)).square().mean()
        loss.backward()
        optimizer = optimizer or sgd(model)
        optimizer.step()
        losses[0].append(loss.item())
    return losses


def parts_made_late() -> list[list[float]]:
    """So is each of a discriminator and a generator: the second one after the first step of the other."""
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
    losses: list[list[float]] = [[]]
    for step in range(12):
        for part in (critic, generator):
            generator.zero_grad()
            critic.zero_grad()
            fake = generator(batch(step))
            loss = critic(fake.detach() if part is critic else fake).square().mean()
            loss.backward()
            optimizers.setdefault(part, sgd(part)).step()
            if step or part is critic:  # it alone is known after the first step
                of_step = loss.item()
        losses[0].append(of_step)
    return losses


def critic_steps() -> list[list[float]]:
    """Three critic steps per step of the generator, which runs without gradients before its turn."""
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizer_g, optimizer_c = sgd(generator), sgd(critic)
    losses: list[list[float]] = [[]]
    for step in range(25):
        for _ in range(3):
            with torch.no_grad():
                fake = generator(batch(step))
            optimizer_c.zero_grad()
            critic(fake).square().mean().backward()
            optimizer_c.step()
        loss = critic(generator(batch(step))).square().mean()
        optimizer_g.zero_grad()
        loss.backward()
        optimizer_g.step()
        losses[0].append(loss.item())
    return losses


def rebuilt() -> list[list[float]]:
    """A new optimizer for every epoch, a forward pass before the first of them, and a step that looks twice (SAM)."""
    model = nn.Linear(4, 1)
    model(batch(0))
    losses: list[list[float]] = [[]]
    for _epoch in range(6):
        optimizer = sgd(model)
        for step in range(4):
            inputs = batch(step)
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[0].append(loss.item())
    return losses


def replaced() -> list[list[float]]:
    """An optimizer that was replaced is still alive, on the same parameters."""
    model = nn.Linear(4, 1)
    unused = sgd(model)
    losses = one_stage(8, sgd(model), model)
    del unused
    return [losses]


def earlier_stage() -> list[list[float]]:
    """The optimizer of the first stage is alive in the second, whose forward pass also uses the first model."""
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 1)
    first = sgd(encoder)
    losses = [one_stage(12, first, encoder)]
    return [*losses, one_stage(8, sgd(head), encoder, head)]


def unused(steps: int) -> list[list[float]]:
    """The optimizer of the body never steps: what waited for it is recorded late, or at the end."""
    body, head = nn.Linear(4, 4), nn.Linear(4, 1)
    of_body = sgd(body)
    losses = one_stage(steps, sgd(head), body, head)
    del of_body
    return [losses]


def next_stage_on_the_same_parameters() -> list[list[float]]:
    """Both optimizers exist from the start; the second one steps after the first."""
    model = nn.Linear(4, 1)
    first, second = sgd(model), sgd(model)
    return [one_stage(12, first, model) + one_stage(8, second, model)]


def short_last_stage() -> list[list[float]]:
    model = nn.Linear(4, 1)
    first, second = sgd(model), sgd(model)
    return [one_stage(12, first, model) + one_stage(2, second, model)]


def one_stage(steps: int, optimizer: torch.optim.Optimizer, *modules: nn.Module) -> list[float]:
    losses = []
    for step in range(steps):
        values = batch(step)
        for module in modules:
            values = module(values)
        loss = values.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def unused_in_a_short_run() -> list[list[float]]:
    return unused(8)


def unused_in_a_long_run() -> list[list[float]]:
    return unused(25)


@pytest.mark.parametrize(
    "program",
    [
        stages,
        late_part,
        made_late,
        parts_made_late,
        critic_steps,
        rebuilt,
        replaced,
        earlier_stage,
        unused_in_a_short_run,
        unused_in_a_long_run,
        next_stage_on_the_same_parameters,
        short_last_stage,
    ],
)
def test_which_losses_are_recorded(program: Callable[[], list[list[float]]], tmp_path: Path) -> None:
    attached = Attached(Settings(tmp_path / "run", numbered=True))
    attached.attach()
    try:
        expected = program()
    finally:
        attached.detach()
        attached.recorder.end()
    recorded = [steadyrun.open_run(folder).series("loss").values.tolist() for folder in attached.recorder.folders]
    assert recorded == [pytest.approx(losses) for losses in expected]


class Wrapper(torch.optim.Optimizer):
    """Leaves its steps to an optimizer inside it, as sharpness-aware and lookahead optimizers do."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1)
        self.param_groups = self.inner.param_groups

    def second_step(self) -> None:
        self.inner.step()

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.inner.step()


@pytest.mark.parametrize("step", [Wrapper.step, Wrapper.second_step])
def test_a_wrapper_and_the_optimizer_in_it_are_one(step: Callable[[Wrapper], None], tmp_path: Path) -> None:
    attached = Attached(Settings(tmp_path / "run"))
    attached.attach()
    model = nn.Linear(4, 1)
    optimizer = Wrapper(list(model.parameters()))
    losses = []
    for number in range(6):
        loss = model(batch(number)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        step(optimizer)
        losses.append(loss.item())
    attached.detach()
    attached.recorder.end()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("loss").values.tolist() == pytest.approx(losses)
    assert set(view.series("lr/0").values) == {0.1}
    assert set(view.series("optimizer_steps").values) == {1.0}
    assert [group["class"] for group in view.manifest["param_groups"]] == ["SGD"]
    assert view.series("update_ratio/weight").values.min() > 0


def test_steps_that_cannot_be_recorded_are_not_denied(tmp_path: Path) -> None:
    attached = Attached(Settings(tmp_path / "run"))
    attached.attach()
    loose = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([loose], lr=0.1)
    for _ in range(2):
        loose.square().sum().backward()
        optimizer.step()
    attached.detach()
    attached.recorder.end()
    said = why_nothing(Target("train.py"), attached.recorder, Ending(0))
    assert "made optimizer steps, but no module holds their parameters" in said


class Shell:
    """The calls that IPython's shell answers."""

    def __init__(self) -> None:
        self.events = self
        self.magics_manager = self
        self.magics: dict[str, dict[str, object]] = {"line": {}}
        self.callbacks: list[object] = []

    def register(self, event: str, callback: object) -> None:
        self.callbacks.append(callback)

    def unregister(self, event: str, callback: object) -> None:
        self.callbacks.remove(callback)

    def register_magic_function(self, function: object, kind: str, name: str) -> None:
        self.magics[kind][name] = function

    def run_cell(self, cell: object) -> None:
        cell()  # type: ignore[operator]
        for callback in self.callbacks:
            callback(None)  # type: ignore[operator]


def test_a_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    model = nn.Linear(4, 1)
    optimizer = sgd(model)  # an earlier cell
    steadyrun.load_ipython_extension(shell)
    magic = shell.magics["line"]["steadyrun"]
    assert magic("") is None  # type: ignore[operator]
    shell.run_cell(lambda: train(12, model, optimizer))
    shell.run_cell(lambda: None)
    shell.run_cell(lambda: train(12, model, optimizer))
    assert magic("").run == "experiments/notebook"  # type: ignore[operator]
    again = nn.Linear(4, 1)
    shell.run_cell(lambda: train(5, again, sgd(again)))
    steadyrun.unload_ipython_extension(shell)
    shell.run_cell(lambda: train(5, again, sgd(again)))
    assert (shell.callbacks, shell.magics["line"]) == ([], {})
    said = [line for line in capsys.readouterr().err.splitlines() if "steps recorded" in line]
    assert [line.split()[1:6] for line in said] == [
        ["12", "steps", "recorded", "in", "experiments/notebook;"],
        ["24", "steps", "recorded", "in", "experiments/notebook;"],
        ["5", "steps", "recorded", "in", "experiments/notebook-2;"],
    ]
    assert steadyrun.open_run("experiments/notebook-2").last_step() == 4
    monkeypatch.setenv("STEADYRUN", "off")
    steadyrun.load_ipython_extension(shell)
    assert shell.callbacks == []
