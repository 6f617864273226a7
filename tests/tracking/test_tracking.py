"""MLflow as a view of the files: what each run logs, and where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import Run as MlflowRun

from laurel import __version__
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.policy import ActorCritic
from laurel.data.directory import Output, output_directory
from laurel.data.manifest import digest_directory, read_manifest
from laurel.stages.pipeline import STAGE
from laurel.tracking import tracker as tracking
from laurel.tracking.server import configure
from laurel.tracking.tracker import BEST, Tracker, flatten
from tracked import ENV_ID, URI, make_params, opened_and_closed

torch.set_num_threads(1)


# -- what a run says --------------------------------------------------------------------------------------------
class Logged:
    """A project whose database holds two stages, agents below one of them, and a registered model."""

    def __init__(self, root: Path) -> None:
        self.root, self.uri = root, f"sqlite:///{root / 'mlflow.db'}"
        self.params = make_params()
        self.trajectories, self.captions, self.agents = root / "trajectories", root / "captions", root / "agents"
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(URI, raising=False)
            patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
            patch.setattr(tracking, "git_sha", lambda: "0123456789ab+")
            configure(root)
            assert os.environ[URI] == self.uri
            STAGE["collect"].run(self.params, output=self.trajectories)
            STAGE["caption"].run(self.params, trajectories=self.trajectories, output=self.captions)
            self.train()
        self.client = MlflowClient(self.uri)

    def train(self) -> None:
        inputs = {"captions": self.captions}
        with output_directory(self.agents, stage="train-agents", params={}, inputs=inputs) as out:
            tracker = Tracker(self.params, "train-agents", inputs, out)
            with tracker.stage_run() as run:
                assert run is not None
                for seed in (0, 1):
                    torch.manual_seed(seed)
                    place = out.path / f"seed-{seed}"
                    save_policy(place, ActorCritic(16, 4, continuous=False, hidden=(8,)), seed=seed)
                    child = tracker.child_run(run, f"preference seed {seed}", {"arm": "preference", "seed": str(seed)})
                    child.log_curve(
                        (step, {"return_mean": step / 10, "success_rate": None if step < 1000 else 0.5})
                        for step in range(0, 3000, 2)
                    )
                    source = child.log_directory(place, "agent")
                    child.register(f"agent.{ENV_ID}", source, {"arm": "preference"}, alias=BEST if seed else None)
                    child.end()
                run.log_file(self.captions / "vocabulary.parquet")

    def run(self, directory: Path) -> MlflowRun:
        return self.client.get_run(read_manifest(directory)["mlflow_run_id"])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test's own, where MLflow writes by default."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    return Logged(tmp_path_factory.mktemp("a project"))  # with a space in its name


def test_a_stages_run_has_its_parameters_and_counts(logged: Logged) -> None:
    run = logged.run(logged.captions)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == f"caption {ENV_ID}"
    flat = flatten(logged.params.dump("env", "caption", "tracking"))  # the sections that it takes
    assert run.data.params == {key: str(value) for key, value in flat.items()}
    assert run.data.params["caption.segment_length"] == "1"
    whole = logged.run(logged.agents).data.params
    assert whole == {key: str(value) for key, value in flatten(logged.params.dump()).items()}
    counts = read_manifest(logged.captions)["counts"]
    assert run.data.metrics == {key: float(value) for key, value in counts.items()}
    assert logged.client.get_experiment(run.info.experiment_id).name == "laurel"


def test_a_stages_run_has_tags_to_find_it_by(logged: Logged) -> None:
    tags = logged.run(logged.captions).data.tags
    expected = {
        "stage": "caption",
        "env": ENV_ID,
        "laurel_version": __version__,
        "git_sha": "0123456789ab+",
        "upstream.trajectories": read_manifest(logged.trajectories)["mlflow_run_id"],
    }
    assert expected.items() <= tags.items()
    assert logged.run(logged.agents).data.tags["annotator"] == "embedding"
    assert not any(tag.startswith("upstream.") for tag in logged.run(logged.trajectories).data.tags)


def test_inputs_are_logged_by_their_digest(logged: Logged) -> None:
    (entry,) = logged.run(logged.captions).inputs.dataset_inputs
    manifest = read_manifest(logged.trajectories)
    assert entry.dataset.name == "trajectories"
    assert manifest["digest"].startswith(entry.dataset.digest)
    assert len(entry.dataset.digest) >= 32
    assert json.loads(entry.dataset.profile) == manifest["counts"]
    assert json.loads(entry.dataset.source) == {"uri": str(logged.trajectories.resolve())}
    assert [(tag.key, tag.value) for tag in entry.tags] == [("mlflow.data.context", "caption")]
    assert logged.run(logged.trajectories).inputs.dataset_inputs == []


def test_agents_are_runs_below_their_stage(logged: Logged) -> None:
    parent = logged.run(logged.agents)
    query = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    children = logged.client.search_runs([parent.info.experiment_id], query)
    assert sorted(child.info.run_name for child in children) == ["preference seed 0", "preference seed 1"]
    for child in children:
        assert child.info.status == "FINISHED"
        assert child.data.tags["stage"] == "train-agents"
        assert child.data.tags["arm"] == "preference"
    assert logged.client.search_runs([parent.info.experiment_id], f"{query} and tags.seed = '1'")


def test_all_points_of_a_curve_are_logged_without_nan(logged: Logged) -> None:
    parent = logged.run(logged.agents)
    child = logged.client.search_runs([parent.info.experiment_id], "tags.arm = 'preference'")[0]
    history = logged.client.get_metric_history(child.info.run_id, "return_mean")
    assert [(metric.step, metric.value) for metric in history] == [(step, step / 10) for step in range(0, 3000, 2)]
    history = logged.client.get_metric_history(child.info.run_id, "success_rate")
    assert [metric.step for metric in history] == list(range(1000, 3000, 2))


def test_the_best_agent_can_be_had_from_the_registry(
    logged: Logged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"agent.{ENV_ID}"
    versions = logged.client.search_model_versions(f"name = '{name}'")
    assert sorted(int(version.version) for version in versions) == [1, 2]
    assert all(version.tags == {"arm": "preference"} for version in versions)
    best = logged.client.get_model_version_by_alias(name, BEST)
    assert int(best.version) == 2
    monkeypatch.setenv(URI, logged.uri)
    found = download_artifacts(f"models:/{name}@{BEST}", dst_path=str(tmp_path / "agent"))
    policy = load_policy(Path(found))
    features = np.random.default_rng(0).random((5, 16), dtype=np.float32)
    expected = load_policy(logged.agents / "seed-1").evaluate(features)
    np.testing.assert_array_equal(policy.evaluate(features), expected)


def test_artifacts_are_stored_next_to_the_database(logged: Logged) -> None:
    run = logged.run(logged.agents)
    assert [artifact.path for artifact in logged.client.list_artifacts(run.info.run_id)] == ["vocabulary.parquet"]
    assert (logged.root / "mlartifacts").is_dir()
    assert list((logged.root / "mlartifacts").rglob("vocabulary.parquet"))


def test_tracking_does_not_touch_the_files(logged: Logged, tmp_path: Path) -> None:
    untracked = make_params(tracking={"enabled": False})
    STAGE["collect"].run(untracked, output=tmp_path / "trajectories")
    assert read_manifest(tmp_path / "trajectories")["mlflow_run_id"] is None
    assert digest_directory(tmp_path / "trajectories") == digest_directory(logged.trajectories)


# -- names and sizes that MLflow does not take ------------------------------------------------------------------
@pytest.fixture
def database(tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that is there already, since making one takes seconds."""
    monkeypatch.setenv(URI, logged.uri)
    return logged.uri


