"""Forward to Weights & Biases: a new run, or the active run."""

from __future__ import annotations

from typing import Any

from steadyrun.errors import UsageError
from steadyrun.forwarding.outgoing_text import Names, plain, sentence, trouble
from steadyrun.forwarding.sink import About, Sink
from steadyrun.records import Event
from steadyrun.store.jsonio import jsonable
from steadyrun.store.tail import TableRow

_FORBIDDEN = r"[^\w./ ()%+:=@-]"
_OFFLINE = {"offline", "disabled", "dryrun"}
_MOST = 50  # findings in the summary


class Wandb(Sink):
    """The step counter of an active run is never moved: wandb drops what its owner logs with an older `step=`."""

    name = "forwarding to wandb"

    def __init__(self, project: str) -> None:
        import wandb

        self._wandb = wandb
        self._project = project
        self._run: Any = None if project else wandb.run
        self._theirs = self._run is not None
        prefix = "steadyrun/" if self._theirs else ""
        self._names = Names(_FORBIDDEN, 250, prefix)
        self._findings: list[str] = []
        self._step = "steadyrun/step" if self._theirs else "step"
        if not self._theirs and wandb.setup().settings.mode not in _OFFLINE:
            _log_in(wandb)

    def open(self, about: About) -> None:
        if self._theirs:
            return
        self._run = self._wandb.init(
            project=self._project or None,
            name=plain(about.root.name, 120),
            id=about.kept,
            resume="allow" if about.kept else None,
            config=jsonable(about.config),
            reinit="create_new",
            settings=self._wandb.Settings(console="off", quiet=True, save_code=False),
        )
        self._run.define_metric(self._step)
        self._run.define_metric("*", step_metric=self._step)
        if about.kept is None:
            about.keep(self._run.id)

    def scalars(self, row: TableRow) -> None:
        values = {self._named(name): value for name, value in row.values.items()}
        self._log({self._step: row.step, **values})

    def finding(self, event: Event) -> None:
        said = sentence(event)
        self._log({f"steadyrun/{event.kind}": said} | ({} if event.step is None else {self._step: event.step}))
        self._findings = [*self._findings, said][-_MOST:]
        self._run.summary["steadyrun/findings"] = list(self._findings)

    def close(self, state: str) -> None:
        if not self._theirs:
            self._run.finish(exit_code=0 if state == "finished" else 1)

    def _named(self, name: str) -> str:
        """A name that does not begin with an underscore, which wandb reserves."""
        return self._names(f"logged/{name}" if name.startswith("_") else name)

    def _log(self, values: dict[str, Any]) -> None:
        self._run.log(values, **({"commit": False} if self._theirs else {}))


def _log_in(wandb: Any) -> None:
    """Log in now, while the user can answer a prompt; in the thread nobody would see it."""
    try:
        wandb.login()
    except Exception as problem:
        raise UsageError(
            f"forward: wandb cannot log in ({trouble(problem)}): run `wandb login`, or set WANDB_MODE=offline"
        ) from None
