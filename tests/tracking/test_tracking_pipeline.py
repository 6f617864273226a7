"""The run of a whole pipeline in MLflow."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from laurel.data.directory import output_directory
from laurel.params import EnvParams, Params, TrackingParams, parse_params
from laurel.tracking.pipeline import close_pipeline_run, end_killed_pipelines, open_pipeline_run
from laurel.tracking.tracker import Tracker

URI = "MLFLOW_TRACKING_URI"


def make_params(**sections: Any) -> Params:
    content: dict[str, Any] = {
        "env": {"id": "FrozenLake-v1"},
        "collect": {"steps": 1},
        "arms": ["extrinsic"],
        "agent": {"seeds": [0], "steps": 1},
    }
    return parse_params({**content, **sections}, "test")


@pytest.fixture
def client(database: str) -> MlflowClient:
    return MlflowClient(database)


def runs(client: MlflowClient) -> list[Run]:
    experiment = client.get_experiment_by_name("laurel")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def of(params: Params) -> tuple[EnvParams, TrackingParams]:
    return params.env, params.tracking


def stage(path: Path, params: Params, name: str, *, fails: bool = False) -> str:
    """Write what a stage would, and return the run that it logged."""
    with output_directory(path, stage=name, params={}) as out, Tracker(params, name, {}, out).stage_run() as run:
        assert run
        if fails:
            raise ZeroDivisionError
    return run.id


def test_it_is_opened_once_and_closed_with_the_state(client: MlflowClient) -> None:
    params = make_params()
    open_pipeline_run(*of(params), "laurel-20261121", "abc123")
    open_pipeline_run(*of(params), "laurel-20261121", "abc123")  # the first step was tried again
    (run,) = runs(client)
    assert run.info.status == "RUNNING"
    tags = run.data.tags
    assert (tags["pipeline_run"], tags["code_version"], tags["stage"]) == ("laurel-20261121", "abc123", "pipeline")
    close_pipeline_run(*of(params), "laurel-20261121", "SUCCEEDED", "")
    (run,) = runs(client)
    assert run.info.status == "FINISHED"
    assert "error" not in run.data.tags


@pytest.mark.parametrize(("state", "status"), [("FAILED", "FAILED"), ("CANCELLED", "KILLED"), ("ODD", "FAILED")])
def test_a_failure_before_any_run_was_opened_is_marked(client: MlflowClient, state: str, status: str) -> None:
    close_pipeline_run(*of(make_params()), "name", state, f"lost https://me:secret@host {'x' * 5000}")
    (run,) = runs(client)
    assert (run.info.status, run.data.tags["state"]) == (status, state)
    assert "secret" not in run.data.tags["error"]
    assert len(run.data.tags["error"]) == 1000


def test_runs_of_stages_get_a_parent_but_cached_ones_keep_theirs(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = make_params()
    begun = {}
    for name, place in (("a", "gs://bucket/7/monday/part-1/it"), ("b", "gs://bucket/7/monday/part-2/it")):
        monkeypatch.setenv("LAUREL_OUTPUT_URI", place)
        begun[name] = stage(tmp_path / name, params, "collect")
    with pytest.raises(ZeroDivisionError):
        stage(tmp_path / "c", params, "annotate", fails=True)
    begun["failed"] = next(run.info.run_id for run in runs(client) if run.data.tags["stage"] == "annotate")
    monkeypatch.setenv("LAUREL_OUTPUT_URI", "s3://bucket/monday/7f3c/cached/it")
    begun["later"] = stage(tmp_path / "d", params, "caption")
    monkeypatch.delenv("LAUREL_OUTPUT_URI")
    begun["by hand"] = stage(tmp_path / "e", params, "caption")
    close_pipeline_run(*of(params), "monday", "FAILED", "", ("monday", "12"))
    close_pipeline_run(*of(params), "laurel-x5", "SUCCEEDED", "", ("laurel-x5", "7f3c"))
    names = {run.info.run_id: run.data.tags.get("pipeline_run") for run in runs(client)}
    parents = {run.info.run_id: run.data.tags.get("mlflow.parentRunId", "") for run in runs(client)}
    assert {name: names.get(parents[run]) for name, run in begun.items()} == {
        "a": "monday",
        "b": "monday",
        "failed": "monday",
        "later": "monday",
        "by hand": None,
    }


def test_what_a_run_was_made_from_gets_the_same_parent(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = make_params()
    inputs = {"trajectories": tmp_path / "cached", "captions": tmp_path / "gone"}
    cached = stage(inputs["trajectories"], params, "collect")  # by a pipeline that was killed: it has no parent
    client.delete_run(stage(inputs["captions"], params, "caption"))
    monkeypatch.setenv("LAUREL_OUTPUT_URI", "/here/laurel-2026/evaluate/reports")
    with (
        output_directory(tmp_path / "made", stage="evaluate", params={}) as out,
        Tracker(params, "evaluate", inputs, out).stage_run() as run,
    ):
        assert run
    close_pipeline_run(*of(params), "laurel-2026", "SUCCEEDED", "", ("laurel-2026", "12"))
    (parent,) = {client.get_run(run_id).data.tags["mlflow.parentRunId"] for run_id in (run.id, cached)}
    assert client.get_run(parent).data.tags["pipeline_run"] == "laurel-2026"


def test_the_runs_of_a_killed_step_end_with_the_pipeline(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step without enough memory is killed and tried again, and cannot end its run or those of its agents."""
    params = make_params()

    def killed(place: str, folder: str) -> set[str]:
        monkeypatch.setenv("LAUREL_OUTPUT_URI", place)
        with output_directory(tmp_path / folder, stage="train-agents", params={}) as out:
            tracker = Tracker(params, "train-agents", {}, out)
            run = tracker._open(client, next(iter(experiments)), None, None)
            return {run.id, tracker.child_run(run, "extrinsic seed 0", {}).id}

    open_pipeline_run(*of(params), "monday", "abc123")
    experiments = {run.info.experiment_id for run in runs(client)}
    ours, of_others = killed("gs://bucket/7/monday/part-1/it", "a"), killed("gs://bucket/7/tuesday/part-1/it", "b")
    monkeypatch.setenv("LAUREL_OUTPUT_URI", "gs://bucket/7/monday/part-1/it")
    again = stage(tmp_path / "c", params, "train-agents")
    close_pipeline_run(*of(params), "monday", "SUCCEEDED", "", ("monday", "12"))
    status = {run.info.run_id: run.info.status for run in runs(client)}
    assert {status[run] for run in ours} == {"KILLED"}
    assert {status[run] for run in of_others} == {"RUNNING"}
    assert status[again] == "FINISHED"


