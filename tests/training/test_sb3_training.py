"""Agents trained by Stable-Baselines3: the files of Laurel's own, resumed where they stopped, paid what was planted."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq
import pytest
from probe_environments import RewardByAction, Targets, probe_id
from stopping import StoppedError, caption_reward, content

from laurel.arrays import FloatArray

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from stable_baselines3.common.logger import Logger

from laurel.agents.checkpoint import load_policy
from laurel.agents.episodes import LEAST
from laurel.agents.sb3.catalog import (
    ALGORITHMS,
    COUNTS,
    POSITIVE,
    SHARES,
    _check_value,
    algorithm_class,
    check_algorithm,
)
from laurel.agents.sb3.model import initial_sb3_policy
from laurel.data.json_file import read_json
from laurel.envs import adapter_for
from laurel.errors import DataError, ParamsError, TrainingError
from laurel.params import EnvParams
from laurel.params.sb3 import SB3Params
from laurel.params.training import ShapingParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import CaptionReward
from laurel.training import sb3 as sb3_training
from laurel.training.checkpoint import is_finished
from laurel.training.curve import CURVE_SCHEMA
from laurel.training.sb3 import train_sb3
from laurel.training.task import Task

pytestmark = pytest.mark.usefixtures("own_process")
FILES = {".run.json", "config.json", "curve.parquet", "model.safetensors", "optimizer.safetensors", "state.json"}
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}}
ON = {"n_steps": 16, **SMALL}
OFF = {"learning_starts": 40, "batch_size": 16, **SMALL}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "PPO": ("FrozenLake-v1", {"batch_size": 16, **ON}),
    "A2C": ("CartPole-v1", ON),
    "TRPO": ("FrozenLake-v1", {"batch_size": 16, **ON}),
    "DQN": ("CartPole-v1", {"target_update_interval": 50, **OFF}),
    "QRDQN": ("FrozenLake-v1", {"target_update_interval": 50, **OFF}),
    "SAC": ("Pendulum-v1", OFF),
    "TQC": ("Pendulum-v1", OFF),
    "TD3": ("MountainCarContinuous-v0", OFF),
    "DDPG": ("Pendulum-v1", OFF),
    "CrossQ": ("Pendulum-v1", OFF),
}


def make_task(algorithm: str, env_id: str | None = None, **changes: Any) -> Task:
    env, kwargs = KINDS[algorithm]
    settings = {"algorithm": algorithm, "n_envs": 2, "kwargs": {**kwargs, **changes.pop("kwargs", {})}}
    settings |= changes.pop("sb3", {})
    task = Task(
        arm="preference",
        seed=1,
        run_seed=5,
        env=EnvParams(id=env_id or env, backend="gymnasium", max_episode_steps=30),
        settings=SB3Params.model_validate(settings),
        shaping=ShapingParams(beta=1.0, quantile=0.0),
        steps=320,
        checkpoint_steps=64,
    )
    return replace(task, **changes)


def run(task: Task, directory: Path, reward: Reward | None = None, *, steps: int | None = None) -> int:
    """Train for some steps, or to the end; return how many were reported."""
    told: list[int] = []

    def advance(n: int) -> None:
        told.append(n)
        if steps is not None and sum(told) > steps:
            raise StoppedError

    try:
        train_sb3(task, adapter_for(task.env), reward, directory, advance)
    except StoppedError:
        assert steps is not None
    return sum(told)


def curve(directory: Path) -> list[dict[str, Any]]:
    return pq.read_table(directory / "curve.parquet").to_pylist()


@pytest.fixture(autouse=True)
def _short_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sb3_training, "CURVE_STEPS", 48)
    monkeypatch.setattr("laurel.agents.sb3.env.BLOCK", 7)


# -- resumption -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", KINDS)
def test_a_resumed_run_is_the_run_that_it_would_have_been(algorithm: str, tmp_path: Path) -> None:
    """To the bit, on the CPU: environments, episode counts, replay buffer, optimisers and random numbers."""
    task = make_task(algorithm)
    assert run(task, tmp_path / "whole", caption_reward()) == 320
    assert set(content(tmp_path / "whole")["files"]) == FILES
    run(task, tmp_path / "agent", caption_reward(), steps=150)
    stopped = read_json(tmp_path / "agent" / "state.json")
    assert not stopped["finished"]
    assert 64 <= stopped["env_steps"] <= 150
    run(task, tmp_path / "agent", caption_reward(), steps=260)
    assert run(task, tmp_path / "agent", caption_reward()) == 320
    assert content(tmp_path / "agent") == content(tmp_path / "whole")
    untouched = content(tmp_path / "whole")
    run(task, tmp_path / "whole", caption_reward())
    assert content(tmp_path / "whole") == untouched, "a finished agent is left as it is"


@pytest.mark.parametrize("algorithm", ["PPO", "SAC", "DQN"])
def test_the_seed_determines_the_run(algorithm: str, tmp_path: Path) -> None:
    task = make_task(algorithm, steps=96)
    for name, job in {"a": task, "b": task, "seed": replace(task, seed=2), "run": replace(task, run_seed=6)}.items():
        run(job, tmp_path / name)
    models = {name: content(tmp_path / name)["model"] for name in ("a", "b", "seed", "run")}
    assert models["a"] == models["b"]
    assert len(set(models.values())) == 3


def test_what_a_checkpoint_holds(tmp_path: Path) -> None:
    run(make_task("SAC"), tmp_path / "agent", steps=150)
    assert {file.name for file in (tmp_path / "agent").iterdir()} == FILES | {
        "actions.safetensors",
        "replay.safetensors",
    }
    assert not is_finished(tmp_path / "agent")
    load_policy(tmp_path / "agent")
    for file in (tmp_path / "agent").iterdir():
        assert b"cpickle" not in file.read_bytes().lower()
        assert oct(file.stat().st_mode & 0o777) == oct(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


@pytest.mark.parametrize("harm", [cut, Path.unlink])
@pytest.mark.parametrize("file", sorted(FILES - {".run.json"} | {"actions.safetensors", "replay.safetensors"}))
def test_a_damaged_checkpoint_is_refused(file: str, harm: Callable[[Path], Any], tmp_path: Path) -> None:
    run(make_task("SAC"), tmp_path / "agent", steps=150)
    harm(tmp_path / "agent" / file)
    with pytest.raises(DataError) as caught:
        run(make_task("SAC"), tmp_path / "agent")
    assert str(tmp_path / "agent") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["curve.parquet", "model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_agent_is_refused_although_it_is_finished(file: str, tmp_path: Path) -> None:
    """It would be published, and found only when the agents of all arms are evaluated."""
    run(make_task("SAC"), tmp_path / "agent")
    cut(tmp_path / "agent" / file)
    with pytest.raises(DataError, match=r"agent: not a complete checkpoint .*Delete it to train this agent again"):
        is_finished(tmp_path / "agent")


def test_a_checkpoint_of_another_agent_is_refused(tmp_path: Path) -> None:
    run(make_task("SAC"), tmp_path / "agent", steps=150)
    with pytest.raises(DataError, match=r"agent: not a complete checkpoint .*Delete it to train this agent again"):
        run(make_task("SAC", kwargs={"policy_kwargs": {"net_arch": [9]}}), tmp_path / "agent")


# -- the curve --------------------------------------------------------------------------------------------------
def test_a_curve_is_like_that_of_laurels_own(tmp_path: Path) -> None:
    run(make_task("PPO"), tmp_path / "agent", caption_reward())
    assert pq.read_schema(tmp_path / "agent" / "curve.parquet").equals(CURVE_SCHEMA)
    rows = curve(tmp_path / "agent")
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] == 320
    assert sum(row["episodes"] for row in rows) > 10
    assert all((row["return_mean"] is not None) == (row["window"] >= LEAST) for row in rows[:-1])
    assert rows[-1]["return_mean"] is not None, "a short run has no more episodes than it has"
    assert all(row["raw_reward"] is not None and row["share_paid"] is not None for row in rows)
    assert all(np.isfinite(row[name]) for row in rows for name in ("policy", "value", "entropy", "approx_kl"))
    assert all(row["entropy"] > 0 for row in rows)
    run(make_task("SAC"), tmp_path / "sac")
    last = curve(tmp_path / "sac")[-1]
    assert last["raw_reward"] is last["clip_fraction"] is None, "what is not known is null"
    assert np.isfinite(last["policy"])


def test_the_policys_figure_is_a_loss_whatever_the_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRPO logs what it maximises."""
    logged: list[float] = []
    record = Logger.record

    def spy(self: Logger, key: str, value: Any, *rest: Any, **more: Any) -> None:
        logged.extend([float(value)] if key == "train/policy_objective" else [])
        record(self, key, value, *rest, **more)

    monkeypatch.setattr(Logger, "record", spy)
    run(make_task("TRPO"), tmp_path / "agent")
    assert logged[-1] != 0
    assert curve(tmp_path / "agent")[-1]["policy"] == -logged[-1]


