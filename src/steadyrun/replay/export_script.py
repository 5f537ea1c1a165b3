"""The text of an exported script: it loads the state and the batch, runs one step and compares."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from steadyrun.program.packing import laid_out

_SCRIPT = '''"""{title}

    python repro.py        prints the result, and exits with 0 if it is the expected one

Needs torch and safetensors, and what the program in code/ imports; steadyrun is not needed.
"""

import json
import random
import sys
{imports}from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

here = Path(__file__).resolve().parent
sys.path.insert(0, str(here / "code"))
{arguments}from {module} import {function} as factory  # noqa: E402

facts = json.loads((here / "facts.json").read_text())
t = {{name: held.clone() for name, held in load_file(here / "tensors.safetensors").items()}}  # memory aligned by torch
torch.set_num_threads(facts["threads"])

# The program, and its state before step {step}.
task = factory({argument})
task.step = {step}
model = getattr(task.model, "_orig_mod", task.model)
for name, held in [*model.named_parameters(), *model.named_buffers()]:
    held.data = t["model." + name].to(held.device)
for name, module in model.named_modules():
    module.training = name not in facts["in_eval"]
    vars(module).update(facts["attributes"].get(name, {{}}))
optimizers = task.optimizer if isinstance(task.optimizer, (list, tuple)) else [task.optimizer]
groups = [(optimizer, group) for optimizer in optimizers for group in optimizer.param_groups]
for (_, group), saved in zip(groups, facts["groups"]):
    group.update(saved)
{moments}{scaler}
# The random states after the previous step, and those before the forward pass.
def draw_from(when):
    torch.set_rng_state(t[when + ".torch"][0])
    version, gauss, *words = t[when + ".python"][0].tolist()
    random.setstate((int(version), tuple(map(int, words)), None if gauss != gauss else gauss))
    position, held, gauss, *words = t[when + ".numpy"][0].tolist()
    np.random.set_state(("MT19937", np.array(words, dtype=np.uint32), int(position), int(held), gauss))
{cuda}

def enter(module, _args):
    if torch.is_grad_enabled() and module in modules:
        forward.remove()
        draw_from("forward")


{functions}modules = set(model.modules())
draw_from("rng")
forward = torch.nn.modules.module.register_module_forward_pre_hook(enter)

batch = {batch}

# The step.
{lines}

loss, expected = float(loss.detach() if torch.is_tensor(loss) else loss), float(facts["loss"])
bad = [name for name, parameter in model.named_parameters() if not torch.isfinite(parameter).all()]
print(f"step {step}: loss {{loss}} (expected {{expected}}), non-finite parameters: {{bad[:3] or 'none'}}")
same = str(loss) == str(expected) or abs(loss - expected) <= facts["tolerance"] * abs(expected)
sys.exit(0 if same and bool(bad) == facts["destroys"] else 1)
'''

_MOMENTS = """owned = [(optimizer, parameter) for optimizer, group in groups for parameter in group["params"]]
for key in t:
    if key.startswith("moment."):
        _, index, name = key.split(".", 2)
        optimizer, parameter = owned[int(index)]
        optimizer.state[parameter][name] = t[key].to("cpu" if name == "step" else parameter.device)
