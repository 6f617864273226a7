"""Generalised advantage estimates against a slow sum, and where their value is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning import slow_gae
from sayings import rollout_of

from laurel.agents.ppo import gae, gae_of, non_episodic_reward
from laurel.params.algorithms import PPOParams


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Rewards, values and ends of environments that reset on the step after an end."""
    n_steps, n_envs = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    how = draw(st.lists(st.sampled_from("...TX"), min_size=n_steps * n_envs, max_size=n_steps * n_envs))
    terminated = np.array([end == "T" for end in how]).reshape(n_steps, n_envs)
    truncated = np.array([end == "X" for end in how]).reshape(n_steps, n_envs)
    valid = np.ones((n_steps, n_envs), dtype=np.bool_)
    ended = np.array(draw(st.lists(st.booleans(), min_size=n_envs, max_size=n_envs)))  # by the step before
    for t in range(n_steps):
        valid[t] = ~ended
        terminated[t] &= valid[t]
        truncated[t] &= valid[t]
        ended = terminated[t] | truncated[t]
    reward = np.where(valid, rng.normal(size=valid.shape), 0).astype(np.float32)
    value = rng.normal(size=(n_steps + 1, n_envs)).astype(np.float32)
    return reward, value, terminated, truncated, valid


@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_gae_agrees_with_the_formula_step_by_step(arrays: tuple[np.ndarray, ...], gamma: float, lam: float) -> None:
    *inputs, valid = arrays
    fast = gae(*inputs, gamma=gamma, lam=lam)
    slow = slow_gae(*inputs, valid, gamma, lam)
    assert fast.shape == valid.shape
    assert fast.dtype == np.float32
    assert len(slow) == valid.sum()
    for place, expected in slow.items():
        assert fast[place] == pytest.approx(expected, abs=1e-4)


@given(rollouts(), st.floats(0, 1))
def test_gae_without_lambda_is_the_error_of_one_step(arrays: tuple[np.ndarray, ...], gamma: float) -> None:
    reward, value, terminated, truncated, _ = arrays
    error = reward + gamma * np.where(terminated, 0, value[1:]) - value[:-1]
    np.testing.assert_allclose(gae(reward, value, terminated, truncated, gamma=gamma, lam=0.0), error, atol=1e-6)


@given(rollouts())
def test_gae_undiscounted_is_the_sum_of_rewards_less_the_value(arrays: tuple[np.ndarray, ...]) -> None:
    reward, value, *_ = arrays
    never = np.zeros(reward.shape, dtype=np.bool_)
    expected = reward[::-1].cumsum(axis=0)[::-1] + value[-1] - value[:-1]
    np.testing.assert_allclose(gae(reward, value, never, never, gamma=1.0, lam=1.0), expected, atol=1e-4)


def test_gae_by_hand() -> None:
    """Steps: 1 paid, 2 paid and truncated, a reset, 4 paid and terminated; gamma 1/2, lambda 1/2."""
    reward, value = np.float32([[1], [2], [0], [4]]), np.float32([[10], [20], [30], [40], [50]])
    terminated, truncated = np.array([[0], [0], [0], [1]], np.bool_), np.array([[0], [1], [0], [0]], np.bool_)
    advantage = gae(reward, value, terminated, truncated, gamma=0.5, lam=0.5)
    second = 2 + 0.5 * 30 - 20  # bootstraps from the final observation
    assert advantage[:2, 0].tolist() == [1 + 0.5 * 20 - 10 + 0.25 * second, second]
    assert advantage[3, 0] == 4 - 40


def test_non_episodic_returns_bootstrap_from_the_next_episode() -> None:
    """Paid 1 and terminated, a reset, paid 4 and truncated, a reset, paid 2 and terminated in the last row."""
    value = np.float32([[10], [20], [30], [40], [50], [60]])
    ends = {"terminated": [[1], [0], [0], [0], [1]], "truncated": [[0], [0], [1], [0], [0]]}
    rollout = rollout_of([[0]] * 5, valid=[[1], [0], [1], [0], [1]], **ends)
    rollout.reward[:] = [[1], [0], [4], [0], [2]]
    reward = non_episodic_reward(rollout.reward, value, rollout.terminated, rollout.valid, 0.5)
    assert reward[:, 0].tolist() == [1 + 0.5 * 30, 0, 4, 0, 2 + 0.5 * 60]
    settings = PPOParams(gamma=0.5, gae_lambda=0.5, episodic=False)
    advantage = gae_of(settings, rollout, value)
    assert advantage[[0, 2, 4], 0].tolist() == [1 + 15 - 10, 4 + 0.5 * 40 - 30, 2 + 30 - 50]
    assert gae_of(PPOParams(gamma=0.5, gae_lambda=0.5), rollout, value)[0, 0] == 1 - 10
    assert "episodic" not in PPOParams().model_dump(), "digests of runs with episodes stay"
