"""`steadyrun replay --export`: the smallest script and data that reproduce the incident without steadyrun."""

from __future__ import annotations

import inspect
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadyrun.errors import SteadyrunError, UsageError
from steadyrun.program import snapshot as training
from steadyrun.program.packing import Packed, pack
from steadyrun.program.random_state import RandomState, to_tensors
from steadyrun.program.task import Factory, Task, takes_config
from steadyrun.replay.bad_examples import smallest
from steadyrun.replay.export_script import Script, copy_to, modules_of
from steadyrun.replay.result import Replay
from steadyrun.store.jsonio import dumps
from steadyrun.text import counted, shown

_MOST_SECONDS = 600
_CHECK = """
import runpy, sys
folder = sys.argv.pop()
try:
    runpy.run_path("repro.py", run_name="__main__")
finally:
    held = getattr(sys.modules.get("steadyrun"), "__file__", None)
    if held is not None and not held.startswith(folder):
        print("the script imports steadyrun itself, from", held)
        sys.exit(3)
"""


class _Outcome:
    """The result of a step: its loss, and whether it made parameters non-finite."""

    def __init__(self, loss: float, destroys: bool) -> None:
        self.loss, self.destroys = loss, destroys

    def is_like(self, part: _Outcome) -> bool:
        """Whether a part of the batch fails in the same way: in the loss, or only in the update."""
        return part.fails and math.isfinite(part.loss) == math.isfinite(self.loss)

    @property
    def fails(self) -> bool:
        return self.destroys or not math.isfinite(self.loss)


def export(result: Replay, target: Path) -> list[str]:
    """Write `target` once a fresh process has reproduced the incident with it; return the messages to print."""
    if result.factory is None:
        raise UsageError(
            "an exported script needs the factory that builds the program: use steadyrun.replay(run, factory)"
        )
    if not result.proof.holds:
        raise UsageError(
            "the replay does not reproduce the recording, so a script made from it would not either: fix what differs "
            "first"
        )
    if result.raised or result.incident.raised:
        raise UsageError(
            "the incident is an exception; scripts are exported only for non-finite or jumping losses and parameters"
        )
    require_free(target)
    _require_importable(result.factory)
    exporting = _Exporting(result, result.factory)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".repro-", dir=target.parent) as temporary:
        folder = Path(temporary) / "repro"
        folder.mkdir()
        messages = exporting.write(folder)
        said = _check(folder)
        if target.exists():
            target.rmdir()
        shutil.move(folder, target)
    return [*messages, f"verified in a fresh process: {said}", f"run it: python {target / 'repro.py'}"]