def test_all_steps_are_reported(tmp_path: Path) -> None:
    task = make_task("PPO", steps=100)  # whole rollouts are more
    assert run(task, tmp_path / "a") == 100
    assert read_json(tmp_path / "a" / "state.json")["env_steps"] == 128
    assert run(task, tmp_path / "a") == 100


def test_training_begins_with_the_untrained_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same for all arms, and leaves the global random state unchanged."""
    import torch

    task = make_task("SAC", kwargs={"learning_starts": 10**6})
    before = torch.get_rng_state()
    about = {"run_seed": task.run_seed, "seed": task.seed, "steps": task.steps, "device": task.device}
    first = initial_sb3_policy(task.env, adapter_for(task.env), task.settings, **about)
    assert torch.equal(torch.get_rng_state(), before)
    run(task, tmp_path / "agent")
    found = load_policy(tmp_path / "agent").state_dict()
    assert all(torch.equal(found[name], weights) for name, weights in first.state_dict().items())


def test_no_temporary_directory_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stable-Baselines3's own logger makes one for each agent."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    run(make_task("PPO", steps=64), tmp_path / "agent")
    assert not list(scratch.glob("SB3*"))


# -- planted rewards --------------------------------------------------------------------------------------------
def test_a_known_reward_is_recovered(tmp_path: Path) -> None:
    """The environment rewards action 1; a caption reward for the other action, used alone, teaches the other."""
    env_id = probe_id(RewardByAction)
    kwargs = {"n_steps": 16, "learning_rate": 0.02, "policy_kwargs": {"net_arch": [8]}}
    task = make_task("A2C", env_id, kwargs=kwargs, steps=3000, checkpoint_steps=10**6)
    adapter = adapter_for(task.env, with_action=True)

    def score(texts: list[str]) -> FloatArray:
        return np.array([1.0 if "negative" in text else -1.0 for text in texts], dtype=np.float32)

    weights = ShapingParams(beta=0.0, intrinsic=1.0, extrinsic=0.0)
    learned = replace(task, shaping=weights)
    train_sb3(learned, adapter, CaptionReward({"": 0.0}, 0.0, score), tmp_path / "learned", lambda _: None)
    train_sb3(task, adapter, None, tmp_path / "plain", lambda _: None)
    assert curve(tmp_path / "learned")[-1]["return_mean"] < -0.8
    assert curve(tmp_path / "learned")[-1]["share_paid"] > 0.9
    assert curve(tmp_path / "plain")[-1]["return_mean"] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["SAC", "TD3"])
def test_continuous_actions_learn_their_targets(algorithm: str, tmp_path: Path) -> None:
    """The action that equals the target is best, in the environment's units: bounds of 2, scaled to 1 and back."""
    kwargs = {"learning_starts": 200, "batch_size": 64, "learning_rate": 0.003, "policy_kwargs": {"net_arch": [32]}}
    sb3 = {"noise": 0.2} if algorithm == "TD3" else {}
    task = make_task(algorithm, probe_id(Targets), kwargs=kwargs, sb3=sb3, steps=4000, checkpoint_steps=10**6)
    adapter = adapter_for(task.env)
    train_sb3(task, adapter, None, tmp_path / "agent", lambda _: None)
    policy = load_policy(tmp_path / "agent")
    action, _, _ = policy.act(
        adapter.features(np.array([[0], [1]], dtype=adapter.observation_dtype)), np.random.default_rng(0), greedy=True
    )
    np.testing.assert_allclose(action[:, 0], [-0.5, 0.5], atol=0.15)


