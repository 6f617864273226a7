"""Environments as Stable-Baselines3 gets them: which observation is an episode's last, what ended it, what is paid."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_environments import Countdown, RewardByBoth, Steady, probe_id

from laurel.arrays import FloatArray

pytest.importorskip("stable_baselines3")

from laurel.agents.episodes import Episodes
from laurel.agents.learner import Rollout
from laurel.agents.sb3.env import FeatureEnvs, LearnedRewardEnvs, PackedEnvs
from laurel.envs import adapter_for, make_reference
from laurel.envs.base import EnvAdapter
from laurel.params import EnvParams
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward
from laurel.seeding import derive_seed
from laurel.training.pay import TrainingReward


def made(env_id: str, n_envs: int = 1, **env: Any) -> tuple[PackedEnvs, EnvAdapter]:
    params = EnvParams(id=env_id, backend=env.pop("backend", "gymnasium"), **env)
    adapter = adapter_for(params)
    return PackedEnvs(params, adapter, n_envs, seed=0), adapter


def paid_by_words() -> CaptionReward:
    def score(texts: list[str]) -> FloatArray:
        return np.array([len(text) % 7 - 2 for text in texts], dtype=np.float32)

    return CaptionReward({}, 0.0, score)


# -- the end of an episode --------------------------------------------------------------------------------------
def test_a_terminal_observation_is_the_episodes_last() -> None:
    envs, _ = made(probe_id(Countdown), 2)
    assert envs.reset().tolist() == [[0], [0]]
    for round_ in range(3):
        for step in range(1, Countdown.STEPS):
            observation, reward, done, infos = envs.step(np.zeros(2, np.int64))
            assert observation.tolist() == [[step]] * 2, f"no step is lost to the reset, episode {round_}"
            assert (reward.tolist(), done.tolist(), infos) == ([1.0, 1.0], [False, False], [{}, {}])
        observation, reward, done, infos = envs.step(np.zeros(2, np.int64))
        assert observation.tolist() == [[0], [0]], "the first of the next episode"
        assert (reward.tolist(), done.tolist()) == ([1.0, 1.0], [True, True])
        for info in infos:
            assert info["terminal_observation"].tolist() == [Countdown.STEPS]
            assert info["TimeLimit.truncated"] is False


def test_truncation_is_not_termination() -> None:
    envs, _ = made(probe_id(Steady), max_episode_steps=4)
    envs.reset()
    for _ in range(2):
        ends = [envs.step(np.zeros(1, np.int64)) for _ in range(4)]
        assert [done[0] for _, _, done, _ in ends] == [False, False, False, True]
        assert ends[-1][3][0]["TimeLimit.truncated"] is True
        assert all(reward[0] == 1 for _, reward, _, _ in ends)


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "MiniGrid-Empty-5x5-v0"])
def test_an_environment_resets_while_the_others_continue(env_id: str, backend: str) -> None:
    """Every environment is as it would be alone, whatever the others do."""
    if backend == "envpool":
        pytest.importorskip("envpool")
    both, again = (made(env_id, 2, backend=backend, max_episode_steps=20)[0] for _ in range(2))
    first, second = again._envs
    both.action_space.seed(0)
    together = both.reset()
    np.testing.assert_array_equal(together, np.concatenate([first.reset(), second.reset()]))
    ends = 0
    for _ in range(60):
        action = np.array([both.action_space.sample() for _ in range(2)])
        observation, reward, done, infos = both.step(action)
        for i, alone in enumerate((first, second)):
            step = alone.step(action[i : i + 1])
            assert (reward[i], done[i]) == (step.reward[0], step.terminated[0] or step.truncated[0])
            if done[i]:
                ends += 1
                np.testing.assert_array_equal(infos[i]["terminal_observation"], step.observation[0])
                step = alone.step(action[i : i + 1])
                assert not step.valid[0]
            np.testing.assert_array_equal(observation[i], step.observation[0])
    assert ends >= 4


def test_the_environment_is_the_reference() -> None:
    """The same actions in Gymnasium's own environment give the same steps; it resets with its own next episode."""
    envs, adapter = made("FrozenLake-v1")
    reference = make_reference(EnvParams(id="FrozenLake-v1"))
    start, _ = reference.reset(seed=derive_seed(0, 0))
    assert envs.reset()[0].tolist() == adapter.pack_one(start).tolist()
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = int(rng.integers(4))
        after, reward, terminated, truncated, _ = reference.step(action)
        observation, rewards, done, infos = envs.step(np.array([action]))
        assert (rewards[0], done[0]) == (reward, terminated or truncated)
        if done[0]:
            assert infos[0]["terminal_observation"].tolist() == adapter.pack_one(after).tolist()
            after, _ = reference.reset()
        assert observation[0].tolist() == adapter.pack_one(after).tolist()


