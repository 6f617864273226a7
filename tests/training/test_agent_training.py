"""Training of one agent and of several in lockstep: what makes a run what it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from probe_environments import RewardByAction, probe_id
from stopping import StoppedError, caption_reward, content, curve, make_task, run

from laurel.agents.algorithms import initial_policy
from laurel.agents.episodes import LEAST
from laurel.agents.ppo import OnPolicyRollout
from laurel.agents.stacked_ppo import PPOGroup
from laurel.data.json_file import read_json
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import VectorEnv
from laurel.errors import TrainingError
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward
from laurel.training.curve import CURVE_SCHEMA, joined
from laurel.training.loop import train_together
from laurel.training.task import Assignment


@pytest.fixture(scope="module")
def frozen_lake() -> EnvAdapter:
    return adapter_for(EnvParams(id="FrozenLake-v1"))


def test_a_curve_has_a_row_an_update(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", caption_reward())
    assert pq.read_schema(tmp_path / "agent" / "curve.parquet").equals(CURVE_SCHEMA)
    rows = curve(tmp_path / "agent")
    assert [row["env_steps"] for row in rows] == list(range(48, 385, 48))
    assert sum(row["episodes"] for row in rows) > 10
    assert all(np.isfinite(row["policy"]) and row["raw_reward"] is not None for row in rows)
    run(make_task(), frozen_lake, tmp_path / "plain")
    assert all(row["raw_reward"] is None for row in curve(tmp_path / "plain"))


def test_a_short_run_ends_with_the_means_of_the_few_episodes_that_it_has(
    tmp_path: Path, frozen_lake: EnvAdapter
) -> None:
    run(make_task(steps=96), frozen_lake, tmp_path / "agent")
    before, last = curve(tmp_path / "agent")
    assert before["return_mean"] is None
    assert last["return_mean"] is not None
    assert 0 < last["window"] < LEAST


def test_rows_of_a_curve_are_joined_to_sums_means_and_the_last() -> None:
    row = {"env_steps": 1, "episodes": 2, "window": 2, "return_mean": 0.5, "length_mean": None, "success_rate": None}
    first, second = {**row, "policy": 1.0, "value": None}, {**row, "env_steps": 2, "episodes": 3, "policy": 3.0}
    found = joined([first, {**second, "return_mean": 1.0, "value": 4.0}])
    assert found == {**row, "env_steps": 2, "episodes": 5, "return_mean": 1.0, "policy": 2.0, "value": 4.0}


def test_an_update_that_learned_nothing_takes_no_figure_from_its_row_of_a_curve() -> None:
    """Its metrics are missing or NaN."""
    row = {"env_steps": 1, "episodes": 2, "window": 2, "return_mean": 0.5, "length_mean": None, "success_rate": None}
    learned = {**row, "policy": 1.0, "explained_variance": math.nan, "value": math.nan}
    found = joined([learned, {**row, "policy": 3.0, "explained_variance": 0.5, "value": math.nan}, row])
    assert (found["policy"], found["explained_variance"]) == (2.0, 0.5)
    assert math.isnan(found["value"]), "no update has one"


def test_arms_with_the_same_seed_have_the_same_initial_weights(frozen_lake: EnvAdapter) -> None:
    """Same weights and same environments, so that later differences are due to the reward."""
    before = torch.random.get_rng_state()
    first, same, seed, run_seed = (
        initial_policy(frozen_lake, PPOParams(hidden=(8,)), *seeds).state_dict()
        for seeds in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert torch.equal(torch.random.get_rng_state(), before), "the global random state is unchanged"
    assert all(torch.equal(first[name], same[name]) for name in first)
    for other in (seed, run_seed):
        assert not torch.equal(first["actor.0.weight"], other["actor.0.weight"])


def test_seeds_determine_the_run(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    tasks = {
        "one": make_task(steps=48),
        "again": make_task(steps=48),
        "arm": make_task(steps=48, arm="extrinsic"),
        "seed": make_task(steps=48, seed=2),
        "run": make_task(steps=48, run_seed=6),
    }
    for name, task in tasks.items():
        run(task, frozen_lake, tmp_path / name)
    model = {name: content(tmp_path / name)["model"] for name in tasks}
    assert model["one"] == model["again"] == model["arm"]
    assert len({model["one"], model["seed"], model["run"]}) == 3


def test_the_learning_rate_falls_to_zero_also_across_a_stop(
    tmp_path: Path, frozen_lake: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    original = PPOGroup.learn

    def noted(self: PPOGroup, rollouts: Sequence[OnPolicyRollout]) -> Any:
        rates.append(self.learners[0].learning_rate)
        return original(self, rollouts)

    monkeypatch.setattr(PPOGroup, "learn", noted)
    task = make_task(ppo={"anneal": True, "learning_rate": 0.8}, steps=4 * 48, checkpoint_steps=48)
    run(task, frozen_lake, tmp_path / "agent", updates=2)
    run(task, frozen_lake, tmp_path / "agent")
    assert rates == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_replayed_steps_are_those_that_were_taken(
    tmp_path: Path, frozen_lake: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bytes] = []
    original = VectorEnv.end_step

    def noted(self: VectorEnv) -> Any:
        step = original(self)
        assert self._actions is not None
        taken.append(self._actions.tobytes() + step.observation.tobytes())
        return step

    monkeypatch.setattr(VectorEnv, "end_step", noted)
    run(make_task(), frozen_lake, tmp_path / "agent", updates=4)
    first, taken = taken, []
    run(make_task(), frozen_lake, tmp_path / "agent", updates=1)
    assert taken[: 4 * 16] == first


@pytest.mark.parametrize(
    ("steps", "checkpoint_steps", "updates", "per_checkpoint"),
    [(48, 48, 1, 1), (1, 1, 1, 1), (49, 100, 2, 2), (480, 10**6, 10, 20833), (96, 47, 2, 1)],
)
def test_steps_are_whole_updates(steps: int, checkpoint_steps: int, updates: int, per_checkpoint: int) -> None:
    task = make_task(steps=steps, checkpoint_steps=checkpoint_steps)
    assert (task.updates, task.total_steps) == (updates, updates * 48)
    assert task.updates_per_checkpoint == per_checkpoint


def test_the_learned_reward_determines_the_policy(tmp_path: Path) -> None:
    """The environment rewards action 1; a caption reward for the other action, used alone, teaches the other."""
    env = EnvParams(id=probe_id(RewardByAction), backend="gymnasium")
    adapter = adapter_for(env, with_action=True)
    shaping = ShapingParams(beta=0.0, intrinsic=1.0, extrinsic=0.0)
    task = make_task(
        env.id, steps=30 * 48, checkpoint_steps=10**6, shaping=shaping, ppo={"learning_rate": 0.01, "n_epochs": 4}
    )

    def score(texts: list[str]) -> np.ndarray:
        return np.array([1.0 if "negative" in text else -1.0 for text in texts], dtype=np.float32)

    run(task, adapter, tmp_path / "learned", CaptionReward({"": 0.0}, 0.0, score))
    run(task, adapter, tmp_path / "extrinsic")
    assert curve(tmp_path / "learned")[-1]["return_mean"] < -0.8
    assert curve(tmp_path / "learned")[-1]["share_paid"] > 0.9
    plain = replace(task, shaping=ShapingParams())
    run(plain, adapter, tmp_path / "plain")
    assert curve(tmp_path / "plain")[-1]["return_mean"] > 0.8


def test_an_algorithms_own_error_names_the_agents(
    tmp_path: Path, frozen_lake: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(*_: object) -> None:
        raise TrainingError("Round 2: nothing can be read.")

    monkeypatch.setattr(PPOGroup, "learn", learn)
    agents = [Assignment(make_task(seed=seed), None, tmp_path / str(seed)) for seed in (1, 2)]
    with pytest.raises(
        TrainingError, match=r"^preference seed 1 or preference seed 2: Round 2: nothing can be read\.$"
    ):
        train_together(agents, frozen_lake, lambda _: None)


def test_a_diverging_run_is_reported_and_leaves_no_environment_open(
    tmp_path: Path, frozen_lake: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[VectorEnv] = []
    begun = VectorEnv.reset
    monkeypatch.setattr(VectorEnv, "reset", lambda envs: opened.append(envs) or begun(envs))
    task = make_task(ppo={"learning_rate": 1e30})
    with pytest.raises(TrainingError, match=r"preference seed 1: training diverged .*agent\.ppo\.learning_rate"):
        run(task, frozen_lake, tmp_path / "agent")
    assert opened
    assert all(envs._closed for envs in opened)


def test_rewards_whose_returns_are_infinite_are_reported(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    """PPO normalises advantages: only the value's loss becomes infinite, and the policy stays as it was."""
    reward = CaptionReward({"": 1e38}, 0.0, lambda texts: np.full(len(texts), 1e38, np.float32))
    said = r"diverged .*the reward's weights"
    with pytest.warns(RuntimeWarning, match="overflow"), pytest.raises(TrainingError, match=said):
        run(make_task(), frozen_lake, tmp_path / "agent", reward)


