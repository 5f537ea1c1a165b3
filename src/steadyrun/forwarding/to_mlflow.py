"""Forward to MLflow at MLFLOW_TRACKING_URI: a new run, or the active run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from steadyrun.forwarding.outgoing_text import Names, plain, sentence
from steadyrun.forwarding.sink import About, Sink
from steadyrun.records import Event
from steadyrun.store.tail import TableRow

_FORBIDDEN = r"[^A-Za-z0-9_./ -]"
_AT_ONCE = 1000  # metrics that MLflow accepts in one call
_MOST_TAGS = 200
_MOST_PARAMS, _LONGEST_PARAM = 100, 250
_STATES = {"finished": "FINISHED", "stopped": "KILLED"}


class Mlflow(Sink):
    """Metrics in batches, findings as tags."""

    name = "forwarding to mlflow"

    def __init__(self, experiment: str) -> None:
        import mlflow
        from mlflow.entities import Metric, Param

        self._client = mlflow.MlflowClient()
        self._metric, self._param = Metric, Param
        self._experiment = experiment
        active = None if experiment else mlflow.active_run()  # known only to the thread that started it
        self._id: str = "" if active is None else active.info.run_id
        self._theirs = active is not None
        self._names = Names(_FORBIDDEN, 250, "steadyrun/" if self._theirs else "")
        self._tags = Names(_FORBIDDEN, 250)
        self._tagged = 0
        self._waiting: list[Any] = []

    def open(self, about: About) -> None:
        if self._theirs:
            return
        if about.kept and self._goes_on(about.kept):
            return
        if not self._id:
            made = self._client.create_run(self._experiment_id(), run_name=plain(about.root.name, 200))
            self._id = made.info.run_id
            about.keep(self._id)
        self._client.log_batch(self._id, params=list(self._params(about.config)))

    def scalars(self, row: TableRow) -> None:
        at = int(row.time * 1000)
        if len(self._waiting) >= _AT_ONCE:  # before adding: if this fails, the row is handed over again
            self.flush()
        self._waiting += [self._metric(self._names(name), value, at, row.step) for name, value in row.values.items()]

    def finding(self, event: Event) -> None:
        which = event.fields.get("code") or (event.kind if event.step is None else f"step-{event.step}")
        self._tagged += 1
        if self._tagged <= _MOST_TAGS:
            self._client.set_tag(self._id, self._tags(f"steadyrun.{event.kind}.{which}"), sentence(event))

    def flush(self) -> None:
        while self._waiting:
            self._client.log_batch(self._id, metrics=self._waiting[:_AT_ONCE])
            del self._waiting[:_AT_ONCE]

    def close(self, state: str) -> None:
        if not self._theirs:
            self._client.set_terminated(self._id, _STATES.get(state, "FAILED"))

    def _goes_on(self, run: str) -> bool:
        """Continue the run of an earlier attempt, if this store still has it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(run, status="RUNNING")
        except MlflowException:
            return False
        self._id = run
        return True

    def _experiment_id(self) -> str:
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "")
        if not name:
            return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
        experiment = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if experiment is None else experiment.experiment_id)

    def _params(self, config: dict[str, Any]) -> Iterator[Any]:
        names = Names(_FORBIDDEN, _LONGEST_PARAM)
        for name, value in list(config.items())[:_MOST_PARAMS]:
            yield self._param(names(str(name)), plain(value, _LONGEST_PARAM))
