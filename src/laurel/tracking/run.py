"""An MLflow run that is being filled."""

from __future__ import annotations

import json
import platform
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from laurel.data.digests import files_in
from laurel.data.json_file import write_json

if TYPE_CHECKING:
    import mlflow.entities
    from mlflow import MlflowClient


BATCH = 1000
"""Metrics that MLflow takes in one request."""
PARAMS_BATCH = 100
"""Parameters that MLflow takes in one request."""
LOGGED = "models:/"
"""Beginning of a logged model's address, before its id."""
MLMODEL = "MLmodel"
"""File of a logged model that says how `mlflow.pyfunc` loads it."""
LOADER = "laurel.library.mlflow_model"
"""The module that loads rewards and agents for it."""
PARENT = "mlflow.parentRunId"
"""Tag with the run that a run is below."""
TRAINING = "training"
"""Tag of an agent: a digest of all that its arm was trained with but the seed. Runs of a project with other parameters
differ in it, the branches of one run do not.
"""
UPSTREAM = "upstream."
"""Prefix of the names of tags that hold the run of an input."""


def existing(client: MlflowClient, run_id: str) -> mlflow.entities.Run | None:
    """Return what the server has of a run; None if it was deleted, for good or marked as such."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return found if found.info.lifecycle_stage == "active" else None


@dataclass
class Run:
    """An MLflow run that is being filled."""

    client: MlflowClient
    id: str
    experiment: str
    """Id of its experiment."""

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Log parameters in few requests."""
        from mlflow.entities import Param

        params = [Param(loggable(key), str(value)) for key, value in values.items()]
        for start in range(0, len(params), PARAMS_BATCH):
            self.client.log_batch(self.id, params=params[start : start + PARAMS_BATCH])

    def log_metrics(self, metrics: Mapping[str, float | None]) -> None:
        self.log_curve([(0, metrics)])

    def log_curve(
        self,
        points: Iterable[tuple[int, Mapping[str, float | None]]],
        clock: Callable[[int], float] | None = None,
    ) -> None:
        """Log (step, metrics) points in few requests; values that are None are left out.

        Args:
            clock: says when a step was made, in seconds since 1970; None means now.
        """
        from mlflow.entities import Metric

        moment = time.time()
        metrics = [
            Metric(loggable(key), float(value), milliseconds(clock(step) if clock else moment), step)
            for step, values in points
            for key, value in values.items()
            if value is not None
        ]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(self.id, metrics=metrics[start : start + BATCH])

    def log_directory(self, path: Path, name: str) -> str:
        """Copy a directory's files but hidden ones, such as locks, to the run's artifacts; return where they are."""
        for file in files_in(path):
            self.client.log_artifact(self.id, str(file), (Path(name) / file.relative_to(path).parent).as_posix())
        return f"runs:/{self.id}/{name}"

    def log_model(
        self,
        path: Path,
        name: str,
        tags: Mapping[str, str],
        files: Mapping[str, Any] = MappingProxyType({}),
        *,
        loads: bool = False,
    ) -> str:
        """Copy a model's directory to a logged model of this run; return its location.

        Args:
            name: of the model; characters that MLflow does not allow become dashes.
            tags: describe the model.
            files: JSON files besides: name -> content.
            loads: whether LOADER can load it.
        """
        from mlflow.entities import LoggedModelOutput

        model = self.client.create_logged_model(
            self.experiment, re.sub("[/:.%\"']", "-", name), source_run_id=self.id, tags=dict(tags)
        )
        self.client.log_model_artifacts(model.model_id, str(path))
        if loads:
            flavor = {"loader_module": LOADER, "python_version": platform.python_version()}
            # JSON is YAML, too
            files = {**files, MLMODEL: {"flavors": {"python_function": flavor}, "model_id": model.model_id}}
        with TemporaryDirectory(prefix="laurel-") as scratch:
            for file, content in files.items():
                write_json(Path(scratch) / file, content)
                self.client.log_model_artifact(model.model_id, str(Path(scratch) / file))
        self.client.finalize_logged_model(model.model_id, "READY")
        self.client.log_outputs(self.id, [LoggedModelOutput(model.model_id, 0)])
        return str(model.model_uri)

    def describe(self, text: str) -> None:
        """Set the run's description, in Markdown, as MLflow's pages show it."""
        self.client.set_tag(self.id, "mlflow.note.content", text)

    def log_file(self, path: Path) -> None:
        self.client.log_artifact(self.id, str(path))

    def log_dataset(self, name: str, digest: str, source: Path, counts: Mapping[str, Any], context: str) -> None:
        """Record which data the run read, by digest."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name,
            digest=digest[:32],
            source_type="local",
            source=json.dumps({"uri": str(source)}),
            profile=json.dumps(counts),
        )
        self.client.log_inputs(self.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def register(self, model: str, source: str, tags: Mapping[str, str], alias: str | None = None) -> None:
        """Add a version to a registered model, with an alias if one is given.

        Slashes and colons, which occur in ids of environments but are not allowed in names, become dots; an alias that
        MLflow reserves has "name-" before it.
        """
        from mlflow.exceptions import MlflowException

        name = registered(model)
        # without the id, a server refuses a logged model
        model_id = source.removeprefix(LOGGED) if source.startswith(LOGGED) else None
        add = partial(
            self.client.create_model_version, name, source, run_id=self.id, model_id=model_id, tags=dict(tags)
        )
        try:
            version = add()
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            with suppress(MlflowException):  # another process may have created it meanwhile
                self.client.create_registered_model(name)
            version = add()
        if alias is not None:
            self.client.set_registered_model_alias(name, allowed(alias), version.version)

    def point_to(self, alias: str, model: str, run_id: str, tags: Mapping[str, str]) -> None:
        """Point an alias to a registered model's version that a run made with these tags; without one, remove it."""
        from mlflow.exceptions import MlflowException

        name = registered(model)
        for version in self.client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'"):
            if tags.items() <= version.tags.items():
                self.client.set_registered_model_alias(name, alias, version.version)
                return
        with suppress(MlflowException):  # the model may not exist
            self.client.delete_registered_model_alias(name, alias)

    def end(self, status: str = "FINISHED", *, ended_at: float | None = None) -> None:
        """Mark the run as over: FINISHED, FAILED or KILLED, now or at a time in seconds since 1970."""
        self.client.set_terminated(
            self.id, status=status, end_time=None if ended_at is None else milliseconds(ended_at)
        )

    def find(self, run_id: str) -> Run | None:
        """Return another run of this server; None if it was deleted."""
        found = existing(self.client, run_id)
        return None if found is None else Run(self.client, run_id, found.info.experiment_id)

    def is_running(self) -> bool:
        """Whether it has not ended, as far as the server knows."""
        return str(self.client.get_run(self.id).info.status) == "RUNNING"

    def resume(self) -> str:
        """Reopen the run if it was ended before its work; return its previous status."""
        status = str(self.client.get_run(self.id).info.status)
        if status != "FINISHED":
            self.client.update_run(self.id, status="RUNNING")
        return status

    def last_point(self, metric: str) -> tuple[int, float] | None:
        """Return the last step at which a metric was logged and its time, None where it never was."""
        history = self.client.get_metric_history(self.id, metric)
        return max(((point.step, point.timestamp / 1000) for point in history), default=None)


def registered(model: str) -> str:
    """Return a model's name in a form that the registry accepts."""
    return re.sub("[/:]", ".", model)


def loggable(name: str) -> str:
    """Return the name of a metric or parameter in a form that MLflow takes: other characters become underscores.

    An environment's measures and its arguments may have any name; one that is refused would end the whole logging.

    >>> loggable("further.share (in %)"), loggable("a//b"), loggable("success in laurel/Maze-v0: 5")
    ('further.share _in __', 'a__b', 'success in laurel/Maze-v0: 5')
    """
    found = re.sub(r"[^\w.\- :/]", "_", name)
    return found if posixpath.normpath(found) == found and not found.startswith("/") else found.replace("/", "_")


def allowed(alias: str) -> str:
    """Return an alias in a form that the registry accepts: v1 and latest are its own words for versions."""
    return f"name-{alias}" if re.fullmatch(r"v\d+|latest", alias, re.IGNORECASE) else alias


def status_of(error: BaseException) -> str:
    """Return MLflow's status of a run whose work an error ended."""
    return "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"


def milliseconds(seconds: float) -> int:
    """Convert a time to MLflow's unit."""
    return int(seconds * 1000)