# -- what is paid -----------------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 3.0]), st.booleans())
def test_the_wrapper_gives_the_reward_of_training(n_envs: int, seed: int, beta: float, rewarded: bool) -> None:
    """The same steps as one rollout, in the hands of `TrainingReward` and `Episodes`: same rewards, same figures."""
    packed, adapter = made("FrozenLake-v1", n_envs, max_episode_steps=9)
    shaping = ShapingParams(beta=beta, quantile=0.0, intrinsic=0.3, extrinsic=2.0)
    envs = LearnedRewardEnvs(
        packed, adapter, TrainingReward(shaping, adapter, paid_by_words() if rewarded else None, n_envs)
    )
    rng = np.random.default_rng(seed)
    steps: list[tuple[Any, ...]] = []
    before = envs.reset()
    for _ in range(30):
        action = rng.integers(4, size=n_envs)
        after, reward, done, infos = envs.step(action)
        last = after.copy()
        for i in np.flatnonzero(done):
            last[i] = infos[i]["terminal_observation"]
        cut = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        steps.append((before, action, last, reward, done & ~cut, done & cut))
        before = after
    assert any(step[4].any() for step in steps)
    goal = adapter.observation_dtype.type(15)
    extrinsic = np.array([step[2][:, 0] == goal for step in steps], np.float32)
    # as training has it: a row between two episodes is a reset, and no step
    paying, episodes = (
        TrainingReward(shaping, adapter, paid_by_words() if rewarded else None, n_envs),
        Episodes(adapter, n_envs),
    )
    expected, sums = [], []
    for i, (start, action, end, _, terminated, truncated) in enumerate(steps):
        rollout = Rollout(
            np.stack([start, end]), action[None], extrinsic[i][None], np.empty((1, n_envs), np.float32),
            terminated[None], truncated[None], np.ones((1, n_envs), np.bool_),
        )  # fmt: skip
        sums.append((paying.mix_into(rollout), paying.scored))
        episodes.follow(rollout)
        expected.append(rollout.reward[0].copy())
    np.testing.assert_allclose([step[3] for step in steps], expected, rtol=1e-6)
    figures = envs.figures(at_least=1)
    assert episodes.figures(at_least=1).items() <= figures.items()
    assert figures["episodes"] == sum(int(step[4].sum() + step[5].sum()) for step in steps)
    if rewarded:
        said = sum(count for _, count in sums)
        raw = sum((paid["raw_reward"] or 0) * count for paid, count in sums)
        assert figures["raw_reward"] == pytest.approx(raw / said)
        assert figures["shaped_reward"] == pytest.approx(np.mean([paid["shaped_reward"] for paid, _ in sums]))
    else:
        assert figures["raw_reward"] is figures["shaped_reward"] is figures["share_paid"] is None
    assert envs.figures()["episodes"] == 0, "each episode is reported once"


def test_rewards_across_a_whole_rollout_are_those_of_training() -> None:
    """One environment, laid out as Laurel's own rollouts are, reset rows and all."""
    packed, adapter = made("FrozenLake-v1", 1, max_episode_steps=9)
    shaping = ShapingParams(beta=1.0, quantile=0.0, intrinsic=0.3, extrinsic=2.0)
    envs = LearnedRewardEnvs(packed, adapter, TrainingReward(shaping, adapter, paid_by_words(), 1))
    rng = np.random.default_rng(3)
    observations, actions, ended, cut, valid, got = [envs.reset()], [], [], [], [], []
    for _ in range(80):
        action = rng.integers(4, size=1)
        after, reward, done, infos = envs.step(action)
        last = infos[0]["terminal_observation"][None] if done[0] else after
        truncated = bool(infos[0].get("TimeLimit.truncated", False))
        observations.append(last)
        actions.append(action)
        ended.append([bool(done[0]) and not truncated])
        cut.append([truncated])
        valid.append([True])
        got.append(reward)
        if done[0]:
            observations.append(after)
            actions.append(np.array([0]))
            ended.append([False])
            cut.append([False])
            valid.append([False])
    rows = np.array(valid)
    after_rows = np.array(observations[1:])[:, :, 0]
    rollout = Rollout(
        np.array(observations), np.array(actions), ((after_rows == 15) & rows).astype(np.float32),
        np.empty(rows.shape, np.float32), np.array(ended), np.array(cut), rows,
    )  # fmt: skip
    TrainingReward(shaping, adapter, paid_by_words(), 1).mix_into(rollout)
    assert (~rows).sum() > 5
    np.testing.assert_allclose(np.array(got), rollout.reward[rows][:, None], rtol=1e-6)


def test_returned_rewards_are_copies() -> None:
    """On-policy algorithms add what follows a cut to the rewards they are given."""
    packed, adapter = made(probe_id(Steady), 1)
    envs = LearnedRewardEnvs(packed, adapter, TrainingReward(ShapingParams(), adapter, None, 1))
    envs.reset()
    _, reward, _, _ = envs.step(np.zeros(1, np.int64))
    reward += 100
    assert envs.step(np.zeros(1, np.int64))[1].tolist() == [1.0]


# -- features ---------------------------------------------------------------------------------------------------
def test_features_are_the_input_of_laurels_networks() -> None:
    packed, adapter = made(probe_id(Countdown), 1)
    envs = FeatureEnvs(LearnedRewardEnvs(packed, adapter, TrainingReward(ShapingParams(), adapter, None, 1)), adapter)
    assert envs.observation_space == gym.spaces.Box(-np.inf, np.inf, (Countdown.n_observations,), np.float32)
    hot = np.eye(Countdown.n_observations, dtype=np.float32)
    assert envs.reset().tolist() == [hot[0].tolist()]
    for step in (1, 2):
        assert envs.step(np.zeros(1, np.int64))[0].tolist() == [hot[step].tolist()]
    observation, _, _, infos = envs.step(np.zeros(1, np.int64))
    assert observation.tolist() == [hot[0].tolist()]
    assert infos[0]["terminal_observation"].tolist() == hot[Countdown.STEPS].tolist()


def test_stable_baselines_accepts_them() -> None:
    from stable_baselines3 import A2C

    packed, adapter = made(probe_id(RewardByBoth), 2)
    envs = FeatureEnvs(LearnedRewardEnvs(packed, adapter, TrainingReward(ShapingParams(), adapter, None, 2)), adapter)
    A2C("MlpPolicy", envs, seed=0, device="cpu").learn(40)
