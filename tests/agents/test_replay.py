"""The memory of DQN: targets over several steps against a walk along the episode, what is drawn and how it counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from laurel.agents.learner import Rollout
from laurel.agents.replay import Replay

N_ENVS = 3


class Feed:
    """Rollouts of environments whose steps are numbered, and everything they ever held."""

    def __init__(self, n_steps: int, seed: int, ends: float = 0.3) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_steps, self.ends = n_steps, ends
        self.clock = 0
        self.ended = np.zeros(N_ENVS, dtype=np.bool_)
        self.steps: dict[tuple[int, int], dict[str, Any]] = {}
        """(time, environment) -> what happened."""

    def rollout(self) -> Rollout:
        shape = self.n_steps, N_ENVS
        times = self.clock + np.arange(self.n_steps + 1)
        observation = (times[:, None] * N_ENVS + np.arange(N_ENVS))[:, :, None]
        valid = np.ones(shape, dtype=np.bool_)
        ends = self.rng.random(shape) < self.ends
        cut = self.rng.random(shape) < 0.5
        for t in range(self.n_steps):
            valid[t] = ~self.ended
            ends[t] &= valid[t]
            self.ended = ends[t]
        reward = np.where(valid, self.rng.normal(size=shape), 1e6).astype(np.float32)
        action = self.rng.integers(5, size=shape)
        rollout = Rollout(observation, action, reward, reward, ends & ~cut, ends & cut, valid)
        for t in range(self.n_steps):
            for n in range(N_ENVS):
                self.steps[self.clock + t, n] = {
                    "valid": valid[t, n],
                    "reward": float(reward[t, n]),
                    "action": int(action[t, n]),
                    "terminated": bool(rollout.terminated[t, n]),
                    "truncated": bool(rollout.truncated[t, n]),
                }
        self.clock += self.n_steps
        return rollout


def slow_target(feed: Feed, time: int, n: int, steps: int, gamma: float) -> tuple[float, int, float]:
    """Walk along the episode: the sum of the next rewards, the time they lead to, and what the value there counts."""
    total, weight = 0.0, 1.0
    for k in range(steps):
        step = feed.steps.get((time + k, n))
        if step is None:  # it has not happened yet
            return total, time + k, weight
        total += weight * step["reward"]
        weight *= gamma
        if step["terminated"]:
            return total, time + k + 1, 0.0
        if step["truncated"]:
            return total, time + k + 1, weight
    return total, time + steps, weight


def filled(feed: Feed, rollouts: int, capacity: int, alpha: float | None = None) -> Replay:
    replay = Replay(capacity, N_ENVS, feed.n_steps, alpha=alpha)
    for i in range(rollouts):
        rollout = feed.rollout()
        if i == 0:
            replay.reserve(rollout)
        replay.add(rollout)
    return replay


@given(
    n_steps=st.integers(1, 6),
    rollouts=st.integers(2, 7),
    capacity=st.integers(1, 60),
    steps=st.integers(1, 5),
    gamma=st.floats(0, 1),
    seed=st.integers(0, 1000),
    alpha=st.sampled_from([None, 0.6]),
)
def test_targets_agree_with_a_walk_along_the_episode(
    n_steps: int, rollouts: int, capacity: int, steps: int, gamma: float, seed: int, alpha: float | None
) -> None:
    feed = Feed(n_steps, seed)
    replay = filled(feed, rollouts, capacity, alpha)
    kept = [
        (time, n)
        for (time, n), step in feed.steps.items()
        if step["valid"] and time >= feed.clock - min(replay.rows - 1, feed.clock)
    ]
    assert replay.size == len(kept) > 0
    assert (replay.rows - 1) * N_ENVS >= capacity
    batch = replay.sample(64, np.random.default_rng(seed), steps=steps, gamma=gamma, beta=0.5)
    for i in range(64):
        time, n = divmod(int(batch.observation[i, 0]), N_ENVS)
        assert (time, n) in kept
        total, after, discount = slow_target(feed, time, n, steps, gamma)
        assert batch.action[i] == feed.steps[time, n]["action"]
        assert batch.reward[i] == pytest.approx(total, abs=1e-4)
        assert batch.discount[i] == pytest.approx(discount, abs=1e-5)
        assert batch.after[i, 0] == after * N_ENVS + n


def test_all_steps_are_drawn_equally_often() -> None:
    feed = Feed(5, 0)
    replay = filled(feed, 9, 40)
    batch = replay.sample(40_000, np.random.default_rng(0), steps=1, gamma=1.0, beta=1.0)
    _, counts = np.unique(batch.observation[:, 0], return_counts=True)
    assert len(counts) == replay.size
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    assert (batch.weight == 1).all()


def test_steps_are_drawn_in_proportion_to_their_priorities() -> None:
    """Chances p^alpha / sum, and weights (N chance)^-beta over the greatest (Schaul et al. 2016, equations 1 and 2)."""
    feed = Feed(5, 1)
    replay = filled(feed, 4, 60, alpha=0.7)
    places = np.unique(replay.sample(5000, np.random.default_rng(0), steps=1, gamma=1.0, beta=1.0).place)
    assert len(places) == replay.size, "steps without a TD error have equal chances"
    error = np.linspace(-3, 2, len(places)).astype(np.float32)
    replay.set_priorities(places, error)
    chances = (np.abs(error) + 1e-6) ** 0.7
    chances /= chances.sum()
    batch = replay.sample(50_000, np.random.default_rng(2), steps=1, gamma=1.0, beta=0.4)
    index = np.searchsorted(places, batch.place)
    np.testing.assert_allclose(np.bincount(index, minlength=len(places)) / 50_000, chances, atol=2e-3)
    weight = (replay.size * chances[index]) ** -0.4
    np.testing.assert_allclose(batch.weight, weight / weight.max(), rtol=1e-4)


def test_new_steps_are_drawn_first() -> None:
    feed = Feed(5, 2, ends=0.0)
    replay = filled(feed, 2, 60, alpha=1.0)
    places = np.unique(replay.sample(1000, np.random.default_rng(0), steps=1, gamma=1.0, beta=1.0).place)
    replay.set_priorities(places, np.full(len(places), 1e-3, dtype=np.float32))
    replay.add(feed.rollout())
    batch = replay.sample(1000, np.random.default_rng(0), steps=1, gamma=1.0, beta=1.0)
    assert (batch.observation[:, 0] >= 10 * N_ENVS).mean() > 0.9


def test_a_new_step_has_the_highest_priority_so_far() -> None:
    """Also one above 1: here fifteen new steps and an old one share nearly all draws."""
    feed = Feed(5, 2, ends=0.0)
    replay = filled(feed, 2, 60, alpha=1.0)
    error = np.full(10 * N_ENVS, 1e-6, dtype=np.float32)
    error[0] = 9.0
    replay.set_priorities(np.arange(10 * N_ENVS), error)
    replay.set_priorities(np.arange(1), np.full(1, 8.0, dtype=np.float32))
    replay.add(feed.rollout())
    chances = replay.tree.leaves / replay.tree.total
    assert chances[10 * N_ENVS : 15 * N_ENVS] == pytest.approx(9 / (15 * 9 + 8), rel=1e-4)


def test_an_overwritten_step_loses_its_priority() -> None:
    feed = Feed(4, 3, ends=0.0)
    replay = filled(feed, 3, 4 * N_ENVS, alpha=1.0)
    assert replay.rows == 5
    replay.set_priorities(np.arange(5 * N_ENVS), np.full(5 * N_ENVS, 1e-9, dtype=np.float32))
    replay.add(feed.rollout())
    batch = replay.sample(4000, np.random.default_rng(0), steps=1, gamma=1.0, beta=1.0)
    times, counts = np.unique(batch.observation[:, 0] // N_ENVS, return_counts=True)
    assert times.tolist() == [12, 13, 14, 15]
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
