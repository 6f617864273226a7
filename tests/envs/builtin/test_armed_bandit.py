from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import laurel.envs.builtin
from laurel.envs.builtin.armed_bandit import ArmedBandit, ArmedBanditVector, Arms
from laurel.errors import EnvError


def test_gymnasium_makes_it_where_laurel_was_not_imported() -> None:
    code = (
        "import gymnasium as gym\n"
        "env = gym.make('laurel.envs.builtin:laurel/ArmedBandit-v0', n_arms=3)\n"
        "print(env.action_space, env.spec.max_episode_steps)\n"
        "print(type(gym.make_vec('laurel/ArmedBandit-v0', num_envs=4).unwrapped).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["Discrete(3) 1000", "ArmedBanditVector"]


def test_it_passes_gymnasiums_checks() -> None:
    check_env(gym.make(laurel.envs.builtin.ARMED_BANDIT).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_rewards_have_the_mean_that_regret_and_best_arm_speak_of(rewards: Any) -> None:
    options = {"noise": 0.5} if rewards == "gaussian" else {}
    envs = ArmedBanditVector(num_envs=300, n_arms=4, rewards=rewards, **options)
    _, info = envs.reset(seed=0)
    means = envs.means.copy()
    np.testing.assert_array_equal(info["best_arm"], means.argmax(axis=1))
    total, n = np.zeros(300), 400
    for t in range(n):
        arm = np.full(300, t % 4)
        _, reward, _, _, info = envs.step(arm)
        total += reward
        np.testing.assert_allclose(info["regret"], means.max(axis=1) - means[:, t % 4])
        if rewards == "bernoulli":
            assert set(reward) <= {0.0, 1.0}
    np.testing.assert_array_equal(envs.means, means)  # arms do not drift by default
    assert np.abs(total / n - means.mean(axis=1)).max() < 5 * 0.5 / np.sqrt(n)


def test_a_drifting_arm_walks_at_random_and_the_best_follows() -> None:
    envs = ArmedBanditVector(num_envs=2000, n_arms=3, spread=0.0, drift=0.1)
    envs.reset(seed=1)
    seen = set()
    for _ in range(100):
        _, _, _, _, info = envs.step(np.zeros(2000, dtype=np.int64))
        np.testing.assert_array_equal(info["best_arm"], envs.means.argmax(axis=1))
        seen.add(int(info["best_arm"][0]))
    assert envs.means.std() == pytest.approx(0.1 * np.sqrt(100), rel=0.05)
    assert len(seen) > 1


def test_drifting_probabilities_stay_probabilities() -> None:
    envs = ArmedBanditVector(num_envs=50, rewards="bernoulli", drift=0.5)
    envs.reset(seed=0)
    for _ in range(20):
        envs.step(np.zeros(50, dtype=np.int64))
    assert envs.means.min() >= 0
    assert envs.means.max() <= 1
    assert envs.means.std() > 0.3


def test_a_single_bandit_and_one_in_a_batch_are_the_same() -> None:
    options = {"n_arms": 5, "drift": 0.3}
    single, batch = ArmedBandit(**options), ArmedBanditVector(num_envs=1, **options)
    _, info = single.reset(seed=7)
    _, infos = batch.reset(seed=7)
    for t in range(30):
        assert info["best_arm"] == infos["best_arm"][0]
        _, reward, _, _, info = single.step(np.int64(t % 5))
        _, rewards, _, _, infos = batch.step(np.array([t % 5]))
        assert (reward, info["regret"]) == (rewards[0], infos["regret"][0])


def test_the_same_seed_gives_the_same_arms_and_rewards() -> None:
    def play(seed: int) -> list[float]:
        envs = gym.make_vec(laurel.envs.builtin.ARMED_BANDIT, num_envs=3)
        envs.reset(seed=seed)
        return [float(envs.step(np.zeros(3, dtype=np.int64))[1].sum()) for _ in range(5)]

    assert play(3) == play(3)
    assert play(3) != play(4)


def test_episodes_end_at_the_limit_and_new_arms_come_on_the_next_step() -> None:
    envs = ArmedBanditVector(num_envs=2, max_episode_steps=3)
    envs.reset(seed=0)
    means = envs.means.copy()
    arm = np.zeros(2, dtype=np.int64)
    assert [bool(envs.step(arm)[3].all()) for _ in range(3)] == [False, False, True]
    np.testing.assert_array_equal(envs.means, means)
    _, reward, terminated, truncated, info = envs.step(arm)
    assert (reward == 0).all()
    assert not (terminated | truncated).any()
    assert (envs.means != means).all()
    np.testing.assert_array_equal(info["best_arm"], envs.means.argmax(axis=1))
    assert [bool(envs.step(arm)[3].all()) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_arms_of_a_seed_stay_the_same_everywhere(rewards: Any) -> None:
    options = {"n_arms": 4, "rewards": rewards, "arms_seed": 3}
    batch, single = ArmedBanditVector(num_envs=5, max_episode_steps=2, **options), ArmedBandit(**options)
    batch.reset(seed=0)
    means, seen = batch.means[0].copy(), set()
    for t in range(7):
        np.testing.assert_array_equal(batch.means, np.tile(means, (5, 1)))
        seen |= set(batch.step(np.full(5, t % 4))[1])
    single.reset(seed=8)
    np.testing.assert_array_equal(single.means[0], means)
    assert len(seen) > (20 if rewards == "gaussian" else 1), "they pay by luck of their own"
    other = ArmedBandit(**{**options, "arms_seed": 4})
    other.reset(seed=8)
    assert (other.means[0] != means).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_arms": 0}, "n_arms is 0"),
        ({"arms_seed": -1}, "arms_seed is -1"),
        ({"noise": -1.0}, "noise is -1.0"),
        ({"rewards": "cauchy"}, 'allowed are "gaussian" and "bernoulli"'),
        ({"rewards": "bernoulli", "noise": 0.1}, "noise have no effect on Bernoulli rewards. Leave them out"),
    ],
)
def test_arms_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        Arms(**options)


def test_one_seed_for_all() -> None:
    with pytest.raises(EnvError, match="single seed"):
        ArmedBanditVector(num_envs=2).reset(seed=[1, 2])
