import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from laurel.agents.checkpoint import load_policy
from laurel.errors import DataError, LaurelError, ParamsError, WorkerError
from laurel.rewards.method import Inputs, RewardContext
from laurel.stages import train_agents
from laurel.stages.pipeline import STAGE
from laurel.stages.train_agents import divide, job_of
from laurel.training.arms import train_arms
from laurel.training.loop import train_together
from tiny_project import UNTRACKED, Project, lasting_content, read_json

ONE = {**UNTRACKED, "arms": ["preference"], "agent.seeds": [0], "agent.steps": 512}


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A project with a reward model but without agents."""
    return finished.copy(tmp_path / "p", ONE, without=["train-agents"])


def manifest(project: Project) -> dict[str, Any]:
    return read_json(project.output("train-agents") / "manifest.json")


def test_every_arm_and_seed_has_an_agent(finished: Project) -> None:
    out = finished.output("train-agents")
    assert sorted(path.name for path in out.iterdir()) == [".run.json", "extrinsic", "manifest.json", "preference"]
    for arm in ("extrinsic", "preference"):
        assert sorted(path.name for path in (out / arm).iterdir()) == ["seed-0", "seed-1"]
        for seed in (0, 1):
            place = out / arm / f"seed-{seed}"
            files = [
                ".run.json",
                "config.json",
                *(["credit.parquet"] if arm == "preference" else []),
                "curve.parquet",
                "model.safetensors",
                "optimizer.safetensors",
                "state.json",
            ]
            assert sorted(path.name for path in place.iterdir()) == files
            state, config = read_json(place / "state.json"), read_json(place / "config.json")
            assert (state["finished"], state["env_steps"]) == (True, 2048)
            assert (config["arm"], config["seed"]) == (arm, seed)
            load_policy(place)
    assert manifest(finished)["counts"] == {"arms": 2, "seeds": 2, "steps_each": 2048}


def test_results_do_not_depend_on_the_number_of_workers(project: Project, finished: Project) -> None:
    project.change({"arms": ["extrinsic", "preference"], "agent.steps": 2048, "agent.workers": 3})
    project.run("train-agents")
    before, after = (lasting_content(p.output("train-agents")) for p in (finished, project))
    seed_0 = [name for name in before if "seed-0" in name]
    assert len(seed_0) == 11, "credit is kept of the arm that is paid a reward"
    assert [name for name in seed_0 if before[name] != after[name]] == []
    assert "workers" not in manifest(project)["params"]["agent"]


def test_a_missing_oracle_is_left_out_and_reported(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.envs.minigrid.MiniGridAdapter.oracle", lambda self, text: None)
    project.change({"arms": ["oracle", "random_policy"]})
    project.run("train-reward", "train-agents")
    assert manifest(project)["notes"] == [
        "The arm oracle was left out: MiniGrid-Empty-5x5-v0 has no hand-written progress."
    ]
    assert sorted(path.name for path in project.output("train-agents").iterdir()) == [".run.json", "manifest.json"]
    project.change({"arms": ["oracle"]})
    with pytest.raises(ParamsError, match=r"arms: no arm is left"):
        project.run("train-agents")
    stage = STAGE["train-agents"]
    sections, inputs = stage.given(project.params), project.inputs("train-agents")
    train_agents.run(**sections, **inputs, output=project.output("train-agents"), branch=True)
    assert len(manifest(project)["notes"]) == 1, "the arms that are trained elsewhere are enough"


def test_agents_that_never_began_to_learn_are_named(project: Project) -> None:
    short = {"agent.steps": 128, "agent.checkpoint_steps": 128}
    project.change({**short, "agent.algorithm": "dqn", "agent.dqn": {"learning_starts": 200, "hidden": [8]}})
    project.run("train-agents")
    assert manifest(project)["notes"] == [
        "preference seed 0 never had enough to learn from: their weights are the initial ones. Raise "
        "agent.steps, or lower n_envs or learning_starts of agent.dqn."
    ]
    project.change({"agent.dqn": {"learning_starts": 64, "hidden": [8]}})
    project.run("train-agents")
    assert manifest(project)["notes"] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "entirely on the GPU: MiniGrid-Empty-5x5-v0 ran there"),
        ({"env.backend": "gymnasium"}, "-5x5-v0 ran on the CPU"),
        (
            {"agent.ppo.episodic": False},
            "-5x5-v0 ran on the CPU: environments run on the GPU only for PPO with an MLP, epi",
        ),
    ],
)
def test_what_ran_on_a_gpu_is_reported(
    changes: dict[str, Any], said: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage believes that there is a GPU; its workers find none, and take the CPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    project.change({"agent.device": "auto", **changes})
    project.run("train-agents")
    (note,) = manifest(project)["notes"]
    assert said in note


def test_all_arms_are_trained_at_once_where_environments_are_tensors(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_process: None
) -> None:
    """As on a GPU, but on tensors of the CPU: arms with rewards of all kinds and none, in one group."""
    monkeypatch.setattr("laurel.training.loop.train_together", partial(train_together, tensors=True))
    arms = ["extrinsic", "preference", "intrinsic_only", "random_reward", "shuffled_labels", "oracle"]
    project.change({"arms": arms, "agent.seeds": [0, 1]})
    project.run("train-reward")
    params = project.params
    agents = [
        (arm, seed, tmp_path / arm.name / f"seed-{seed}") for seed in (0, 1) for arm in params.resolved_arms.values()
    ]
    train_arms(
        params.seed, RewardContext.of(params), agents, Inputs(**project.inputs("train-agents")), lambda steps: None
    )
    ends = {}
    for arm, seed, place in agents:
        state = read_json(place / "state.json")
        assert (state["finished"], state["backend"]) == (True, "tensors")
        shaped = [row["shaped_reward"] for row in pq.read_table(place / "curve.parquet").to_pylist()]
        assert [reward is None for reward in shaped] == [arm.name == "extrinsic"] * len(shaped)
        load_policy(place)
        ends[arm.name, seed] = (place / "model.safetensors").read_bytes()
    assert len(set(ends.values())) == len(agents)


def test_finished_agents_are_not_trained_again(project: Project, finished: Project) -> None:
    project.run("train-agents")
    done, out = project.output("train-agents"), project.output("train-agents").parent
    trained_for = read_json(done / "preference/seed-0/.run.json")["seconds"]
    project.change({"arms": ["preference", "extrinsic"]})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("laurel.pool.run_jobs", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            project.run("train-agents")
    (partial,) = out.glob(".agents.*.partial")
    shutil.copytree(done / "preference", partial / "preference")
    for leftover in ("preference/.seed-0.previous", "preference/.seed-0.writing"):
        shutil.copytree(done / "preference/seed-0", partial / leftover)
    project.run("train-agents")
    assert read_json(done / "preference/seed-0/.run.json")["seconds"] == trained_for
    assert sorted(path.name for path in (done / "preference").iterdir()) == ["seed-0"], "leftovers are gone"
    assert sorted(path.name for path in done.iterdir()) == [".run.json", "extrinsic", "manifest.json", "preference"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 9))
def test_agents_are_divided_evenly(n: int, workers: int, largest: int) -> None:
    agents = [("extrinsic", seed, Path(str(seed))) for seed in range(n)]
    groups = divide(agents, workers, largest)
    assert [agent for group in groups for agent in group] == agents
    assert all(0 < len(group) <= largest for group in groups)
    assert len(groups) <= workers * -(-n // (workers * largest)), "no more turns than need be"
    assert max(map(len, groups), default=0) - min(map(len, groups), default=0) <= 1


def test_the_steps_that_an_earlier_run_did_are_known_before_a_process_reports_them(
    finished: Project, tmp_path: Path
) -> None:
    arms, done = finished.params.resolved_arms, finished.output("train-agents")
    agents = [(arms["preference"], 0, done / "preference/seed-0"), (arms["extrinsic"], 0, tmp_path / "new")]
    inputs = Inputs(tmp_path, tmp_path, tmp_path)
    job = job_of("both", print, (0, RewardContext.of(finished.params), agents, inputs))
    assert (job.units, job.before, job.kind) == (4096, 2048, "extrinsic, preference")


def test_a_worker_that_dies_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.training.arms.train_arms", _die)
    with pytest.raises(WorkerError, match=r"preference seed 0: its process died \(killed by signal 9 .*run the same"):
        project.run("train-agents")
    assert not project.output("train-agents").exists()


def _die(*_: Any) -> None:
    os.kill(os.getpid(), 9)


def test_what_a_worker_refuses_is_passed_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.training.arms.train_arms", _refuse)
    with pytest.raises(LaurelError, match=r"^this and that$"):
        project.run("train-agents")


def _refuse(*_: Any) -> None:
    raise ParamsError("this and that")


@pytest.mark.parametrize("described", [False, True])
def test_an_error_of_the_operating_system_in_training_is_not_taken_for_mlflows(
    described: bool, project: Project, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    def gone(*_: Any) -> None:
        raise MlflowException("gone")

    monkeypatch.setattr("laurel.pool.Workers.start", exhausted)
    if not described:
        monkeypatch.setattr("laurel.tracking.run.Run.describe", gone)
    project.change({"tracking.enabled": True})
    with pytest.raises(BlockingIOError):
        project.run("train-agents")
    assert not project.output("train-agents").exists()
    client = MlflowClient(database)
    (run,) = client.search_runs([client.get_experiment_by_name("laurel").experiment_id])
    assert run.info.status == "FAILED"


def test_the_runs_of_a_killed_training_end_if_it_is_not_resumed(project: Project, database: str) -> None:
    """As after SIGKILL: the stage had no chance to say anything to MLflow."""

    class KilledError(Exception):
        pass

    def killed(*_: Any) -> None:
        raise KilledError

    project.change({"tracking.enabled": True})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laurel.pool.Workers.start", killed)
        patch.setattr("laurel.tracking.tracker.Tracker.abandon", lambda *_, **__: None)
        with pytest.raises(KilledError):
            project.run("train-agents")
    client = MlflowClient(database)
    experiment = client.get_experiment_by_name("laurel").experiment_id
    (dead,) = client.search_runs([experiment])
    child = client.create_run(experiment, tags={"mlflow.parentRunId": dead.info.run_id}).info.run_id
    assert dead.info.status == "RUNNING"
    project.change({"agent.steps": 256})
    project.run("train-agents")
    ended = [client.get_run(run).info for run in (dead.info.run_id, child)]
    assert [run.status for run in ended] == ["KILLED", "KILLED"]
    assert ended[0].end_time - dead.info.start_time < 60_000, "when it worked last"
    after = [run.info.status for run in client.search_runs([experiment])]
    assert sorted(after) == ["FINISHED", "FINISHED", "KILLED", "KILLED"]


def test_shuffled_labels_need_captions(project: Project) -> None:
    project.change({"rewards.preference.input": "observation", "arms": ["shuffled_labels", "random_policy"]})
    project.run("train-reward", "train-agents")
    assert manifest(project)["notes"] == [
        'The arm shuffled_labels was left out: it needs rewards.preference.input "caption".'
    ]


def test_a_reward_learned_from_other_preferences_is_refused(project: Project) -> None:
    project.change({"annotate.n_pairs": 10})
    project.run("annotate")
    with pytest.raises(DataError, match=r"reward: was made with annotate\.n_pairs 200, but it is 10\."):
        project.run("train-agents")
    project.change({"rewards.preference.hidden": [8]})
    project.run("train-reward")
    project.change({"rewards.preference.hidden": [9]})
    with pytest.raises(DataError, match=r"reward: was made with rewards\.preference\.hidden \[8\], but it is \[9\]\."):
        project.run("train-agents")