def require_free(target: Path) -> None:
    """Refuse to overwrite anything."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists; choose a new folder")


def _require_importable(factory: Factory) -> None:
    """Require a factory that a script can import: a named function in a module that is not `__main__`."""
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    if module == "__main__" or not all(part.isidentifier() for part in [*module.split("."), name]):
        raise UsageError(
            f"an exported script imports the factory, and {module}:{name or type(factory).__name__} cannot be "
            "imported: "
            "use a named function in an importable module, as in --factory train:task"
        )


def _check(folder: Path) -> str:
    """Run the script in a fresh process; raise an error with its output if it does not reproduce the incident."""
    command = [sys.executable, "-I", "-c", _CHECK, str(folder.resolve())]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS)
    except subprocess.TimeoutExpired as problem:
        raise SteadyrunError(
            f"the exported script took more than {_MOST_SECONDS} seconds, so it was not kept. If importing the program "
            'starts training, put that under if __name__ == "__main__"'
        ) from problem
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise SteadyrunError(
            "the exported script does not reproduce the incident in a fresh process, so it was not kept: "
            + " | ".join(words)
        )
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache, ignore_errors=True)
    return done.stdout.strip().splitlines()[-1]


class _Exporting:
    """Finds the state before the step, and reduces it."""

    def __init__(self, result: Replay, factory: Factory) -> None:
        session = result.session
        self._session, self._result, self._factory = session, result, factory
        self._step = result.first_bad if result.first_bad is not None else result.incident.step
        self._state = self._reach()
        self._batch = result.incident.batch(self._step, session.device)

    def write(self, folder: Path) -> list[str]:
        whole = self._execute(self._batch, moments=True)
        # The loss comes before the update: only a destructive update needs the moments.
        moments = whole.destroys and math.isfinite(whole.loss)
        batch, messages = self._batch, []
        if whole.fails:
            batch, rows = smallest(self._batch, lambda part: whole.is_like(self._execute(part, moments=moments)))
            messages = (
                [f"{rows[0]} of {counted(rows[1], 'example')} {'reproduces' if rows[0] == 1 else 'reproduce'} it"]
                if rows[0] < rows[1]
                else []
            )
        outcome = self._execute(batch, moments=moments)
        packed = pack(batch)
        self._write_files(folder, packed, outcome, moments)
        return [*messages, f"{_size(folder)} in {folder.name}: repro.py, tensors.safetensors, facts.json, code/"]

    def _reach(self) -> Packed:
        """The state before the step, reached by running the steps before it."""
        session = self._session
        session.rewind()
        for step in range(session.incident.first_step, self._step):
            session.execute(step)
        return training.remember(session.objects)

    def _execute(self, batch: Any, *, moments: bool) -> _Outcome:
        session = self._session
        training.restore(session.objects, self._state.tree, self._state.tensors)
        if not moments:
            for optimizer in session.task.optimizers:
                optimizer.state.clear()
        loss = float(session.execute(self._step, batch))
        return _Outcome(loss, not training.is_finite(training.remember(session.objects), parameters_only=True))

    def _write_files(self, folder: Path, batch: Packed, outcome: _Outcome, moments: bool) -> None:
        from safetensors.torch import save_file

        session, saved = self._session, self._state
        training.restore(session.objects, saved.tree, saved.tensors)
        tensors = _model_tensors(session.objects)
        tensors |= {f"batch.{name}": tensor for name, tensor in batch.tensors.items()}
        tensors |= _random_tensors(*session.random(self._step))
        if moments:
            tensors |= _moments(session.task)
        save_file(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
            folder / "tensors.safetensors",
        )
        (folder / "facts.json").write_text(dumps(self._facts(outcome), indent=1), "utf-8")
        (folder / "repro.py").write_text(self._script(batch.tree, outcome, moments).text(), "utf-8")
        module = inspect.getmodule(self._factory)
        copy_to(folder / "code", modules_of(module.__name__ if module is not None else "", []))

    def _facts(self, outcome: _Outcome) -> dict[str, Any]:
        objects = self._session.objects
        settings = training.settings(objects)
        manifest = self._result.incident.view.manifest
        return {
            "loss": str(outcome.loss),
            "destroys": outcome.destroys,
            "tolerance": 0.0 if self._session.device.type == "cpu" else self._result.proof.tolerance,
            "threads": torch.get_num_threads(),
            "versions": manifest.get("versions"),
            "config": manifest.get("config"),
            **settings,
        }

    def _script(self, tree: Any, outcome: _Outcome, moments: bool) -> Script:
        incident, session = self._result.incident, self._session
        happens = f"the loss is {shown(outcome.loss)}" + (
            " and the update makes parameters non-finite" if outcome.destroys else ""
        )
        culprit = self._result.culprit
        title = f"Step {self._step} of {incident.run.name} on its own: {happens}."
        return Script(
            title=title if culprit is None else f"{title}\n\n{culprit.message}",
            module=self._factory.__module__,
            function=self._factory.__name__,
            takes_config=takes_config(self._factory),
            number=self._step,
            batch=tree,
            device=session.device.type,
            step=session.stepper.spelled_out(self._step, self._batch),
            moments=moments,
            scaled=session.task.scaler is not None,
            cuda=session.device.type == "cuda",
            arguments=self._result.arguments,
        )


def _model_tensors(objects: training.Objects) -> dict[str, Tensor]:
    named = [*objects.model.named_parameters(), *objects.model.named_buffers()]
    return {f"model.{name}": tensor for name, tensor in named}


def _random_tensors(before: RandomState, forward: RandomState) -> dict[str, Tensor]:
    tensors = {**to_tensors([before]), **to_tensors([forward], "forward")}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("_at") and ".cuda." not in name}
    for state, name in ((before, "rng"), (forward, "forward")):
        tensors |= {f"{name}.cuda": tensor for tensor in list(state.cuda.values())[-1:]}
    return tensors


def _moments(task: Task) -> dict[str, Tensor]:
    moments, index = {}, 0
    for optimizer in task.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for name, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        moments[f"moment.{index}.{name}"] = value
                index += 1
    return moments


def _size(folder: Path) -> str:
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{total / 2**20:.1f} MiB"
