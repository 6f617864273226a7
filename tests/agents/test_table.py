"""Agents with a table as learners: the same table as alone, states from features, what cannot have one."""

from __future__ import annotations

from typing import Any, get_args

import gymnasium as gym
import numpy as np
import pytest
from learning import collected, learned, make, poisoned, probe, same, weights
from probe_environments import Countdown, OneStep, RewardByBoth

from laurel.agents.agent import Experience
from laurel.agents.algorithms import initial_policy
from laurel.agents.table import METHODS, Table
from laurel.envs import adapter_for
from laurel.errors import EnvError
from laurel.params import EnvParams
from laurel.params.algorithms import TabularParams

SMALL = TabularParams(n_envs=4, n_steps=5, gamma=0.9)


def test_every_method_has_its_agent() -> None:
    assert set(METHODS) == set(get_args(TabularParams.model_fields["method"].annotation))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("step_size", [0.0, 0.5])
def test_a_learner_learns_what_the_agent_does(method: Any, step_size: float) -> None:
    """A single agent that learns step by step, with the same actions and rewards."""
    params = SMALL.model_copy(update={"method": method, "step_size": step_size})
    learner, envs = make(EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False}), params)
    options = {"n": params.backup_steps} if "step" in method or method == "tree_backup" else {}
    agent = METHODS[method](
        gym.spaces.Discrete(16), gym.spaces.Discrete(4), gamma=0.9, epsilon=0.1, step_size=step_size or None,
        shared=True, **options,
    )  # fmt: skip
    agent.reset(0, params.n_envs)
    observation, rollout, rng = envs.reset(), learner.rollout(envs), np.random.default_rng(0)
    for _ in range(12):
        observation = learner.collect(envs, observation, rollout)
        rollout.reward += rng.normal(size=rollout.reward.shape)
        learner.learn(rollout)
        for t in range(params.n_steps):
            before, after = rollout.observation[t, :, 0], rollout.observation[t + 1, :, 0]
            reward = rollout.reward[t].astype(np.float64)
            flags = rollout.terminated[t], rollout.truncated[t], rollout.valid[t]
            agent.observe(Experience(before, rollout.action[t], reward, after, *flags))
    assert np.abs(agent.q).sum() > 1
    np.testing.assert_array_equal(learner.policy.q.numpy(), agent.q[0])


@pytest.mark.parametrize("method", METHODS)
def test_values_converge_to_the_known_ones(method: Any) -> None:
    params = SMALL.model_copy(update={"method": method, "epsilon": 0.2})
    table = learned(probe(RewardByBoth), params, 80).policy
    np.testing.assert_allclose(table.q.numpy(), [[1.0, -1.0], [-1.0, 1.0]], atol=0.1)
    table = learned(probe(Countdown), params, 120).policy
    np.testing.assert_allclose(table.q[:3, 0].numpy(), [1 + 0.9 + 0.81, 1.9, 1.0], atol=0.05)


def test_q_learning_finds_the_way_over_the_lake() -> None:
    env = EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False})
    learner = learned(env, TabularParams(epsilon=0.3, n_envs=8, n_steps=8, step_size=0.5), 400)
    adapter = adapter_for(env)
    observation = learner.policy.act(adapter.features(np.array([[0]])), learner.rng, greedy=True)[2]
    assert observation[0] == pytest.approx(0.99**5, abs=0.25)
    assert learner.policy.q[14].argmax() == 2, "right, into the goal"
    assert float(learner.policy.q[14, 2]) == pytest.approx(1.0, abs=0.01)


def test_resets_are_not_learned_from() -> None:
    first, rollout, _ = collected(probe(OneStep), SMALL)
    second, _, _ = collected(probe(OneStep), SMALL)
    assert first.learn(rollout) == second.learn(poisoned(rollout))
    assert same(weights(first), weights(second))


# -- the policy ---------------------------------------------------------------------------------------------------
def test_states_are_numbered_by_their_parts() -> None:
    adapter = adapter_for(EnvParams(id="Blackjack-v1"))
    table = initial_policy(adapter, TabularParams(), 0, 0)
    assert isinstance(table, Table)
    assert table.shape == (32, 11, 2)
    rows = np.array([[31, 10, 1], [4, 2, 0], [0, 0, 0]])
    expected = np.ravel_multi_index(tuple(rows.T), (32, 11, 2))
    assert table.states(adapter.features(rows)).tolist() == expected.tolist()


def test_exploration_matches_the_reported_epsilon() -> None:
    table = Table((2,), 3, initial=0.0, epsilon=0.3)
    table.q[1, 2] = 5.0
    features = np.repeat(np.float32([[0, 1]]), 6000, axis=0)
    action, log_prob, value = table.act(features, np.random.default_rng(0))
    chances = np.array([0.1, 0.1, 0.8])
    np.testing.assert_allclose(np.bincount(action, minlength=3) / 6000, chances, atol=0.02)
    np.testing.assert_allclose(np.exp(log_prob), chances[action], rtol=1e-5)
    np.testing.assert_allclose(table.log_prob(features, action), log_prob, rtol=1e-5)
    np.testing.assert_allclose(value, 4.0)
    alike = np.repeat(np.float32([[1, 0]]), 6000, axis=0)
    counts = np.bincount(table.act(alike, np.random.default_rng(0))[0], minlength=3)
    assert counts.min() > 1800, "where all is alike, any action is as good"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("CartPole-v1", r"Observation space Box.* is not finite: .* Use a deep agent \(agent\.algorithm ppo or dqn\)"),
        ("MiniGrid-Empty-5x5-v0", "is not finite"),
        ("Pendulum-v1", "is not finite"),
    ],
)
def test_environments_without_a_table_are_refused_in_one_sentence(env: str, says: str) -> None:
    with pytest.raises(EnvError, match=says) as caught:
        initial_policy(adapter_for(EnvParams(id=env)), TabularParams(), 0, 0)
    assert "\n" not in str(caught.value)
