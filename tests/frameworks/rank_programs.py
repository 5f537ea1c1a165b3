"""Trainings of three frameworks on two ranks: a healthy one, then one with the same data on both.

`python -m torch.distributed.run --nproc-per-node 2 rank_programs.py accelerate FOLDER`; Lightning starts its own ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

EXAMPLES, STEPS = 512, 48
CONFIG = {"num_classes": 5, "init": "random", "total_steps": STEPS}


def data(seed: int = 0) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(EXAMPLES, 20, generator=draw)
    return TensorDataset(inputs, inputs[:, :5].argmax(dim=1))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))


def accelerate(path: Path, *, same: bool) -> None:
    from accelerate import Accelerator

    from steadyrun.integrations.accelerate import SteadyrunTracker

    tracker = SteadyrunTracker(path)
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("ranks", config=CONFIG)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(data(), 16, shuffle=True, generator=torch.Generator().manual_seed(1))
    prepared = accelerator.prepare(model, optimizer, *([] if same else [loader]))
    model, optimizer = prepared[:2]
    loader = loader if same else prepared[2]
    tracker.watch(model, optimizer)
    step = 0
    while step < STEPS:
        for inputs, labels in loader:
            loss = cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            tracker.step(loss, batch=(inputs, labels))
            step += 1
            if step == STEPS:
                break
    tracker.finish()  # end_training also ends the process group, which the next training needs


def lightning(path: Path, *, same: bool) -> None:
    import lightning.pytorch as pl

    from steadyrun.integrations.lightning import SteadyrunCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, _number: int) -> Tensor:
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    trainer = pl.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_steps=STEPS,
        max_epochs=-1,
        use_distributed_sampler=not same,
        callbacks=[SteadyrunCallback(path, config=CONFIG)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    draw = torch.Generator().manual_seed(1)
    trainer.fit(Module(), DataLoader(data(), 16, shuffle=True, generator=draw))


def transformers(path: Path, *, same: bool) -> None:
    from tiny_hf import Texts, tiny_gpt
    from transformers import Trainer, TrainingArguments

    from steadyrun.integrations.transformers import SteadyrunCallback

    class SameLoader(Trainer):
        """The mistake: a loader that is not split among the ranks."""

        def get_train_dataloader(self) -> DataLoader[Any]:
            draw = torch.Generator().manual_seed(1)
            loader = DataLoader(self.train_dataset, self.args.per_device_train_batch_size, shuffle=True, generator=draw)
            return loader if same else super().get_train_dataloader()

    arguments = TrainingArguments(
        output_dir=str(path.with_name("output")),
        max_steps=STEPS,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=8,
    )
    SameLoader(tiny_gpt(), arguments, train_dataset=Texts(1024), callbacks=[SteadyrunCallback(path)]).train()


def logged_alone(path: Path) -> None:
    """A tracker that only gets what `accelerator.log` is given, which is rank 0's."""
    from accelerate import Accelerator

    from steadyrun.integrations.accelerate import SteadyrunTracker

    accelerator = Accelerator(cpu=True, log_with=SteadyrunTracker(path))
    accelerator.init_trackers("ranks", config=CONFIG)
    model = net()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-2), DataLoader(data(), 16)
    )
    for _ in range(3):
        for inputs, labels in loader:
            loss = cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"train_loss": loss.item()})
    accelerator.end_training()


if __name__ == "__main__":
    framework, folder = sys.argv[1], Path(sys.argv[2])
    train = {"accelerate": accelerate, "lightning": lightning, "transformers": transformers}[framework]
    train(folder / "healthy", same=False)
    train(folder / "same-data", same=True)
    if framework == "accelerate":
        logged_alone(folder / "logged")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
