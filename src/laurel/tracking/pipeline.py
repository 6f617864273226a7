"""The MLflow run of a whole pipeline: opened by its first step, closed by its last, parent of the stages' runs.

Steps find it by the name of the pipeline's run. If the server cannot be reached, the pipeline continues with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from laurel import __version__
from laurel.params import EnvParams, TrackingParams
from laurel.tracking.run import PARENT, UPSTREAM, Run, existing, milliseconds
from laurel.tracking.server import connect, explained, failures, without_secrets
from laurel.tracking.tracker import OUTPUT, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient


NAME = "pipeline_run"
"""Tag with the name of the pipeline's run."""
STATUS = {"SUCCEEDED": "FINISHED", "CANCELLED": "KILLED"}
"""KFP's states as MLflow's; any other is a failure."""
ERROR_LENGTH = 1000

logger = logging.getLogger(__name__)


def open_pipeline_run(env: EnvParams, tracking: TrackingParams, name: str, code_version: str) -> None:
    """Open the run, or reopen it for another attempt."""

    def log(client: MlflowClient, experiment: str) -> None:
        run = _find(client, experiment, name) or _create(client, experiment, env, name)
        client.set_tag(run, "code_version", code_version)
        client.update_run(run, status="RUNNING")

    _logged(tracking, log)


def close_pipeline_run(
    env: EnvParams, tracking: TrackingParams, name: str, state: str, error: str, folders: Iterable[str] = ()
) -> None:
    """Mark the run with the pipeline's state and its error message, put the runs of its stages below it, and end those
    of killed steps: no step works any more.

    Args:
        tracking: whether and where runs are logged.
        state: as reported by KFP.
        error: as reported by KFP; empty without one.
        folders: names, one of which is a folder in the path of every output of this run.
    """

    def log(client: MlflowClient, experiment: str) -> None:
        run = _find(client, experiment, name) or _create(client, experiment, env, name)
        _adopt(client, experiment, run, folders)
        client.set_tag(run, "state", state)
        if error:
            client.set_tag(run, "error", without_secrets(error)[:ERROR_LENGTH])
        client.set_terminated(run, status=STATUS.get(state, "FAILED"))

    _logged(tracking, log)


def end_killed_pipelines(tracking: TrackingParams, names: Iterable[str], *, ended_at: float) -> None:
    """End the runs of pipelines that were killed before they could close them: MLflow would show them as running
    forever.

    Args:
        tracking: whether and where runs are logged.
        names: of pipelines none of which works any more. The name of each is a folder in the path of its outputs.
        ended_at: when they worked last, in seconds since 1970.
    """
    known = {_quoted(name): name for name in names}

    def log(client: MlflowClient, experiment: str) -> None:
        for run in client.search_runs([experiment], "tags.stage = 'pipeline' and attributes.status = 'RUNNING'"):
            if (name := run.data.tags.get(NAME)) in known:
                _adopt(client, experiment, run.info.run_id, [known[name]], ended_at)
                ended = max(milliseconds(ended_at), run.info.start_time)
                client.set_terminated(run.info.run_id, status="KILLED", end_time=ended)

    if known:
        _logged(tracking, log)


def _adopt(
    client: MlflowClient, experiment: str, parent: str, folders: Iterable[str], ended_at: float | None = None
) -> None:
    """Make the runs of a pipeline's stages, including failed ones, and the runs of their inputs children of its own
    run; those that run end now, or at a time in seconds since 1970.

    A run that has a parent keeps it: its stage was taken from the cache of an earlier pipeline.
    """
    searched = (f"tags.{OUTPUT} LIKE '%/{_quoted(folder)}/%'" for folder in folders)
    made = [run.info for query in searched for run in client.search_runs([experiment], query)]
    for run in made:
        if run.status == "RUNNING":  # its step was killed, e.g. for lack of memory
            Tracker.abandon(Run(client, run.run_id, experiment), "KILLED", ended_at=ended_at)
    waiting = [run.run_id for run in made]
    seen: set[str] = set()
    while waiting:
        if (run_id := waiting.pop()) in seen:
            continue
        seen.add(run_id)
        found = existing(client, run_id)
        if found is not None and PARENT not in found.data.tags:
            client.set_tag(run_id, PARENT, parent)
            waiting += [upstream for name, upstream in found.data.tags.items() if name.startswith(UPSTREAM)]


def _logged(tracking: TrackingParams, log: Callable[[MlflowClient, str], None]) -> None:
    if not tracking.enabled:
        return
    answers_with = failures()
    try:
        log(*connect(tracking.experiment))
    except answers_with as error:
        logger.warning("The pipeline's run was not logged to MLflow %s.", explained(error))


def _find(client: MlflowClient, experiment: str, name: str) -> str | None:
    found = client.search_runs([experiment], f"tags.{NAME} = '{_quoted(name)}'", max_results=1)
    return found[0].info.run_id if found else None


def _create(client: MlflowClient, experiment: str, env: EnvParams, name: str) -> str:
    tags = {NAME: _quoted(name), "stage": "pipeline", "env": env.id, "laurel_version": __version__}
    return client.create_run(experiment, tags=tags, run_name=f"pipeline {env.id}").info.run_id


def _quoted(name: str) -> str:
    return name.replace("'", "")
