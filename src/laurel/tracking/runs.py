"""MLflow as a view of the files: one run a stage, one for each agent, flat tags to compare baselines by.

Files remain the truth: whatever is logged here is read from a stage's output, and a server that cannot be
reached costs a note beside the manifest, not the run. Uses the client API alone, so that nothing depends on
MLflow's idea of an active run.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from laurel import __version__
from laurel.data.directory import Output, read_manifest, write_json
from laurel.params.fields import dumped
from laurel.workspace import lasting

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from laurel.params import TrackingParams

URI = "MLFLOW_TRACKING_URI"
OUTPUT_URI = "LAUREL_OUTPUT_URI"
"""Where the output of a pipeline's step goes, while it runs."""
OUTPUT = "output"
"""Tag with that place."""
DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"
BATCH = 1000
"""Metrics that MLflow takes in one request."""
PARAMS_BATCH = 100
"""Parameters that MLflow takes in one request."""
BEST = "best"
"""Alias of the best agent that learned from feedback, in the model registry."""

logger = logging.getLogger(__name__)


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

        params = [Param(key, str(value)) for key, value in values.items()]
        for start in range(0, len(params), PARAMS_BATCH):
            self.client.log_batch(self.id, params=params[start : start + PARAMS_BATCH])

    def log_metrics(self, metrics: Mapping[str, float | None], step: int = 0) -> None:
        self.log_curve([(step, metrics)])

    def log_curve(
        self,
        points: Iterable[tuple[int, Mapping[str, float | None]]],
        clock: Callable[[int], float] | None = None,
    ) -> None:
        """Log (step, metrics) points in few requests; values that are None are left out.

        Args:
            points: what to log.
            clock: says when a step was made, in seconds since 1970; None means now.
        """
        from mlflow.entities import Metric

        now = time.time()
        metrics = [
            Metric(key, float(value), _milliseconds(clock(step) if clock else now), step)
            for step, values in points
            for key, value in values.items()
            if value is not None
        ]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(self.id, metrics=metrics[start : start + BATCH])

    def log_directory(self, path: Path, name: str) -> str:
        """Copy a directory's files to the run's artifacts; return where they are."""
        self.client.log_artifacts(self.id, str(path), name)
        return f"runs:/{self.id}/{name}"

    def log_model(
        self, path: Path, name: str, tags: Mapping[str, str], more: Mapping[str, Any] = MappingProxyType({})
    ) -> str:
        """Copy a model's directory to a logged model, which this run made; return where it is.

        Args:
            name: of the model; what MLflow takes in no name becomes a dash.
            tags: what it is a model of.
            more: JSON files besides: name -> content.
        """
        from mlflow.entities import LoggedModelOutput

        model = self.client.create_logged_model(
            self.experiment, re.sub("[/:.%\"']", "-", name), source_run_id=self.id, tags=dict(tags)
        )
        self.client.log_model_artifacts(model.model_id, str(path))
        with TemporaryDirectory(prefix="laurel-") as scratch:
            for file, content in more.items():
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
        import json

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

        A name may have no slash or colon, as the ids of some environments do: they become dots.
        """
        from mlflow.exceptions import MlflowException

        name = re.sub("[/:]", ".", model)
        add = partial(self.client.create_model_version, name, source, run_id=self.id, tags=dict(tags))
        try:
            version = add()
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            with suppress(MlflowException):  # another process may have made it just now
                self.client.create_registered_model(name)
            version = add()
        if alias is not None:
            self.client.set_registered_model_alias(name, alias, version.version)

    def end(self, status: str = "FINISHED", *, at: float | None = None) -> None:
        """Mark the run as over: FINISHED, FAILED or KILLED, now or at a time in seconds since 1970."""
        self.client.set_terminated(self.id, status=status, end_time=None if at is None else _milliseconds(at))

    def find(self, run_id: str) -> Run | None:
        """Return another run of this server; None if it was deleted."""
        from mlflow.exceptions import MlflowException

        try:
            found = self.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return Run(self.client, run_id, found.info.experiment_id)

    def resume(self) -> str:
        """Open the run again if it was ended before its work was; return the status that it had."""
        status = str(self.client.get_run(self.id).info.status)
        if status != "FINISHED":
            self.client.update_run(self.id, status="RUNNING")
        return status

    def last_point(self, metric: str) -> tuple[int, float] | None:
        """Return the last step at which a metric was logged and its time, None where it never was."""
        history = self.client.get_metric_history(self.id, metric)
        return max(((point.step, point.timestamp / 1000) for point in history), default=None)


class Tracker:
    """Opens runs for a stage; does nothing where tracking is off or its server cannot be reached."""

    def __init__(
        self,
        sections: Mapping[str, Any],
        stage: str,
        inputs: Mapping[str, Path],
        output: Output,
        known: Mapping[str, str] | None = None,
    ) -> None:
        """Args are as a stage has them.

        Args:
            sections: of params that the stage takes, by their names; seed, env and tracking among them.
            stage: its name.
            inputs: name -> directory.
            output: what is being written.
            known: runs of inputs whose manifests name none: name -> run id.
        """
        self.sections = dict(sections)
        self._tracking: TrackingParams = self.sections["tracking"]
        self._stage = stage
        self._inputs = inputs
        self.output = output
        self._known = known or {}
        self._shared: dict[str, dict[str, str]] = {}
        """Run id -> the tags that it shares with its child runs."""

    @contextmanager
    def stage_run(self, *, resumed: str | None = None, ended: float | None = None) -> Iterator[Run | None]:
        """Yield the stage's run, with its parameters, lineage and data sets; None where nothing is logged.

        It begins when the work on the output did. Where the block fails, it ends as FAILED, or KILLED by Ctrl-C.

        Args:
            resumed: the run of the same work that was stopped, to go on with; None opens a new one.
            ended: when the work ended, in seconds since 1970; None means when the block does.
        """
        if not self._tracking.enabled:
            yield None
            return
        fails_with = failures()
        run: Run | None = None
        try:
            run = self._open(*connect(self._tracking.experiment), resumed, ended)
        except fails_with as error:
            self._note(error)
        if run is None:
            yield None
            return
        self.output.mlflow_run_id = run.id
        try:
            yield run
            run.end(at=ended)
        except fails_with as error:
            self._note(error)
        except BaseException as error:  # also Ctrl-C: a run that died must not be shown as running
            self._abandon(run, status_of(error))
            raise

    @staticmethod
    def _abandon(run: Run, status: str) -> None:
        """End the run of a stage that fails, and its child runs: MLflow would show them as running for ever."""
        with suppress(*failures()):
            below = f"tags.mlflow.parentRunId = '{run.id}' and attributes.status = 'RUNNING'"
            for child in run.client.search_runs([run.experiment], below):
                run.client.set_terminated(child.info.run_id, status)
            run.end(status)

    def _note(self, error: Exception) -> None:
        """Say in the output's RUN and on standard error that MLflow does not have everything."""
        sentence = f"{self._stage}: nothing or only part was logged to MLflow {explained(error)}."
        logger.warning("%s The files are complete.", sentence)
        self.output.run_notes.append(sentence)
        self.output.agent_runs.clear()
        self.output.mlflow_run_id = None  # so that a later stage logs it all, from the files

    def child_run(self, parent: Run, name: str, tags: Mapping[str, str], *, began: float | None = None) -> Run:
        """Open a run below the stage's, begun now or at a time in seconds since 1970; the caller ends it."""
        if parent.id not in self._shared:  # asked once: there may be hundreds of runs below it
            above = parent.client.get_run(parent.id)
            upstream = {key: run for key, run in above.data.tags.items() if key.startswith("upstream.")}
            self._shared[parent.id] = {**self._tags(), **upstream}
        nested = {"mlflow.parentRunId": parent.id, **self._shared[parent.id], **tags}
        at = None if began is None else _milliseconds(began)
        created = parent.client.create_run(parent.experiment, start_time=at, tags=nested, run_name=name)
        return Run(parent.client, created.info.run_id, parent.experiment)

    def _open(self, client: MlflowClient, experiment: str, resumed: str | None, ended: float | None) -> Run:
        if resumed is not None and (stopped := Run(client, "", experiment).find(resumed)) is not None:
            stopped.resume()
            return stopped
        manifests = {name: read_manifest(path) for name, path in self._inputs.items()}
        runs = {name: m["mlflow_run_id"] for name, m in manifests.items() if m["mlflow_run_id"]} | dict(self._known)
        upstream = {f"upstream.{name}": run for name, run in runs.items() if name in self._inputs}
        began = (time.time() if ended is None else ended) - self.output.seconds
        created = client.create_run(
            experiment,
            start_time=_milliseconds(began),
            tags={**self._tags(), **upstream, **({OUTPUT: place} if (place := os.environ.get(OUTPUT_URI)) else {})},
            run_name=f"{self._stage} {self.sections['env'].id}",
        )
        run = Run(client, created.info.run_id, experiment)
        run.log_params(flatten(dumped(self.sections)))
        for name, manifest in manifests.items():
            run.log_dataset(name, manifest["digest"], self._inputs[name].resolve(), manifest["counts"], self._stage)
        return run

    def _tags(self) -> dict[str, str]:
        tags = {"stage": self._stage, "env": self.sections["env"].id, "laurel_version": __version__}
        if "annotate" in self.sections:
            tags["annotator"] = self.sections["annotate"].annotator
        sha = git_sha()
        return {**tags, "git_sha": sha} if sha else tags


