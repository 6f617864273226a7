"""MLflow as a view of the files: one run per stage and per agent, with flat tags for comparing baselines.

Files are the source of truth: everything logged here is read from a stage's output, and if the server cannot be
reached, the stage succeeds with a note beside the manifest. Uses only the client API, so nothing depends on MLflow's
active run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel import __version__
from laurel.data.directory import Output
from laurel.data.manifest import read_manifest
from laurel.params import TrackingParams
from laurel.params.fields import dumped
from laurel.tracking.revision import git_sha
from laurel.tracking.run import PARENT, UPSTREAM, Run, milliseconds, status_of
from laurel.tracking.server import connect, explained, failures

if TYPE_CHECKING:
    from mlflow import MlflowClient


OUTPUT_URI = "LAUREL_OUTPUT_URI"
"""Environment variable with the place of a pipeline step's output."""
OUTPUT = "output"
"""Tag with that place."""
BEST = "best"
"""Alias in the model registry of the best agent that learned from feedback, and of its reward."""

logger = logging.getLogger(__name__)


class Tracker:
    """Opens runs for a stage; does nothing if tracking is off or its server cannot be reached."""

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
            inputs: name -> directory.
            known: runs of inputs whose manifests do not name them: name -> run id.
        """
        self.sections = dict(sections)
        self._tracking: TrackingParams = self.sections["tracking"]
        self._stage = stage
        self._inputs = inputs
        self.output = output
        self._known = known or {}
        self._at_work = False
        self._shared: dict[str, dict[str, str]] = {}
        """Run id -> the tags that it shares with its child runs."""

    @contextmanager
    def stage_run(self, *, resumed: str | None = None, ended: float | None = None) -> Iterator[Run | None]:
        """Yield the stage's run, with its parameters, lineage and data sets; None where nothing is logged.

        It begins when the work on the output did, and has the output's usage in the end. Where the block fails, it ends
        as FAILED, or KILLED by Ctrl-C. An error of MLflow in the block becomes a note, unless it comes from `at_work`.

        Args:
            resumed: the stopped run of the same work, to be resumed; None opens a new one.
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
            run.log_metrics(self.output.usage)
            run.end(ended_at=ended)
        except BaseException as error:  # also Ctrl-C: a dead run must not be shown as running
            if not isinstance(error, fails_with):
                with suppress(*fails_with):
                    run.log_metrics(self.output.usage)
            self.abandon(run, status_of(error))
            if self._at_work or not isinstance(error, fails_with):
                raise
            self.output.mlflow_left = run.id
            self._note(error)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Mark the stage's own work in the block of its run: an error there is the stage's, of any class."""
        self._at_work = True
        yield
        self._at_work = False  # stays set after an error, for the block of the run

    def end_killed(self, server_run: Run, killed: Mapping[str, float]) -> None:
        """End runs that a killed stage has left and no stage resumes: MLflow would show them as running forever.

        Args:
            server_run: a run of this server.
            killed: run id of a stage -> when it worked last, in seconds since 1970.
        """
        for run_id, ended_at in killed.items():
            with suppress(*failures()):
                if (run := server_run.find(run_id)) is not None and run.is_running():
                    self.abandon(run, "KILLED", ended_at=ended_at)

    @staticmethod
    def abandon(run: Run, status: str, *, ended_at: float | None = None) -> None:
        """End the run of a failed stage and its child runs, now or at a time in seconds since 1970."""
        with suppress(*failures()):
            query = f"tags.{PARENT} = '{run.id}' and attributes.status = 'RUNNING'"
            for child in run.client.search_runs([run.experiment], query):
                Run(run.client, child.info.run_id, run.experiment).end(status, ended_at=ended_at)
            run.end(status, ended_at=ended_at)

    def _note(self, error: Exception) -> None:
        """Report in the output's RUN and on standard error that logging to MLflow is incomplete."""
        sentence = f"{self._stage}: nothing or only part was logged to MLflow {explained(error)}."
        logger.warning("%s The stage's files do not depend on it.", sentence)
        self.output.run_notes.append(sentence)
        self.output.agent_runs.clear()
        self.output.mlflow_run_id = None  # so that a later stage logs everything from the files

    def digests(self, *names: str) -> dict[str, str]:
        """Return the digests of those of these inputs that the stage has."""
        return {name: read_manifest(self._inputs[name])["digest"] for name in names if name in self._inputs}

    def child_run(self, parent: Run, name: str, tags: Mapping[str, str], *, began: float | None = None) -> Run:
        """Open a run below the stage's, begun now or at a time in seconds since 1970; the caller ends it."""
        if parent.id not in self._shared:  # queried once: there may be hundreds of child runs
            parent_run = parent.client.get_run(parent.id)
            upstream = {key: run for key, run in parent_run.data.tags.items() if key.startswith(UPSTREAM)}
            self._shared[parent.id] = {**self._tags(), **upstream}
        nested = {PARENT: parent.id, **self._shared[parent.id], **tags}
        start_time = None if began is None else milliseconds(began)
        created = parent.client.create_run(parent.experiment, start_time=start_time, tags=nested, run_name=name)
        return Run(parent.client, created.info.run_id, parent.experiment)

    def _open(self, client: MlflowClient, experiment: str, resumed: str | None, ended: float | None) -> Run:
        if resumed is not None and (stopped := Run(client, "", experiment).find(resumed)) is not None:
            stopped.resume()
            return stopped
        manifests = {name: read_manifest(path) for name, path in self._inputs.items()}
        runs = {name: m["mlflow_run_id"] for name, m in manifests.items() if m["mlflow_run_id"]} | dict(self._known)
        upstream = {f"{UPSTREAM}{name}": run for name, run in runs.items() if name in self._inputs}
        began = (time.time() if ended is None else ended) - self.output.seconds
        created = client.create_run(
            experiment,
            start_time=milliseconds(began),
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