def test_a_diverging_run_is_reported(tmp_path: Path) -> None:
    for algorithm, rate in (("PPO", 1e30), ("SAC", 1e30)):
        task = make_task(algorithm, kwargs={"learning_rate": rate})
        with pytest.raises(
            TrainingError, match=r"preference seed 1: training diverged .*agent\.sb3\.kwargs\.learning_rate"
        ):
            run(task, tmp_path / algorithm)


# -- what cannot be ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("algorithm", "env_id", "sb3", "sentence"),
    [
        (
            "SAC",
            "CartPole-v1",
            {},
            r"SAC needs Box spaces, .* Discrete\(2\)\. A2C, DQN, PPO, QRDQN, TRPO support it\.",
        ),
        ("DQN", "Pendulum-v1", {}, r"DQN needs Discrete spaces, .* Box"),
        ("SAC", None, {"kwargs": {"gama": 0.9}}, r'SAC has no argument gama. Did you mean "gamma"\?'),
        ("SAC", None, {"kwargs": {"train_freq": "often"}}, r"train_freq is \"often\", but must be a whole number"),
        ("SAC", None, {"kwargs": {"train_freq": [1, "often"]}}, r"train_freq is .*, but must be .*\[1, episode\]"),
        ("SAC", None, {"kwargs": {"train_freq": [0, "step"]}}, r"train_freq is .*, but must be .*, 1 or more"),
        ("SAC", None, {"kwargs": {"train_freq": [1, "episode"]}}, r"agent\.sb3\.n_envs is 2\. Set that to 1"),
        ("SAC", None, {"kwargs": {"batch_size": [32]}}, r"batch_size is .*, but must be a whole number, such as 256"),
        (
            "SAC",
            None,
            {"kwargs": {"batch_size": 32.5}},
            r"batch_size is 32\.5, but must be a whole number, such as 256",
        ),
        ("SAC", None, {"kwargs": {"batch_size": -3}}, r"batch_size is -3, but must be 1 or more, such as 256"),
        ("SAC", None, {"kwargs": {"train_freq": 0}}, r"train_freq is 0, but must be 1 or more, such as 1"),
        ("SAC", None, {"kwargs": {"gamma": 2}}, r"gamma is 2, but must be from 0 to 1, such as 0\.99"),
        ("SAC", None, {"kwargs": {"learning_rate": 0.0}}, r"learning_rate is 0\.0, but must be more than 0, such as"),
        ("SAC", None, {"kwargs": {"tau": "0,1"}}, r'tau is "0,1", but must be a number, such as 0\.005'),
        ("SAC", None, {"kwargs": {"use_sde": 1}}, r"use_sde is 1, but must be true or false, such as false"),
        ("SAC", None, {"kwargs": {"policy_kwargs": {"activation_fn": "os.system"}}}, r"activation_fn is 'os\.system'"),
        ("SAC", None, {"kwargs": {"policy_kwargs": {"net_arhc": [3]}}}, r"SAC cannot be made with these arguments"),
        ("DQN", "CartPole-v1", {"kwargs": {"buffer_size": 10**13}}, r"DQN does not fit into memory: .*buffer_size"),
        ("PPO", "CartPole-v1", {"kwargs": {"n_steps": 10**13}}, r"PPO does not fit into memory: .*n_steps"),
        ("PPO", None, {"noise": 0.1}, r"agent\.sb3\.noise is 0\.1, but PPO does not support action noise"),
    ],
)
def test_what_cannot_be_trained_says_why(
    algorithm: str, env_id: str | None, sb3: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ParamsError, match=sentence) as caught:
        run(make_task(algorithm, env_id, sb3=sb3), tmp_path / "agent")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "agent").exists()


