"""What recording costs, whole processes against each other: the table of ratios.

Each measurement is a process of its own that trains one workload bare, or with everything at its default: `record`,
`watch` with `loss_fn`, the monitor, capture, the batch and losses per class handed to `run.step`. Bare and recorded
processes take turns, and the median of each counts. The steps from the 21st on count for the ratio and the longest
step; the wall time of all steps together, not the median, is the ratio, so a hiccup counts. `cpu_ratio` is that of the
processor time of the same steps, all threads together, and `thread_ratio` that of the training thread alone: on a
machine that others use these are the ones to look at. What the monitor's process took is `children_cpu_s`.

    python benchmarks/cost.py gpt124m --steps 1000 --rounds 3              (needs CUDA)
    python benchmarks/cost.py gpt124m --compiled --steps 1000 --rounds 3   (needs CUDA)
    python benchmarks/cost.py gpt1.5b --steps 300 --rounds 2               (needs CUDA)
    python benchmarks/cost.py gpt17m --steps 200 --threads 2
    python benchmarks/cost.py tutor --steps 2000 --threads 2
    python benchmarks/cost.py small --steps 300 --threads 1
    python benchmarks/cost.py gpt124m --steps 500 --ways bare,probes,everything,tensorboard,wandb

    python benchmarks/cost.py small --steps 300 --threads 1 --ways bare,everything,script
    python benchmarks/cost.py gpt124m --stages 100,1000,100 --keep build/cost      (needs CUDA)

`--stages` trains one process: bare, then recorded, then bare again, so many steps each. It saves the start of a
second process where time on a device is short; the last stage is the control. `--keep` writes the time of each step.

Ways: `bare`; `probes` (no monitor, no capture); `everything`; `script` (what `steadyrun run` attaches);
`tensorboard` (a histogram of every parameter every 100 steps) and `wandb` (`wandb.watch(log="all", log_freq=100)`,
offline), where they are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

_FIRST = 20  # steps that do not count
SHAPES = {  # vocabulary, positions, blocks, width, heads, batch
    "gpt17m": (8192, 128, 6, 384, 6, 8),
    "gpt124m": (50304, 1024, 12, 768, 12, 16),
    "gpt1.5b": (50304, 1024, 48, 1600, 25, 8),
}
WORKLOADS = ("tutor", "small", *SHAPES)


class Gpt:
    """A GPT of one of `SHAPES`; on a GPU in bf16 autocast with the fused AdamW, random tokens."""

    def __init__(self, name: str, *, compiled: bool = False, device: str | None = None) -> None:
        import torch

        from steadyrun.tutor.model import MiniGPT, ModelConfig, init_weights

        self.torch = torch
        vocabulary, positions, blocks, width, heads, batch = SHAPES[name]
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(0)
        with torch.device(self.device):
            model = MiniGPT(ModelConfig(vocabulary, positions, blocks, width, heads))
        init_weights(model)
        self.model: Any = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=self.device == "cuda")
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10_000)
        self.data = torch.randint(0, vocabulary, (32, batch, positions + 1), device=self.device)
        self.config = {"clip": 1.0, "total_steps": 10_000, "dtype": "bf16" if self.device == "cuda" else "fp32"}
        self.turn = 0

    def token_losses(self, model: Any, tokens: Any) -> Any:
        torch = self.torch
        on_gpu = self.device == "cuda"
        with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16, enabled=on_gpu):
            logits = model(tokens[:, :-1])
        flat = logits.flatten(0, 1).float()
        return torch.nn.functional.cross_entropy(flat, tokens[:, 1:].flatten(), reduction="none")

    def loss_fn(self, model: Any, tokens: Any) -> Any:
        return self.token_losses(model, tokens).mean()

    def watch(self, run: Any, **options: Any) -> None:
        run.watch(self.model, self.optimizer, scheduler=self.scheduler, loss_fn=self.loss_fn, **options)

    def step(self, run: Any) -> Any:
        tokens = self.data[self.turn % len(self.data)]
        self.turn += 1
        by_token = self.token_losses(self.model, tokens)
        loss = by_token.mean()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        if run is not None:
            halves = by_token.detach().view(2, -1).mean(1)
            run.step(loss, batch=tokens, class_losses={"first": halves[0], "second": halves[1]})
        return loss


class Small:
    """A network of half a million parameters without clipping: about 10 ms a step on one core."""

    def __init__(self) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        self.functional = nn.functional
        self.model = nn.Sequential(nn.Linear(64, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.data = [(torch.randn(128, 64), torch.randint(0, 10, (128,))) for _ in range(20)]
        self.config: dict[str, Any] = {}
        self.turn = 0

    def loss_fn(self, model: Any, batch: Any) -> Any:
        return self.functional.cross_entropy(model(batch[0]), batch[1])

    def watch(self, run: Any, **options: Any) -> None:
        run.watch(self.model, self.optimizer, loss_fn=self.loss_fn, **options)

    def step(self, run: Any) -> Any:
        batch = self.data[self.turn % len(self.data)]
        self.turn += 1
        loss = self.loss_fn(self.model, batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if run is not None:
            run.step(loss, batch=batch)
        return loss


class Tutor:
    """The grammar tutor with its own settings."""

    def __init__(self) -> None:
        import torch

        from steadyrun.tutor.config import declared
        from steadyrun.tutor.faults import load_recipe
        from steadyrun.tutor.train import start

        self.recipe = load_recipe(steps=2000)
        torch.manual_seed(self.recipe.config.seed)
        self.data = self.recipe.load_data(self.recipe.config)
        self.order = self.recipe.batch_order(self.data, self.recipe.config)
        self.state = start(self.recipe)
        self.model = self.state.model
        self.config = declared(self.recipe.config, self.data.baseline_loss())

    def watch(self, run: Any, **options: Any) -> None:
        from steadyrun.tutor.train import watch

        watch(run, self.recipe, self.state, self.data)
        if options.get("monitor") is False:
            run._flusher.stop_monitor()
            run._flusher.capture = None

    def step(self, run: Any) -> Any:
        from steadyrun.tutor.train import class_losses, train_step

        batch = self.data.train_batch(next(self.order))
        done = train_step(self.recipe, self.state, [batch])
        if run is not None:
            run.step(done.loss, batch=batch, class_losses=class_losses(done.by_token, [batch]))
        return done.loss


def build(name: str, *, compiled: bool = False) -> Any:
    return Tutor() if name == "tutor" else Small() if name == "small" else Gpt(name, compiled=compiled)


class Clock:
    """How long each step took, from the end of the step before."""

    def __init__(self) -> None:
        self.marks: list[Any] = []
        self.tick()

    def tick(self) -> None:
        self.marks.append(time.perf_counter())

    def times(self) -> list[float]:
        return [now - before for before, now in pairwise(self.marks)]


class DeviceClock(Clock):
    """The same on the device, by events that nothing waits for: the host may be some steps ahead."""

    def tick(self) -> None:
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def times(self) -> list[float]:
        self.marks[-1].synchronize()
        return [before.elapsed_time(now) / 1e3 for before, now in pairwise(self.marks)]


def one(name: str, way: str, steps: int, threads: int | None, *, compiled: bool) -> dict[str, Any]:
    """Train one copy in this process and time it."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    program = build(name, compiled=compiled)
    cuda = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        began, started = time.perf_counter(), time.process_time()
        run = watched = None
        after: Callable[[int, Any], None] = lambda _step, _loss: None  # noqa: E731
        finish: Callable[[], None] = lambda: None  # noqa: E731
        if way in ("everything", "probes"):
            import steadyrun

            run = steadyrun.record(Path(folder) / "run", config=program.config)
            before = time.perf_counter()
            program.watch(run, **({} if way == "everything" else {"monitor": False, "capture": False}))
            watched = time.perf_counter() - before
        elif way == "script":
            finish = _script(folder)
        elif way == "tensorboard":
            after, finish = _tensorboard(program, folder)
        elif way == "wandb":
            after, finish = _wandb(program, folder)
        starting = time.perf_counter() - began
        clock = DeviceClock() if cuda else Clock()
        worked = trained = 0.0
        for number in range(steps):
            if number == _FIRST:
                worked, trained = time.process_time(), time.thread_time()
                if cuda:
                    torch.cuda.synchronize()
                    torch.cuda.reset_peak_memory_stats()
            loss = program.step(run)
            after(number, loss)
            clock.tick()
        worked, trained = time.process_time() - worked, time.thread_time() - trained
        times = clock.times()
        ended = time.perf_counter()
        if run is not None:
            run.close()
        finish()
        closing = time.perf_counter() - ended
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    counted = times[_FIRST:]
    return {
        "way": way,
        "all_s": starting + sum(times) + closing,  # imports of steadyrun included
        "seconds": sum(counted),
        "cpu_s": worked,
        "thread_s": trained,
        "all_cpu_s": time.process_time() - started,
        "children_cpu_s": children.ru_utime + children.ru_stime,
        "median_ms": 1e3 * statistics.median(counted),
        "longest": sorted(((1e3 * t, n + _FIRST) for n, t in enumerate(counted)), reverse=True)[:5],
        "watch_s": watched or 0.0,
        "close_s": closing,
        "gpu_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else 0.0,
        "process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


Logger = tuple[Callable[[int, Any], None], Callable[[], None]]
"""What to call after each step, and at the end."""


def _script(folder: str) -> Callable[[], None]:
    """What `steadyrun run` attaches to a script; the bare loop is found by its hooks."""
    from steadyrun.scripts.recorder import Settings
    from steadyrun.scripts.script_session import Attached

    attached = Attached(Settings(Path(folder) / "run"))
    attached.attach()
    attached.look_around()

    def finish() -> None:
        attached.detach()
        attached.recorder.end()

    return finish


def _tensorboard(program: Any, folder: str) -> Logger:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def after(step: int, loss: Any) -> None:
        writer.add_scalar("loss", loss, step)
        if step % 100 == 0:
            for name, parameter in program.model.named_parameters():
                writer.add_histogram(name, parameter, step)

    return after, writer.close


def _wandb(program: Any, folder: str) -> Logger:
    import wandb

    run = wandb.init(mode="offline", dir=folder, project="cost", settings=wandb.Settings(silent=True))
    wandb.watch(program.model, log="all", log_freq=100)
    return lambda step, loss: run.log({"loss": loss}, step=step), run.finish


def in_stages(name: str, counts: list[int], *, compiled: bool, keep: Path | None) -> dict[str, Any]:
    """Train bare, recorded and bare again in this process; the second bare stage is the control."""
    import torch

    import steadyrun

    program = build(name, compiled=compiled)
    cuda = torch.cuda.is_available()
    stages: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for stage, count in zip(("before", "recorded", "after"), counts, strict=True):
            run = None
            began = time.perf_counter()
            if stage == "recorded":
                run = steadyrun.record(Path(folder) / "run", config=program.config)
                program.watch(run)
            started = time.perf_counter()
            if cuda:
                torch.cuda.reset_peak_memory_stats()
            clock = DeviceClock() if cuda else Clock()
            for _ in range(count):
                program.step(run)
                clock.tick()
            times = clock.times()
            ended = time.perf_counter()
            if run is not None:
                run.close()
            counted = times[min(_FIRST, count // 2) :]
            stages[stage] = {
                "mean_ms": 1e3 * statistics.fmean(counted),
                "median_ms": 1e3 * statistics.median(counted),
                "longest": sorted(((round(1e3 * t, 1), n) for n, t in enumerate(times)), reverse=True)[:12],
                "watch_s": started - began,
                "close_s": time.perf_counter() - ended,
                "gpu_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else 0.0,
            }
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                file = keep / f"{name}{'-compiled' if compiled else ''}-{stage}.json"
                file.write_text(json.dumps({**stages[stage], "times": [round(1e3 * t, 3) for t in times]}))
        report = steadyrun.check(Path(folder) / "run")
        events = steadyrun.open_run(Path(folder) / "run").events()
    bare = statistics.fmean([stages["before"]["mean_ms"], stages["after"]["mean_ms"]])
    return {
        "workload": name,
        "compiled": compiled,
        "ratio": round(stages["recorded"]["mean_ms"] / bare, 4),
        "control": round(stages["after"]["mean_ms"] / stages["before"]["mean_ms"], 4),
        "longest_over_median": round(_longest(stages["recorded"]) / stages["recorded"]["median_ms"], 2),
        "more_gpu_mib": round(stages["recorded"]["gpu_mib"] - stages["after"]["gpu_mib"], 1),
        "stages": stages,
        "verdict": report.verdict,
        "events": [(event.kind, event.fields.get("why")) for event in events if event.fields.get("why")],
    }


def _longest(stage: dict[str, Any]) -> float:
    return max(taken for taken, number in stage["longest"] if number >= _FIRST)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Processes in turns; the medians of their numbers."""
    results: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways.split(",")}
    # Programs are compiled once for all runs of a user; without this they would be in every process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(options.rounds):
        for way in results:
            command = [sys.executable, __file__, options.workload, "--one", way, "--steps", str(options.steps)]
            command += ["--threads", str(options.threads)] if options.threads else []
            command += ["--compiled"] if options.compiled else []
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                print(json.dumps({"way": way, "failed": done.stderr.strip().splitlines()[-1:]}), flush=True)
                continue
            line = next(line for line in reversed(done.stdout.splitlines()) if line.startswith('{"way"'))
            results[way].append(json.loads(line))
            print(json.dumps(results[way][-1]), file=sys.stderr, flush=True)
    bare = results["bare"]
    return {
        "workload": options.workload,
        "compiled": options.compiled,
        "steps": options.steps,
        "ways": {way: _beside(bare, given) for way, given in results.items() if bare and given},
    }


def _beside(bare: list[dict[str, Any]], given: list[dict[str, Any]]) -> dict[str, Any]:
    def median_of(rows: list[dict[str, Any]], name: str) -> float:
        return statistics.median(row[name] for row in rows)

    longest = [row["longest"][0] for row in given]
    return {
        "ratio": round(median_of(given, "seconds") / median_of(bare, "seconds"), 4),
        "ratios": [round(row["seconds"] / median_of(bare, "seconds"), 4) for row in given],
        "cpu_ratio": round(median_of(given, "cpu_s") / median_of(bare, "cpu_s"), 4),
        "cpu_ratios": [round(row["cpu_s"] / median_of(bare, "cpu_s"), 4) for row in given],
        "thread_ratio": round(median_of(given, "thread_s") / median_of(bare, "thread_s"), 4),
        "thread_ratios": [round(row["thread_s"] / median_of(bare, "thread_s"), 4) for row in given],
        "median_step": round(median_of(given, "median_ms") / median_of(bare, "median_ms"), 4),
        "longest_over_median": round(statistics.median(t for t, _ in longest) / median_of(given, "median_ms"), 2),
        "longest_at": [number for _, number in longest],
        "more_seconds_in_all": round(median_of(given, "all_s") - median_of(bare, "all_s"), 3),
        "more_cpu_seconds_in_all": round(median_of(given, "all_cpu_s") - median_of(bare, "all_cpu_s"), 3),
        "children_cpu_s": round(median_of(given, "children_cpu_s"), 3),
        "more_gpu_mib": round(median_of(given, "gpu_mib") - median_of(bare, "gpu_mib"), 1),
        "more_process_mib": round(median_of(given, "process_mib") - median_of(bare, "process_mib"), 1),
        "watch_s": round(median_of(given, "watch_s"), 3),
        "close_s": round(median_of(given, "close_s"), 3),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each way, in turns")
    parser.add_argument("--ways", default="bare,everything", help="bare,probes,everything,script,tensorboard,wandb")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--stages", help="steps of one process: bare, recorded, bare again, such as 100,1000,100")
    parser.add_argument("--keep", type=Path, help="a folder for the time of each step of --stages")
    parser.add_argument("--one", help="train one way in this process and print its numbers")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(one(chosen.workload, chosen.one, chosen.steps, chosen.threads, compiled=chosen.compiled)))
    elif chosen.stages:
        if chosen.threads:
            import torch

            torch.set_num_threads(chosen.threads)
        counts = [int(count) for count in chosen.stages.split(",")]
        print(json.dumps(in_stages(chosen.workload, counts, compiled=chosen.compiled, keep=chosen.keep)))
    else:
        print(json.dumps(measure(chosen)))
