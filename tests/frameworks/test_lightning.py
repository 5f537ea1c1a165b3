"""The Lightning callback and logger, against Lightning itself and against loops written by hand."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from tiny_lightning import (
    ByHand,
    Classifier,
    Gan,
    Gpt,
    Pictures,
    class_loaders,
    classes,
    loader,
    picture_loaders,
    ring_loader,
    text_loaders,
    trainer,
)
from torch.nn.functional import cross_entropy

import steadyrun
from steadyrun.integrations.lightning import SteadyrunCallback, SteadyrunLogger

pytestmark = [
    # Lightning's advice about workers, logging intervals, and resuming in the middle of an epoch.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    # Lightning asks torch's trees in a way that torch is about to drop.
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]

KINDS: dict[str, tuple[Any, Any]] = {
    "classifier": (Classifier, class_loaders),
    "pictures": (Pictures, picture_loaders),
    "gpt": (Gpt, text_loaders),
    "gan": (Gan, lambda: (ring_loader(), None)),
    "by-hand": (ByHand, class_loaders),
}


def fit(kind: str, callbacks: list[Any], **options: Any) -> lightning.LightningModule:
    build, loaders = KINDS[kind]
    torch.manual_seed(0)
    module = build()
    trainer(callbacks=callbacks, **options).fit(module, *loaders())
    return module


def values(path: Path, name: str) -> list[float]:
    return steadyrun.open_run(path).series(name).values.tolist()


# -- recording changes nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("classifier", {"gradient_clip_val": 0.5, "accumulate_grad_batches": 3}),
        ("pictures", {}),
        ("gpt", {"gradient_clip_val": 1.0, "precision": "bf16-mixed"}),
        ("gan", {}),
    ],
)
def test_training_is_the_same_with_and_without(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    ends = []
    for callbacks in ([], [SteadyrunCallback(tmp_path / "run", every=1)]):
        module = fit(kind, callbacks, max_steps=24, **options)
        ends.append((module.state_dict(), torch.get_rng_state()))
    assert all(torch.equal(one, two) for one, two in zip(ends[0][0].values(), ends[1][0].values(), strict=True))
    assert torch.equal(ends[0][1], ends[1][1])
    view = steadyrun.open_run(tmp_path / "run")
    assert view.events("probe-failed") == []
    assert view.manifest["state"] == "finished"


# -- what is recorded, against a loop written by hand ----------------------------------------------


def by_hand(accumulated: int, epochs: int, clip: float) -> dict[str, list[float]]:
    """The classifier trained without Lightning; it divides by the whole number even where an epoch ends early."""
    torch.manual_seed(0)
    module = Classifier()
    given = module.configure_optimizers()
    optimizer, scheduler = given["optimizer"], given["lr_scheduler"]["scheduler"]
    batches, held = class_loaders(count=8 * 32, shuffle=False)
    found: dict[str, list[float]] = {"loss": [], "grad_norm": [], "lr/0": [], "examples": [], "val_loss": []}
    for _ in range(epochs):
        losses, examples, last = [], 0, len(batches) - 1
        for number, (x, y) in enumerate(batches):
            loss = cross_entropy(module.net(x), y)
            if not losses:
                optimizer.zero_grad()
            (loss / accumulated).backward()
            losses.append(loss.item())
            examples += len(x)
            if len(losses) < accumulated and number < last:
                continue
            found["grad_norm"].append(torch.nn.utils.clip_grad_norm_(module.parameters(), clip).item())
            found["lr/0"].append(optimizer.param_groups[0]["lr"])
            found["loss"].append(sum(losses) / len(losses))
            found["examples"].append(examples)
            optimizer.step()
            scheduler.step()
            losses, examples = [], 0
        module.eval()
        with torch.no_grad():
            sizes = [(cross_entropy(module.net(x), y).item(), len(x)) for x, y in held]
        module.train()
        found["val_loss"].append(sum(loss * size for loss, size in sizes) / sum(size for _, size in sizes))
    return found


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_same_numbers_as_a_loop_by_hand(tmp_path: Path, accumulated: int) -> None:
    """Eight batches an epoch: with three micro-batches a step the last one of an epoch has two."""
    truth = by_hand(accumulated, epochs=3, clip=0.4)
    torch.manual_seed(0)
    module = Classifier()
    recorder = SteadyrunCallback(tmp_path)
    fitter = trainer(max_epochs=3, accumulate_grad_batches=accumulated, gradient_clip_val=0.4, callbacks=[recorder])
    fitter.fit(module, *class_loaders(count=8 * 32, shuffle=False))
    for name, expected in truth.items():
        assert values(tmp_path, name) == pytest.approx(expected, rel=1e-5), name
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").steps.tolist() == list(range(fitter.global_step))
    assert view.series("val_loss").steps.tolist() == [fitter.global_step * n // 3 - 1 for n in (1, 2, 3)]
    assert values(tmp_path, "clip_threshold") == pytest.approx([0.4] * fitter.global_step)
    assert values(tmp_path, "backwards")[:3] == ([1, 1, 1] if accumulated == 1 else [3, 3, 2])
    config = view.manifest["config"]
    assert (config["clip"], config["accumulation"], config["total_steps"]) == (0.4, accumulated, fitter.global_step)
    assert config["hparams"] == {"lr": 1e-2, "steps": 200}
    assert view.manifest["loaders"][0]["shuffles"] is False


def test_fp16_with_a_scaler(tmp_path: Path) -> None:
    """The loss and the norm are unscaled; a step that the scaler skips is recorded as skipped."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=1000)
    plugin = MixedPrecision("16-mixed", device="cpu", scaler=scaler)
    fit("classifier", [SteadyrunCallback(tmp_path)], max_steps=20, plugins=[plugin], gradient_clip_val=1.0)
    view = steadyrun.open_run(tmp_path)
    assert view.manifest["config"]["dtype"] == view.manifest["inferred"]["dtype"] == "fp16"
    skipped, scale = values(tmp_path, "skipped"), values(tmp_path, "loss_scale")
    assert skipped[0] == 1
    assert skipped[-1] == 0
    assert scale[0] == 2.0**20 > scale[-1] == 2.0 ** (20 - sum(skipped))
    assert values(tmp_path, "backward_loss") == pytest.approx(values(tmp_path, "loss"), rel=1e-3)
    assert 0.1 < values(tmp_path, "grad_norm")[-1] < 10