"""


@dataclass(frozen=True)
class Step:
    """How to run the step if the task has no train_step."""

    autocast: dict[str, Any] | None
    clip: float | None
    clip_first: bool
    micro: bool
    divided: bool
    scaled: bool


@dataclass(frozen=True)
class Script:
    """The parameters of the text."""

    title: str
    module: str
    function: str
    takes_config: bool
    number: int
    batch: Any  # a tree, as `packing.pack` makes it
    device: str
    step: Step | None
    moments: bool
    scaled: bool
    cuda: bool
    arguments: list[str]

    def text(self) -> str:
        batch = literal(self.batch, self.device)
        needed = (
            ("namedtuple(", "from collections import namedtuple\n"),
            ("SimpleNamespace(", "from types import SimpleNamespace\n"),
        )
        return _SCRIPT.format(
            title=self.title.replace("\\", "/").replace('"', "'"),
            imports="".join(line for word, line in needed if word in batch),
            module=self.module,
            function=self.function,
            argument='facts["config"]' if self.takes_config else "",
            step=self.number,
            moments=_MOMENTS if self.moments else "",
            scaler='task.scaler.load_state_dict(facts["scaler"])\n' if self.scaled else "",
            cuda='    torch.cuda.set_rng_state(t[when + ".cuda"])\n' if self.cuda else "",
            batch=batch,
            functions=f"{inspect.getsource(laid_out)}\n\n" if "laid_out(" in batch else "",
            arguments=f"sys.argv[1:] = {self.arguments!r}\n" if self.arguments else "",
            lines="\n".join(step_lines(self.step)),
        )


def literal(tree: Any, device: str) -> str:
    """A stored structure as a Python expression; its tensors are entries of `t`."""
    if not isinstance(tree, dict):
        return repr(tree)
    kind, content = next(iter(tree.items()))
    if kind in {"tensor", "complex"}:
        whole = f"t[{'batch.' + content!r}]" + (f".to({device!r})" if "device" in tree else "")
        whole = f"laid_out({whole}, *{tree['layout']!r})" if "layout" in tree else whole
        return f"torch.view_as_complex({whole})" if kind == "complex" else whole
    if kind == "array":
        return f"t[{'batch.' + content!r}].numpy()"
    if kind in {"dict", "mapping"}:
        return "{" + ", ".join(f"{literal(key, device)}: {literal(item, device)}" for key, item in content) + "}"
    if kind == "object":
        return "SimpleNamespace(**" + literal({"dict": content}, device) + ")"
    if kind == "named":
        name, fields, items = content
        return f"namedtuple({str(name)!r}, {[str(field) for field in fields]!r})(*{literal({'list': items}, device)})"
    items = "".join(f"{literal(item, device)}, " for item in content) if kind in {"list", "tuple"} else ""
    if kind == "list":
        return f"[{items.removesuffix(', ')}]"
    if kind == "tuple":
        return f"({items.strip()})"
    return f'float("{float(content)}")' if kind == "float" else "None"


def step_lines(step: Step | None) -> list[str]:
    """The lines of the step: the task's own train_step, or the step spelled out."""
    if step is None:
        return ["loss = task.train_step(task, batch)"]
    root = "losses[-1] / len(batch)" if step.micro and step.divided else "losses[-1]"
    clip = [] if step.clip is None else [f"torch.nn.utils.clip_grad_norm_(model.parameters(), {step.clip!r})"]
    unscale = ["task.scaler.unscale_(task.optimizer)"] if step.scaled else []
    context = (
        f"torch.autocast({step.autocast['device']!r}, dtype=torch.{step.autocast['dtype']})" if step.autocast else ""
    )
    loss = "losses.append(task.loss_fn(task.model, part))"
    return [
        "losses = []",
        f"for part in {'batch' if step.micro else '[batch]'}:",
        *([f"    with {context}:", f"        {loss}"] if context else [f"    {loss}"]),
        f"    task.scaler.scale({root}).backward()" if step.scaled else f"    ({root}).backward()",
        *(clip + unscale if step.clip_first else unscale + clip),
        "task.scaler.step(task.optimizer)" if step.scaled else "task.optimizer.step()",
        "loss = sum(losses) / len(losses)" if step.micro else "loss = losses[0]",
    ]


# The source files that a factory needs: its own module and the project modules it uses, not installed packages.


_PACKAGE = "steadyrun"
_OURS = ("steadyrun.tutor", "steadyrun.data", "steadyrun.errors", "steadyrun.records")  # small, and used by the tutor

STAND_IN = '''"""Stand-in for steadyrun, which this folder does not need: only the class that a factory returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


'''


def modules_of(factory_module: str, loaded_since: Iterable[str]) -> dict[str, Path]:
    """The name and file of each project module that the factory's module uses."""
    files: dict[str, Path] = {}
    waiting = [factory_module, *loaded_since]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in files or module is None or not _is_project(module):
            continue
        assert module.__file__ is not None
        files[name] = Path(module.__file__)
        waiting += [name.rpartition(".")[0], *_mentioned(module)]
    return files


def copy_to(folder: Path, modules: dict[str, Path]) -> None:
    """Copy the modules to `folder`, with a stand-in for steadyrun."""
    for name, file in modules.items():
        path = folder.joinpath(*name.split("."))
        target = path / "__init__.py" if file.name == "__init__.py" else path.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    package = folder / _PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(STAND_IN + _task_source(), "utf-8")


def _task_source() -> str:
    from steadyrun.program.task import Task

    return inspect.getsource(Task).replace("nn.Module", "Any")


def _mentioned(module: ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(name := getattr(value, "__module__", None), str):
            yield name


def _is_project(module: ModuleType) -> bool:
    name, file = module.__name__, getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    if name == _PACKAGE or name.startswith(f"{_PACKAGE}."):
        return any(name == ours or name.startswith(f"{ours}.") for ours in _OURS)
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    ours = str(Path(__file__).parents[1])
    return not any(Path(file).is_relative_to(folder) for folder in {*installed, ours})
