"""Stages that could not log themselves are logged by the last one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from laurel.data.directory import Output
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.params import Params
from laurel.stages import evaluate
from laurel.stages.pipeline import STAGE
from laurel.stages.track_late import track_late
from tiny_project import UNTRACKED, Project, set_run_facts

URI = "MLFLOW_TRACKING_URI"
USED = {"calls": 7, "cost": 0.25}


def tracked(params: Params) -> Params:
    return params.model_copy(update={"tracking": params.tracking.model_copy(update={"enabled": True})})


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """All stages have run; none is known to MLflow."""
    copy = finished.copy(tmp_path / "p", UNTRACKED, without=["evaluate"])
    for path in copy.inputs("evaluate").values():
        set_run_facts(path, mlflow_run_id=None, usage=USED if path.name in ("preferences", "reward") else {})
    return copy


def all_runs(uri: str) -> list[Any]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("laurel")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def test_evaluate_logs_stages_that_could_not_be_logged(project: Project, database: str) -> None:
    evaluate.run(
        **STAGE["evaluate"].given(tracked(project.params)),
        **project.inputs("evaluate"),
        output=project.output("evaluate"),
    )
    runs = {run.info.run_name: run for run in all_runs(database)}
    env = project.params.env.id
    stages = ("collect", "caption", "annotate", "train-reward", "train-agents", "evaluate")
    agents = [f"{arm} seed {seed}" for arm in ("extrinsic", "preference") for seed in (0, 1)]
    assert set(runs) == {*(f"{stage} {env}" for stage in stages), *agents}
    assert all(run.info.status == "FINISHED" for run in runs.values())
    counts = read_manifest(project.output("collect"))["counts"]
    assert runs[f"collect {env}"].data.metrics["transitions"] == counts["transitions"]
    for stage in ("annotate", "train-reward"):
        found = runs[f"{stage} {env}"].data.metrics
        assert {name: found[name] for name in USED} == USED
    quality = read_json(project.output("train-reward") / "preference" / "quality.json")
    assert runs[f"train-reward {env}"].data.metrics["heldout_agreement"] == quality["heldout_agreement"]
    last = runs[f"evaluate {env}"]
    assert last.data.tags["upstream.reward"] == runs[f"train-reward {env}"].info.run_id
    assert runs[f"caption {env}"].data.tags["upstream.trajectories"] == runs[f"collect {env}"].info.run_id
    assert read_manifest(project.output("evaluate"))["mlflow_run_id"] == last.info.run_id
    assert read_manifest(project.output("evaluate"))["run_notes"] == []


def test_logged_stages_are_not_logged_again(finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/late.db")
    out = Output(tmp_path)
    manifests = [read_manifest(path) for path in finished.inputs("evaluate").values()]
    assert all(manifest["mlflow_run_id"] for manifest in manifests)
    assert track_late(dict(tracked(finished.params)), finished.inputs("evaluate"), out) == {}
    assert not (tmp_path / "late.db").exists()


def test_a_server_that_is_still_away_is_asked_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URI, "http://127.0.0.1:9")
    out = Output(project.path)
    assert track_late(dict(tracked(project.params)), project.inputs("evaluate"), out) == {}
    (note,) = out.run_notes
    assert note.startswith("collect: nothing or only part was logged to MLflow at http://127.0.0.1:9")
    assert track_late(dict(project.params), project.inputs("evaluate"), Output(project.path)) == {}  # tracking is off
    assert json.dumps(out.counts) == "{}"