@pytest.mark.parametrize("name", [*COUNTS, *POSITIVE, *SHARES])
def test_ranges_name_existing_arguments(name: str) -> None:
    defaults = [
        inspect.signature(algorithm_class(algorithm).__init__).parameters[name].default
        for algorithm in ALGORITHMS
        if name in inspect.signature(algorithm_class(algorithm).__init__).parameters
    ]
    assert defaults
    for default in defaults:
        if default is not None:
            _check_value(name, default, default)


@pytest.mark.parametrize(
    ("space", "needed"),
    [
        (gym.spaces.Box(-np.inf, np.inf, (2,)), "bounded Box spaces"),
        (gym.spaces.Box(-1.0, 1.0, (2, 2)), "spaces of one dimension"),
        (gym.spaces.Discrete(3, start=1), "Discrete spaces from 0 on"),
        (gym.spaces.MultiDiscrete([2, 2]), "Discrete and Box spaces"),
    ],
)
def test_action_spaces_without_an_algorithm(space: gym.Space[Any], needed: str) -> None:
    with pytest.raises(ParamsError, match=f"PPO needs {needed}, but .*Wrap the environment"):
        check_algorithm(SB3Params(algorithm="PPO"), space)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = adapter_for(EnvParams(id="Pendulum-v1")).action_space

    def gone(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", gone)
    with pytest.raises(ParamsError, match=r"needs the package sb3_contrib, which is not installed\. Run pip install"):
        check_algorithm(SB3Params(algorithm="TQC"), space)