# -- several ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_agents_in_lockstep_are_the_same_as_alone(env: str, tmp_path: Path) -> None:
    """Bit-identical, also if resumed from different checkpoints, with and without a learned reward."""
    tasks = {name: make_task(env, seed=seed) for seed, name in enumerate("abcd")}
    rewards = {"a": caption_reward, "b": lambda: None, "c": caption_reward, "d": lambda: None}
    adapter = adapter_for(tasks["a"].env)
    for name, task in tasks.items():
        run(task, adapter, tmp_path / "alone" / name, rewards[name]())
    for name in "cd":
        run(tasks[name], adapter, tmp_path / "together" / name, rewards[name](), updates=3)
    told: list[int] = []
    agents = [Assignment(task, rewards[name](), tmp_path / "together" / name) for name, task in tasks.items()]
    train_together(agents, adapter, told.append)
    assert told[:2] == [2 * 2 * 48, 2 * 48], "two had two updates behind them"
    assert sum(told) == sum(task.total_steps for task in tasks.values())
    for name in tasks:
        assert content(tmp_path / "together" / name) == content(tmp_path / "alone" / name), name


def test_stopping_during_lockstep_leaves_every_checkpoint_whole(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    tasks = [make_task(seed=seed) for seed in range(3)]
    for task in tasks:
        run(task, frozen_lake, tmp_path / "alone" / str(task.seed), caption_reward())

    def agents() -> list[Assignment]:
        return [Assignment(task, caption_reward(), tmp_path / "together" / str(task.seed)) for task in tasks]

    told: list[int] = []

    def stop(n: int) -> None:
        told.append(n)
        if len(told) == 6:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_together(agents(), frozen_lake, stop)
    assert [read_json(tmp_path / "together" / str(seed) / "state.json")["update"] for seed in range(3)] == [4, 4, 4]
    train_together(agents(), frozen_lake, lambda n: None)
    for seed in "012":
        assert content(tmp_path / "together" / seed) == content(tmp_path / "alone" / seed)


def test_one_of_a_group_may_be_finished(tmp_path: Path, frozen_lake: EnvAdapter) -> None:
    """Where the process was killed between the last checkpoints of its agents."""
    tasks = [make_task(seed=seed) for seed in range(2)]
    for task in tasks:
        run(task, frozen_lake, tmp_path / "alone" / str(task.seed), caption_reward())
    run(tasks[0], frozen_lake, tmp_path / "together" / "0", caption_reward(), updates=5)
    run(tasks[1], frozen_lake, tmp_path / "together" / "1", caption_reward())
    agents = [Assignment(task, caption_reward(), tmp_path / "together" / str(task.seed)) for task in tasks]
    train_together(agents, frozen_lake, lambda n: None)
    for seed in "01":
        assert content(tmp_path / "together" / seed) == content(tmp_path / "alone" / seed)