def test_an_environment_with_a_slash_and_a_colon_in_its_id(database: str, tmp_path: Path) -> None:
    output = Output(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("content")
    with Tracker(make_params(), "train-reward", {}, output).stage_run() as run:
        assert run is not None
        run.register("agent.my_room:Corridor/v0", run.log_directory(tmp_path / "model", "agent"), {}, alias=BEST)
    assert output.run_notes == []
    found = MlflowClient(database).get_model_version_by_alias("agent.my_room.Corridor.v0", BEST)
    assert found.run_id == run.id


def test_an_alias_is_removed_if_no_model_of_the_run_qualifies(database: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("content")
    with Tracker(make_params(), "train-reward", {}, Output(tmp_path)).stage_run() as run:
        assert run is not None
        source = run.log_directory(tmp_path / "model", "reward")
        for name in ("first", "second"):
            run.register("reward.X-v0", source, {"reward": name}, alias=name)
        for name in ("first", "second"):
            run.point_to(BEST, "reward.X-v0", run.id, {"reward": name})
            assert run.client.get_model_version_by_alias("reward.X-v0", BEST).tags["reward"] == name
        run.point_to(BEST, "reward.X-v0", "", {"reward": "second"})
        assert run.client.get_registered_model("reward.X-v0").aliases.keys() == {"first", "second"}
        run.point_to(BEST, "reward.never-v0", "", {"reward": "second"})


def test_a_reward_whose_name_mlflow_reserves_for_versions(database: str, tmp_path: Path) -> None:
    """It is a name like others in params.yaml, and refused as an alias after the model has been registered."""
    output, names = Output(tmp_path), ("v1", "Latest", "v1-long")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("content")
    with Tracker(make_params(), "train-reward", {}, output).stage_run() as run:
        assert run is not None
        source = run.log_directory(tmp_path / "model", "reward")
        for name in names:
            run.register("reward.Y-v0", source, {"reward": name}, alias=name)
    assert output.run_notes == []
    client = MlflowClient(database)
    for name, alias in zip(names, ("name-v1", "name-Latest", "v1-long"), strict=True):
        assert client.get_model_version_by_alias("reward.Y-v0", alias).tags["reward"] == name


@pytest.mark.usefixtures("database")
def test_a_version_names_its_model_as_servers_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    with Tracker(make_params(), "train-reward", {}, Output(tmp_path)).stage_run() as run:
        assert run
        monkeypatch.setattr(MlflowClient, "create_model_version", asked := Mock())
        run.register("reward.Z-v0", source := run.log_model(tmp_path / "model", "reward", {}), {})
    assert source == f"models:/{asked.call_args.kwargs['model_id']}"


def test_many_and_long_parameters(database: str, tmp_path: Path) -> None:
    """An environment may take any number of arguments, and a map may be long."""
    kwargs: dict[str, Any] = {f"argument_{i}": i for i in range(150)}
    output = Output(tmp_path)
    params = make_params(env={"id": ENV_ID, "kwargs": {**kwargs, "desc": ["SFFFHHG" * 900]}})
    assert opened_and_closed(params, output)
    assert output.run_notes == []
    assert output.mlflow_run_id is not None
    logged_params = MlflowClient(database).get_run(output.mlflow_run_id).data.params
    assert logged_params["env.kwargs.argument_149"] == "149"
    assert set(logged_params) == set(flatten(params.dump()))


def test_names_that_mlflow_does_not_allow(database: str, tmp_path: Path) -> None:
    """An environment's measures and arguments may have any name."""
    params = make_params(env={"id": ENV_ID, "kwargs": {"share (%)": 1}})
    output = Output(tmp_path)
    with Tracker(params, "collect", {}, output).stage_run() as run:
        assert run is not None
        run.log_metrics({"further.gold (coins).mean": 2.0, "a//b": 1.0, "/a": 3.0})
    assert not output.run_notes
    data = MlflowClient(database).get_run(run.id).data
    assert data.params["env.kwargs.share ___"] == "1"
    assert data.metrics == {"further.gold _coins_.mean": 2.0, "a__b": 1.0, "_a": 3.0}


def test_an_input_that_was_not_tracked_has_no_run_to_refer_to(database: str, tmp_path: Path) -> None:
    with output_directory(tmp_path / "trajectories", stage="collect", params={}):
        pass
    output, inputs = Output(tmp_path), {"trajectories": tmp_path / "trajectories"}
    with Tracker(make_params(), "caption", inputs, output).stage_run() as run:
        assert run is not None
    found = MlflowClient(database).get_run(run.id)
    assert not any(tag.startswith("upstream.") for tag in found.data.tags)
    assert [entry.dataset.name for entry in found.inputs.dataset_inputs] == ["trajectories"]


# -- where runs are logged --------------------------------------------------------------------------------------
def test_the_environment_variable_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URI, "http://somewhere")
    configure(tmp_path)
    assert os.environ[URI] == "http://somewhere"
    monkeypatch.setenv(URI, "")
    configure(tmp_path)
    assert os.environ[URI] == f"sqlite:///{tmp_path.resolve()}/mlflow.db", "an empty one says nothing"


def test_a_stage_called_from_python_logs_next_to_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command line configured anything; and a path in the variable may be relative."""
    output = Output(tmp_path)
    assert opened_and_closed(make_params(), output)
    assert output.run_notes == []
    assert (tmp_path / "mlflow.db").is_file()
    monkeypatch.setenv(URI, "sqlite:///mlflow.db")
    assert opened_and_closed(make_params(), output)
    assert output.run_notes == []


def test_disabled_tracking_does_not_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URI, "http://127.0.0.1:9")
    monkeypatch.setattr(tracking, "connect", lambda _: pytest.fail("nothing is to be connected to"))
    output = Output(tmp_path)
    assert not opened_and_closed(make_params(tracking={"enabled": False}), output)
    assert (output.run_notes, output.mlflow_run_id) == ([], None)


def test_a_defect_in_a_stage_is_not_taken_for_mlflows(database: str, tmp_path: Path) -> None:
    def fail() -> None:
        with Tracker(make_params(), "collect", {}, Output(tmp_path)).stage_run():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


# -- small parts ------------------------------------------------------------------------------------------------
def test_flatten() -> None:
    nested = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None, "f": {}}
    assert flatten(nested) == {"a.b.c": 1, "a.d": [1, 2], "e": None, "f": {}}


def test_outside_git_there_is_no_sha_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "git_sha", lambda: None)
    assert "git_sha" not in Tracker(make_params(), "collect", {}, Output(tmp_path))._tags()


@pytest.mark.parametrize(("error", "status"), [(RuntimeError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_the_runs_of_a_stage_that_dies_end(logged: Logged, tmp_path: Path, error: type, status: str) -> None:
    opened: list[str] = []

    def die() -> None:
        with output_directory(tmp_path / "a", stage="train-agents", params={}) as out:
            tracker = Tracker(logged.params, "train-agents", {}, out)
            with tracker.stage_run() as run:
                assert run is not None
                finished = tracker.child_run(run, "preference seed 0", {})
                finished.end()
                opened.extend([finished.id, run.id, tracker.child_run(run, "preference seed 1", {}).id])
                raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URI, logged.uri)
        with pytest.raises(error):
            die()
    assert [logged.client.get_run(run).info.status for run in opened] == ["FINISHED", status, status]