def configure(project: Path) -> None:
    """Set where runs are logged: MLFLOW_TRACKING_URI, or a database in the project's directory.

    Experiments that DVC queued log to the project's, too, and not to that of a copy which DVC throws away.
    """
    os.environ[URI] = os.environ.get(URI) or f"sqlite:///{lasting(project.resolve() / DATABASE)}"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def connect(experiment: str) -> tuple[MlflowClient, str]:
    """Return a client and the id of an experiment; a new database is set up by one process at a time.

    A server that does not answer is given up after two tries, within half a minute.
    """
    from filelock import FileLock
    from mlflow import MlflowClient

    quiet()
    configure(Path.cwd())  # a stage may be called from Python, with no command line before it
    uri = os.environ[URI]
    if not uri.startswith("sqlite:///"):
        client = MlflowClient(uri)
        return client, _experiment(client, experiment, None)
    database = Path(uri.removeprefix("sqlite:///").partition("?")[0]).resolve()
    with FileLock(database.with_name(f".{database.name}.lock")):
        _log_ahead(database)
        client = MlflowClient(uri)
        return client, _experiment(client, experiment, (database.parent / ARTIFACTS).as_uri())


def _log_ahead(database: Path) -> None:
    """Have SQLite write ahead: it waits for the disk at checkpoints, not at each of the 17 commits of an agent's run.

    What a crash of the machine may lose is the last commits, never the database (sqlite.org/wal.html). The mode stays
    with the file; how long a connection waits does not, and MLflow has no setting for it.
    """
    import sqlite3

    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:  # MLflow says better what is wrong
        connection.execute("PRAGMA journal_mode = WAL")
    if not event.contains(Engine, "connect", _wait_for_checkpoints_alone):
        event.listen(Engine, "connect", _wait_for_checkpoints_alone)