def test_manual_optimization_counts_batches(tmp_path: Path) -> None:
    """Lightning counts every optimizer's steps; a row of the record is one batch, with the steps of both."""
    fit("gan", [SteadyrunCallback(tmp_path)], max_epochs=1)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").steps.tolist() == list(range(20))
    assert values(tmp_path, "optimizer_steps") == [2.0] * 20
    assert values(tmp_path, "loss") == pytest.approx(values(tmp_path, "backward_loss"), rel=1e-6)
    assert "total_steps" not in view.manifest["config"]


def test_the_loss_that_a_manual_step_returns(tmp_path: Path) -> None:
    fit("by-hand", [SteadyrunCallback(tmp_path / "hand")], max_epochs=2)
    fit("classifier", [SteadyrunCallback(tmp_path / "auto")], max_epochs=2)
    for name in ("loss", "grad_norm", "lr/0"):
        assert values(tmp_path / "hand", name) == pytest.approx(values(tmp_path / "auto", name), rel=1e-6)


# -- validation, checkpoints, the end --------------------------------------------------------------


def test_shared_examples_are_found(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train = class_loaders()[0]
    x, y = classes(640)
    callback = SteadyrunCallback(tmp_path)
    trainer(max_epochs=3, callbacks=[callback]).fit(Classifier(), train, loader(x[:96], y[:96], shuffle=False))
    kept = steadyrun.open_run(tmp_path)
    train_hashes = set(kept.series("example_hash/train").values.tolist())
    assert set(kept.series("example_hash/val").values.tolist()) <= train_hashes
    assert len(kept.events("validation")) == 3  # the check before training is none


def test_checkpoints_and_a_resume(tmp_path: Path) -> None:
    run, saved = tmp_path / "run", tmp_path / "saved"

    def callbacks() -> list[Any]:
        keep = lightning.callbacks.ModelCheckpoint(saved, every_n_train_steps=15, save_top_k=-1)
        return [SteadyrunCallback(run), keep]

    torch.manual_seed(0)
    trainer(callbacks=callbacks(), max_epochs=2, enable_checkpointing=True).fit(Classifier(), *class_loaders())
    events = steadyrun.open_run(run).events("checkpoint")
    assert [(event.step, Path(event.fields["path"]).name) for event in events] == [
        (14, "epoch=0-step=15.ckpt"),
        (29, "epoch=1-step=30.ckpt"),
    ]
    whole = steadyrun.open_run(run).series("loss")

    again = trainer(callbacks=callbacks(), max_epochs=3, enable_checkpointing=True)
    again.fit(Classifier(), *class_loaders(), ckpt_path=saved / "epoch=0-step=15.ckpt")
    view = steadyrun.open_run(run)
    (seam,) = view.events("resume")
    assert (seam.step, seam.fields["after_step"]) == (15, 39)
    assert view.series("loss").steps.tolist() == list(range(60))
    assert view.series("loss").values[:15].tolist() == whole.values[:15].tolist()
    assert view.series("lr/0").values[15] == pytest.approx(1e-2 * (1 + math.cos(math.pi * 15 / 200)) / 2)
    assert not (tmp_path / "run-2").exists()


def test_a_resume_under_manual_optimization(tmp_path: Path) -> None:
    """Lightning has counted 40 optimizer steps in 20 batches: the record goes on at 20."""
    first = trainer(callbacks=[SteadyrunCallback(tmp_path / "run")], max_epochs=1)
    first.fit(Gan(), ring_loader())
    assert first.global_step == 40
    with_callback = SteadyrunCallback(tmp_path / "other")
    saving = trainer(callbacks=[with_callback], max_epochs=1)
    saving.fit(Gan(), ring_loader())
    saving.save_checkpoint(tmp_path / "end.ckpt")
    trainer(callbacks=[with_callback], max_epochs=2).fit(Gan(), ring_loader(), ckpt_path=tmp_path / "end.ckpt")
    view = steadyrun.open_run(tmp_path / "other")
    assert [event.step for event in view.events("resume")] == [20]
    assert view.series("loss").steps.tolist() == list(range(40))


def test_fit_twice_goes_on_and_a_new_training_gets_its_own_folder(tmp_path: Path) -> None:
    callback = SteadyrunCallback(tmp_path / "run")
    fitter = trainer(max_epochs=1, callbacks=[callback])
    module = Classifier()
    fitter.fit(module, *class_loaders())
    fitter.fit_loop.max_epochs = 2
    fitter.fit(module, *class_loaders())
    view = steadyrun.open_run(tmp_path / "run")
    assert [event.step for event in view.events("resume")] == [20]
    assert view.series("loss").steps.tolist() == list(range(40))
    trainer(max_epochs=1, callbacks=[callback]).fit(Classifier(), *class_loaders())
    assert steadyrun.open_run(tmp_path / "run-2").series("loss").steps.tolist() == list(range(20))


def test_test_predict_and_dry_runs_leave_no_trace(tmp_path: Path) -> None:
    class Tested(Classifier):
        def test_step(self, batch: Any, number: int) -> None:
            self.log("test_loss", cross_entropy(self.net(batch[0]), batch[1]))

        def predict_step(self, batch: Any, number: int) -> Any:
            return self.net(batch[0])

    train, held = class_loaders()
    trainer(fast_dev_run=2, callbacks=[SteadyrunCallback(tmp_path / "dry")]).fit(Tested(), train, held)
    assert not (tmp_path / "dry").exists()
    fitter = trainer(
        max_epochs=1, callbacks=[SteadyrunCallback(tmp_path / "run")], logger=SteadyrunLogger(tmp_path / "run")
    )
    module = Tested()
    fitter.fit(module, train, held)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    fitter.validate(module, held, verbose=False)
    fitter.test(module, held, verbose=False)
    fitter.predict(module, held)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


def test_a_crash_is_recorded(tmp_path: Path) -> None:
    class Breaks(Classifier):
        def training_step(self, batch: Any, number: int) -> Any:
            if number == 5:
                raise KeyError("user's own error")
            return super().training_step(batch, number)

    with pytest.raises(KeyError):
        trainer(max_epochs=1, callbacks=[SteadyrunCallback(tmp_path)]).fit(Breaks(), *class_loaders())
    view = steadyrun.open_run(tmp_path)
    assert view.manifest["state"] == "crashed"
    assert view.manifest["failure"]["type"] == "KeyError"
    assert len(view.series("loss")) == 5


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(steadyrun.UsageError, match="no option 'evry'"):
        SteadyrunCallback("run", evry=10)


def test_the_callback_can_be_copied(tmp_path: Path) -> None:
    """Lightning pickles callbacks for processes that it spawns."""
    import pickle

    pickle.loads(pickle.dumps(SteadyrunCallback(tmp_path)))
    copy.deepcopy(SteadyrunCallback(tmp_path))


def test_a_compiled_module(tmp_path: Path) -> None:
    try:
        compiled = torch.compile(Gpt(), backend="eager")
        trainer(max_steps=20, callbacks=[SteadyrunCallback(tmp_path)]).fit(compiled, text_loaders()[0])
    finally:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    view = steadyrun.open_run(tmp_path)
    assert view.manifest["model"]["compiled"] is True
    assert len(view.series("loss")) == len(view.series("grad_norm")) == 20
    assert "forward probe" in [event.fields["probe"] for event in view.events("not-recorded")]


# -- the logger ------------------------------------------------------------------------------------


def test_callback_and_logger_keep_one_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    logger = SteadyrunLogger(tmp_path / "run")
    fitter = trainer(max_epochs=3, callbacks=[SteadyrunCallback()], logger=logger, log_every_n_steps=5)
    fitter.fit(Classifier(), *class_loaders())
    view = steadyrun.open_run(tmp_path / "run")
    assert [event.kind for event in view.events() if event.kind in ("start", "resume")] == ["start"]
    assert len(view.events("validation")) == 3
    logged, losses = view.series("train_loss"), view.series("loss")
    assert logged.steps.tolist() == list(range(4, 60, 5))
    assert logged.values == pytest.approx(losses.values[logged.steps], rel=1e-6)
    assert losses.steps.tolist() == list(range(60))


def test_the_logger_takes_a_config(tmp_path: Path) -> None:
    logger = SteadyrunLogger(tmp_path / "run", config={"num_classes": 4}, every=7)
    logger.log_metrics({"train_loss": 1.0}, 0)
    logger.finalize("success")
    manifest = steadyrun.open_run(tmp_path / "run").manifest
    assert (manifest["config"]["num_classes"], manifest["config"]["framework"]) == (4, "lightning")
    with pytest.raises(steadyrun.UsageError, match="clip must be a number"):
        SteadyrunLogger(tmp_path / "run", config={"clip": "1"})


def test_the_logger_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    monitor = lightning.callbacks.LearningRateMonitor("step")
    fitter = trainer(
        max_epochs=3,
        callbacks=[monitor],
        logger=SteadyrunLogger(tmp_path / "run"),
        log_every_n_steps=5,
        enable_checkpointing=True,
    )
    fitter.fit(Classifier(), *class_loaders())
    view = steadyrun.open_run(tmp_path / "run")
    assert view.manifest["state"] == "finished"
    assert view.series("loss").steps.tolist() == view.series("lr/0").steps.tolist() == list(range(4, 60, 5))
    assert view.series("val_loss").steps.tolist() == [19, 39, 59]
    assert view.manifest["config"]["hparams"] == {"lr": 1e-2, "steps": 200}
    assert [Path(event.fields["path"]).parent for event in view.events("checkpoint")] == [
        tmp_path / "run" / "checkpoints"
    ] * 3
    assert steadyrun.check(tmp_path / "run").verdict != "fault"


# -- what the questions say ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("classifier", {"max_epochs": 10, "gradient_clip_val": 1.0}),
        ("classifier", {"max_epochs": 18, "accumulate_grad_batches": 3}),
        ("classifier", {"max_epochs": 8, "precision": "bf16-mixed", "limit_train_batches": 0.7}),
        ("pictures", {"max_epochs": 10, "val_check_interval": 0.5}),
        ("gpt", {"max_steps": 150, "gradient_clip_val": 1.0}),
        ("gpt", {"max_steps": 120, "gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}),
        ("gan", {"max_epochs": 8}),
        ("by-hand", {"max_epochs": 8}),
    ],
)
def test_no_fault_on_a_healthy_training(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    logger = SteadyrunLogger(tmp_path / "run")
    fit(kind, [SteadyrunCallback(tmp_path / "run", flush_seconds=0.2)], logger=logger, **options)
    report = steadyrun.check(tmp_path / "run")
    assert report.verdict == "healthy", str(report)
    view = steadyrun.open_run(tmp_path / "run")
    assert [event.kind for event in view.events() if event.kind in ("fault", "warning", "probe-failed")] == []


class Overflows(Classifier):
    """A loss that takes the logarithm of what the large steps make zero."""

    def __init__(self) -> None:
        super().__init__(lr=30.0)

    def training_step(self, batch: Any, number: int) -> Any:
        chosen = self.net(batch[0]).softmax(dim=1).gather(1, batch[1][:, None])
        return -chosen.log().mean()


class LeftInEvaluation(Classifier):
    """Looks at its own predictions after an epoch, and stays in evaluation mode."""

    def on_train_epoch_end(self) -> None:
        self.eval()


class NoWarmup(Gpt):
    """The schedule is built and never handed over."""

    def configure_optimizers(self) -> Any:
        return super().configure_optimizers()["optimizer"]


class ValidatesInTraining(Classifier):
    def on_validation_model_eval(self) -> None:
        self.train()


def caught(path: Path, module: Any, loaders: Any, config: Any = None, **options: Any) -> tuple[str, str]:
    torch.manual_seed(0)
    callback = SteadyrunCallback(path, config=config)
    trainer(callbacks=[callback], **options).fit(module, *loaders)
    headline = steadyrun.check(path).headline
    assert headline is not None
    return headline.question.code, headline.answer.outcome


def test_forgotten_zero_grad_is_caught(tmp_path: Path) -> None:
    assert caught(tmp_path / "one", ByHand(forgets=True), class_loaders(), max_epochs=5) == ("A1.1", "not-cleared")
    assert caught(tmp_path / "two", Gan(forgets=True), [ring_loader()], max_epochs=5) == ("A1.1", "not-cleared")


def test_evaluation_mode_is_caught(tmp_path: Path) -> None:
    assert caught(tmp_path, LeftInEvaluation(), class_loaders(), max_epochs=5) == ("A2.1", "left-on")


def test_validation_in_training_mode_is_caught(tmp_path: Path) -> None:
    assert caught(tmp_path, ValidatesInTraining(), class_loaders(), max_epochs=5) == ("A2.2", "in-training")


def test_a_missing_warmup_is_caught(tmp_path: Path) -> None:
    config = {"warmup_steps": 20, "lr_max": 3e-3, "lr_min": 3e-4, "schedule": "cosine", "vocab_size": 24}
    code, _ = caught(tmp_path, NoWarmup(), text_loaders(), config=config, max_steps=120)
    assert code.startswith("C2")


def test_a_loss_that_is_not_a_number_stops_the_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    callback = SteadyrunCallback(tmp_path, on_fault="stop")
    with pytest.raises(steadyrun.FaultFound):
        trainer(max_epochs=20, callbacks=[callback]).fit(Overflows(), *class_loaders())
    view = steadyrun.open_run(tmp_path)
    assert view.manifest["state"] == "stopped"
    headline = steadyrun.check(tmp_path).headline
    assert headline is not None
    assert headline.question.code.startswith("D1")


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "integrations" / "lightning.md"
    monkeypatch.chdir(tmp_path)
    for block in page.read_text().split("```python\n")[1:]:
        exec(block.split("```")[0], {"__name__": "example"})
    view = steadyrun.open_run("experiments/my-run")
    assert view.manifest["state"] == "finished"
    assert len(view.series("loss")) == 200
    assert steadyrun.check("experiments/my-run").verdict == "healthy"


def test_a_program_that_uses_the_other_package(tmp_path: Path) -> None:
    program = f"""
import pytorch_lightning as pl, torch
from steadyrun.integrations.lightning import SteadyrunCallback, SteadyrunLogger
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, number):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
path = {str(tmp_path / "run")!r}
quiet = dict(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
trainer = pl.Trainer(max_epochs=2, callbacks=[SteadyrunCallback(path)], logger=SteadyrunLogger(path), **quiet)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 4), 8))
assert issubclass(SteadyrunCallback, pl.Callback)
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=300)
    assert len(steadyrun.open_run(tmp_path / "run").series("loss")) == 16
