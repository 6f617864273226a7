from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs.builtin import GRID_WORLD
from laurel.envs.builtin.model import from_table, model_of
from laurel.errors import EnvError

WORLDS = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}),
    ("CliffWalking-v1", {}),
    ("CliffWalking-v1", {"is_slippery": True}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True}),
    (GRID_WORLD, {}),
]


@pytest.mark.parametrize(("env_id", "options"), WORLDS)
def test_tensors_are_a_decision_process(env_id: str, options: dict[str, Any]) -> None:
    env = gym.make(env_id, **options)
    model = model_of(env)
    assert model.transitions.shape == (env.observation_space.n, env.action_space.n, env.observation_space.n)
    np.testing.assert_allclose(model.transitions.sum(axis=2), 1)
    assert model.start.sum() == pytest.approx(1)
    assert not model.start[model.terminal].any()
    ends = np.flatnonzero(model.terminal)
    assert len(ends)
    assert (model.transitions[ends, :, ends] == 1).all(), "ends are absorbing"
    assert not model.rewards[ends].any(), "and pay nothing"
    assert not model.rewards[model.transitions == 0].any()


@pytest.mark.parametrize(("env_id", "options"), WORLDS)
def test_tensors_match_the_environment(env_id: str, options: dict[str, Any]) -> None:
    env = gym.make(env_id, **options)
    model = model_of(env)
    reachable = model.reachable()
    rng = np.random.default_rng(0)
    state, _ = env.reset(seed=0)
    for _ in range(2000):
        assert reachable[state]
        action = rng.integers(model.n_actions)
        after, reward, terminated, truncated, _ = env.step(action)
        assert model.transitions[state, action, after] > 0
        if not options.get("is_slippery"):  # a slip at the cliff may end at the start with or without a fall
            assert model.rewards[state, action, after] == pytest.approx(reward)
        assert model.terminal[after] == terminated
        state = env.reset()[0] if terminated or truncated else after


def test_outcomes_with_the_same_next_state_are_averaged() -> None:
    table = {
        0: {0: [(0.5, 1, 4.0, False), (0.25, 1, 1.0, False), (0.25, 0, 8.0, False)]},
        1: {0: [(1.0, 1, 0.0, False)]},
    }
    model = from_table(table, [1.0, 0.0])
    assert model.transitions[0, 0].tolist() == [0.25, 0.75]
    assert model.rewards[0, 0].tolist() == [8.0, 3.0]
    assert not model.terminal.any()


def test_a_state_that_ends_an_episode_only_sometimes_is_refused() -> None:
    back = [(1.0, 0, 0.0, False)]
    table = {0: {0: [(1.0, 1, 0.0, True)], 1: [(1.0, 1, 0.0, False)]}, 1: {0: back, 1: back}}
    with pytest.raises(EnvError, match="end in state 1 or continue"):
        from_table(table, [1.0, 0.0])


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("CartPole-v1", {}, "CartPole-v1 does not give its model"),
        ("Blackjack-v1", {}, "does not give its model"),
        ("Taxi-v4", {"fickle_passenger": True}, "fickle_passenger"),
    ],
)
def test_environments_without_a_model(env_id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        model_of(gym.make(env_id, **options))