def test_the_runs_of_killed_pipelines_end_when_they_worked_last(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = make_params()
    for name in ("monday", "tuesday", "wednesday"):
        open_pipeline_run(*of(params), name, "abc123")
    close_pipeline_run(*of(params), "wednesday", "SUCCEEDED", "")
    monkeypatch.setenv("LAUREL_OUTPUT_URI", "/here/monday/train-agents/agents")
    with output_directory(tmp_path / "it", stage="train-agents", params={}) as out:
        tracker = Tracker(params, "train-agents", {}, out)
        step = tracker._open(client, runs(client)[0].info.experiment_id, None, None)
    at = max(run.info.start_time for run in runs(client)) / 1000 + 60
    end_killed_pipelines(params.tracking, ["monday", "wednesday"], ended_at=at)
    by_name = {run.data.tags.get("pipeline_run", "step of monday"): run for run in runs(client)}
    assert {name: run.info.status for name, run in by_name.items()} == {
        "monday": "KILLED",
        "step of monday": "KILLED",
        "tuesday": "RUNNING",
        "wednesday": "FINISHED",
    }
    assert {by_name[name].info.end_time for name in ("monday", "step of monday")} == {int(1000 * at)}
    assert client.get_run(step.id).data.tags["mlflow.parentRunId"] == by_name["monday"].info.run_id


def test_tracking_that_is_off_or_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(URI, "http://me:secret@127.0.0.1:9")
    off = make_params(tracking={"enabled": False})
    with caplog.at_level(logging.WARNING):
        close_pipeline_run(*of(off), "name", "SUCCEEDED", "")
        assert not caplog.records
        close_pipeline_run(*of(make_params()), "name", "SUCCEEDED", "")
    assert "not logged to MLflow at http://127.0.0.1:9 (" in caplog.text
    assert "secret" not in caplog.text
