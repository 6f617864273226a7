from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import scipy.stats

from laurel.envs.builtin.model import from_table, model_of
from laurel.envs.builtin.simulator import Simulator
from laurel.errors import EnvError


def test_transition_frequencies_match_the_model() -> None:
    model = model_of(gym.make("FrozenLake-v1"))
    envs = Simulator(model, 200)
    rng = np.random.default_rng(0)
    state, _ = envs.reset(seed=0)
    counts = np.zeros(model.transitions.shape)
    ended = np.zeros(200, dtype=np.bool_)
    for _ in range(1000):
        action = rng.integers(0, 4, 200)
        after, reward, terminated, truncated, _ = envs.step(action)
        live = ~ended
        np.add.at(counts, (state[live], action[live], after[live]), 1)
        np.testing.assert_array_equal(reward[live], model.rewards[state, action, after][live])
        np.testing.assert_array_equal(terminated[live], model.terminal[after][live])
        assert (after[ended] == 0).all(), "the step after an end is a reset"
        assert not reward[ended].any()
        assert not (terminated | truncated)[ended].any()
        state, ended = after, terminated | truncated
    assert not counts[model.transitions == 0].any()
    seen = 0
    for at in np.ndindex(16, 4):
        likely = model.transitions[at] > 0
        if counts[at].sum() > 500 and likely.sum() > 1:
            expected = model.transitions[at][likely] * counts[at].sum()
            assert scipy.stats.chisquare(counts[at][likely], expected).pvalue > 1e-4
            seen += 1
    assert seen > 10


def test_the_limit_truncates_each_episode_by_its_own_steps() -> None:
    table = {0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    envs = Simulator(from_table(table, [1.0, 0.0]), 500, max_episode_steps=3)
    envs.reset(seed=0)
    length, ended, lengths = np.zeros(500), np.zeros(500, dtype=np.bool_), []
    for _ in range(60):
        _, reward, terminated, truncated, _ = envs.step(np.zeros(500, dtype=np.int64))
        np.testing.assert_array_equal(reward, ~ended)
        length = np.where(ended, 0, length + 1)
        assert not (terminated & truncated).any()
        assert (length[truncated] == 3).all()
        ended = terminated | truncated
        lengths += length[ended].tolist()
    assert np.bincount(np.array(lengths, dtype=np.int64))[1:] / len(lengths) == pytest.approx(
        [0.5, 0.25, 0.25], abs=0.02
    )


def test_episodes_start_in_the_initial_distribution() -> None:
    model = model_of(gym.make("Taxi-v4"))
    found, _ = Simulator(model, 20_000).reset(seed=0)
    assert set(found) == set(np.flatnonzero(model.start))
    found, _ = Simulator(model, 20_000, exploring_starts=True).reset(seed=0)
    assert set(found) == set(np.flatnonzero(~model.terminal))


def test_the_same_seed_gives_the_same_episodes() -> None:
    def walk(seed: int) -> list[int]:
        envs = Simulator(model_of(gym.make("FrozenLake-v1")), 4)
        envs.reset(seed=seed)
        return [int(state) for t in range(50) for state in envs.step(np.full(4, t % 4))[0]]

    assert walk(1) == walk(1)
    assert walk(1) != walk(2)
    with pytest.raises(EnvError, match="single seed"):
        Simulator(model_of(gym.make("FrozenLake-v1")), 2).reset(seed=[1, 2])