def _wait_for_checkpoints_alone(connection: Any, _: object) -> None:
    """Set up a new connection, of any database."""
    import sqlite3

    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = NORMAL")


def quiet() -> None:
    """Silence MLflow's own messages, and make it give up soon on a server that does not answer."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "12")
    os.environ.setdefault("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # it would print a password, too


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> str:
    found = client.get_experiment_by_name(name)
    return found.experiment_id if found else client.create_experiment(name, artifact_location=artifacts)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested parameters into dotted keys.

    >>> flatten({"agent": {"ppo": {"gamma": 0.99}}})
    {'agent.ppo.gamma': 0.99}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def git_sha() -> str | None:
    """Return the commit of the working directory, with "+" where files differ from it; None outside git.

    An image says itself what it was built from, in LAUREL_REVISION: the working directory is not what runs there.
    """
    if revision := _of_image():
        return f"{revision[1][:12]}{'+' if revision[2] else ''}"
    return _git("describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")


def commit() -> str | None:
    """Return the commit as of `git_sha` in words, with its date where git knows that; None outside git."""
    sha, day = git_sha(), None if _of_image() else _git("show", "--no-patch", "--format=%cs", "HEAD")
    return f"commit {sha}{f' of {day}' if day else ''}" if sha else None


def _of_image() -> re.Match[str] | None:
    return re.fullmatch("([0-9a-f]{40})(-dirty)?", os.environ.get("LAUREL_REVISION", ""))


def _git(*arguments: str) -> str | None:
    """Return what git says of the working directory; None where it says nothing."""
    try:
        result = subprocess.run(("git", *arguments), capture_output=True, text=True, timeout=10, check=False)  # noqa: S603, S607
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def status_of(error: BaseException) -> str:
    """Return MLflow's status of a run whose work an error ended."""
    return "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"


def explained(error: Exception) -> str:
    """Say where MLflow is and what it answered, without user and password."""
    uri = os.environ[URI]
    where = without_secrets(uri).partition("?")[0]
    reason = without_secrets(_first_line(error).replace(uri, where))
    return f"at {where} ({reason.rstrip('.')})"


def failures() -> tuple[type[Exception], ...]:
    """What MLflow fails with: a refusal, a database, network or disk that does not answer, a missing driver."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError, ImportError


def without_secrets(text: str) -> str:
    """Leave user and password out of every URI in a text."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
