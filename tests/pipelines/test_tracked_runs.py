"""What MLflow knows of a whole run, and that it is optional."""

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from laurel.data.manifest import read_manifest
from tiny_project import PLACES_OF, STAGE, UNTRACKED, Project, read_json

STORE = ("mlflow.db", "mlruns", "mlartifacts", ".mlflow.db.lock")


@pytest.fixture(scope="module")
def client(finished: Project) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{finished.path}/mlflow.db")


@pytest.fixture(scope="module")
def runs(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("laurel")
    return client.search_runs([experiment.experiment_id])


def test_one_run_a_stage_and_one_an_agent(runs: list[Any]) -> None:
    stages = [run for run in runs if "arm" not in run.data.tags]
    assert sorted(run.data.tags["stage"] for run in stages) == sorted(STAGE)
    agents = [run for run in runs if "arm" in run.data.tags]
    assert sorted((run.data.tags["arm"], run.data.tags["seed"]) for run in agents) == [
        (arm, seed) for arm in ("extrinsic", "preference") for seed in ("0", "1")
    ]
    (parent,) = [run for run in stages if run.data.tags["stage"] == "train-agents"]
    assert {run.data.tags["mlflow.parentRunId"] for run in agents} == {parent.info.run_id}
    assert len({(run.data.tags["arm"], run.data.tags["training"]) for run in agents}) == 2
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        assert run.data.tags["env"] == "MiniGrid-Empty-5x5-v0"
        if run.data.tags["stage"] not in ("collect", "caption"):
            assert run.data.tags["annotator"] == "embedding"
        assert run.data.tags["git_sha"]
        assert run.data.tags["laurel_version"]


def test_runs_lead_to_what_they_were_made_from(finished: Project, runs: list[Any]) -> None:
    by_id = {run.info.run_id: run for run in runs}
    for stage in STAGE.values():
        run = by_id[read_manifest(finished.output(stage.name))["mlflow_run_id"]]
        assert run.data.tags["stage"] == stage.name
        logged = {key.split(".")[0] for key in run.data.params} - {"verdict"}  # which evaluate adds
        assert logged == set(stage.sections) - {"judges"}, "the sections that it takes; judges follow from arms"
        for name in stage.inputs:
            assert by_id[run.data.tags[f"upstream.{name}"]].data.tags["stage"] == PLACES_OF[name]
        digests = {entry.dataset.name: entry.dataset.digest for entry in run.inputs.dataset_inputs}
        assert digests == {
            name: read_json(place / "manifest.json")["digest"][:32]
            for name, place in finished.inputs(stage.name).items()
        }


def test_numbers_and_models(finished: Project, client: Any, runs: list[Any]) -> None:
    metrics = read_json(finished.path / "reports/metrics.json")
    (evaluation,) = [run for run in runs if run.data.tags["stage"] == "evaluate"]
    logged = evaluation.data.metrics
    assert logged["arms.preference.return.iqm"] == metrics["arms"]["preference"]["return"]["iqm"]
    assert {file.path for file in client.list_artifacts(evaluation.info.run_id)} >= {"report.html", "metrics.json"}
    agent = next(run for run in runs if run.data.tags.get("arm") == "preference")
    curve = client.get_metric_history(agent.info.run_id, "episodes")
    assert max(point.step for point in curve) == 2048
    assert all(agent.info.start_time <= point.timestamp <= agent.info.end_time for point in curve)
    names = {model.name for model in client.search_registered_models()}
    assert names == {"agent.MiniGrid-Empty-5x5-v0", "reward.MiniGrid-Empty-5x5-v0"}
    best = client.get_model_version_by_alias("agent.MiniGrid-Empty-5x5-v0", "best")
    assert best.tags["arm"] == "preference", "the best that learned from feedback, whatever the others reach"
    assert (best.tags["role"], agent.data.tags["role"]) == ("method", "method")
    paid = client.get_model_version_by_alias("reward.MiniGrid-Empty-5x5-v0", "best")
    made = read_manifest(finished.output("train-reward"))["mlflow_run_id"]
    assert (paid.tags["reward"], paid.run_id) == ("preference", made), "the reward that it was paid"


def test_an_agents_run_says_what_it_was_and_what_it_reached(finished: Project, client: Any, runs: list[Any]) -> None:
    results = pd.read_parquet(finished.path / "reports/results.parquet")
    state = {
        path.parent.parent.name: read_json(path)["wall"]
        for path in finished.path.glob("data/agents/*/seed-0/.run.json")
    }
    for run in [run for run in runs if "arm" in run.data.tags]:
        arm, seed = run.data.tags["arm"], int(run.data.tags["seed"])
        rows = results[(results["arm"] == arm) & (results["seed"] == seed)]
        assert run.data.metrics["eval.return"] == pytest.approx(rows["return"].mean())
        assert run.data.metrics["eval.success"] == pytest.approx(rows["success"].astype(float).mean())
        expected = {"arm": arm, "seed": str(seed), "env.id": "MiniGrid-Empty-5x5-v0", "agent.ppo.n_envs": "4"}
        assert expected.items() <= run.data.params.items()
        assert {"shaping.beta", "shaping.intrinsic", "agent.algorithm", "agent.steps"} <= set(run.data.params)
        if seed == 0:
            assert run.info.end_time == int(1000 * state[arm][1]), "when its training ended"
            assert run.info.start_time <= 1000 * state[arm][0] + 1
    (training,) = [run for run in runs if run.data.tags["stage"] == "train-agents" and "arm" not in run.data.tags]
    seconds = read_manifest(finished.output("train-agents"))["seconds"]
    assert (training.info.end_time - training.info.start_time) / 1000 == pytest.approx(seconds, abs=2)


def test_nothing_is_written_where_tracking_is_off(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "collect.steps": 60, "env.backend": "gymnasium"})
    assert project.laurel("collect").returncode == 0
    assert not any((project.path / name).exists() for name in STORE)
    assert read_manifest(project.output("collect"))["mlflow_run_id"] is None


def test_the_tracking_uri_is_respected(tmp_path: Path, finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    from laurel.cli.app import main

    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    (tmp_path / "elsewhere.db").write_bytes((finished.path / "mlflow.db").read_bytes())  # saves its making
    changes = {"collect.steps": 60, "env.backend": "gymnasium", "tracking.experiment": "mine"}
    project = Project.create(tmp_path / "p", changes)
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", elsewhere)
    assert main(["collect"]) == 0
    assert os.environ["MLFLOW_TRACKING_URI"] == elsewhere
    assert not any((project.path / name).exists() for name in STORE)
    client = MlflowClient(elsewhere)
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert run.info.run_id == read_manifest(project.output("collect"))["mlflow_run_id"]
