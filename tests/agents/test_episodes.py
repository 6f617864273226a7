"""The window of training episodes against a slow count, and against planted success rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sayings import Sayings, rollout_of

from laurel.agents.episodes import LEAST, WINDOW, Episodes

MEANS = ("return_mean", "success_rate", "length_mean")


class Half(Sayings):
    """Where a return above 0 is a success, if the episode was not cut short."""

    def succeeded(self, returns: Any, last: Any) -> Any:
        return last.terminated & (returns > 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 10**6))
def test_episodes_agree_with_a_slow_count(n_envs: int, lengths: list[int], seed: int) -> None:
    """Also of those that cross from one rollout into the next."""
    rng = np.random.default_rng(seed)
    episodes = Episodes(Half(), n_envs)
    running: list[list[float]] = [[] for _ in range(n_envs)]
    began = [(0, n) for n in range(n_envs)]
    known: dict[tuple[int, int], tuple[float, bool, int] | None] = dict.fromkeys(began)  # None: still running
    now = 0
    for length in lengths:
        shape = (length, n_envs)
        terminated = rng.random(shape) < 0.3
        truncated = ~terminated & (rng.random(shape) < 0.2)
        valid = rng.random(shape) < 0.8
        terminated &= valid
        truncated &= valid
        rollout = rollout_of(
            np.zeros(shape),
            extrinsic=rng.integers(-2, 3, shape),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
        )
        ended = 0
        for t in range(length):
            for n in range(n_envs):
                if valid[t, n]:
                    running[n].append(float(rollout.extrinsic[t, n]))
                if terminated[t, n] or truncated[t, n]:
                    total = sum(running[n])
                    known[began[n]] = (total, bool(terminated[t, n] and total > 0), len(running[n]))
                    began[n] = (now + t + 1, n)
                    known[began[n]] = None
                    running[n] = []
                    ended += 1
        now += length
        episodes.follow(rollout)
        found = episodes.figures(at_least=3)
        in_order = [known[place] for place in sorted(known)]
        window = in_order[: in_order.index(None)][-WINDOW:]
        assert (found["episodes"], found["window"]) == (ended, len(window))
        if len(window) >= 3:
            expected = np.mean(np.array(window, dtype=np.float64), axis=0)
            assert [found[name] for name in MEANS] == pytest.approx(expected, abs=1e-5)
        else:
            assert [found[name] for name in MEANS] == [None] * 3


def test_without_a_notion_of_success_there_is_no_rate() -> None:
    episodes = Episodes(Sayings(), 1)
    episodes.follow(rollout_of([[1]], terminated=[[1]], extrinsic=[[3]]))
    assert episodes.figures(at_least=1) == {
        "episodes": 1, "window": 1, "return_mean": 3.0, "success_rate": None, "length_mean": 1.0,
    }  # fmt: skip
    assert episodes.figures() == {
        "episodes": 0, "window": 1, "return_mean": None, "success_rate": None, "length_mean": None,
    }  # fmt: skip


N_ENVS, SHORT, LONG, STEPS = 64, 10, 200, 32
"""Environments, steps of a success and of a failure, steps of a rollout."""


def curve_of(rate: float, seed: int, updates: int = 28) -> list[dict[str, float | None]]:
    """Return the curve of a policy that succeeds at this rate in every episode: soon, or else never."""
    rng = np.random.default_rng(seed)
    episodes = Episodes(Half(), N_ENVS)
    success = rng.random(N_ENVS) < rate
    age, rows = np.zeros(N_ENVS, dtype=np.int64), []
    for _ in range(updates):
        terminated, truncated = np.zeros((2, STEPS, N_ENVS), dtype=np.bool_)
        for t in range(STEPS):
            age += 1
            terminated[t], truncated[t] = success & (age == SHORT), ~success & (age == LONG)
            ended = terminated[t] | truncated[t]
            age[ended] = 0
            success[ended] = rng.random(int(ended.sum())) < rate
        actions = np.zeros((STEPS, N_ENVS))
        episodes.follow(rollout_of(actions, extrinsic=terminated, terminated=terminated, truncated=truncated))
        rows.append(episodes.figures())
    return rows


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.7, 0.95])
def test_a_curve_shows_the_planted_success_rate_wherever_it_shows_one(rate: float) -> None:
    """Successes take a twentieth of a failure's time, so all of them end before the first failure does."""
    curves = [curve_of(rate, seed) for seed in range(20)]
    shown = np.array([[row["success_rate"] for row in rows] for rows in curves], dtype=np.float64)
    ended = np.array([[row["episodes"] for row in rows] for rows in curves], dtype=np.float64)
    assert ended[:, : LONG // STEPS].sum() > 0, "successes end before any failure, and say nothing"
    assert np.isfinite(shown[:, LONG // STEPS + 1 :]).mean() > 0.9, "but soon something is known"
    for of_update in shown.T:
        known = of_update[np.isfinite(of_update)]
        if len(known):
            error = np.sqrt(rate * (1 - rate) / LEAST / len(known))
            assert abs(known.mean() - rate) < 1 / LEAST + 4 * error
    if rate < 0.1:
        assert np.nanmax(shown) < 0.2, "an agent that fails never looks as if it did not"


def test_an_episode_that_never_ends_keeps_those_after_it_from_counting() -> None:
    """It may be the worst of all: what is known is what began before it."""
    episodes = Episodes(Half(), 2)
    for _ in range(3):
        ends = [[True, False]] * 60
        episodes.follow(rollout_of(np.zeros((60, 2)), terminated=ends, extrinsic=np.ones((60, 2))))
    assert episodes.figures(at_least=1)["window"] == 1
    episodes.follow(rollout_of(np.zeros((1, 2)), truncated=[[False, True]], extrinsic=np.ones((1, 2))))
    assert episodes.figures(at_least=1)["window"] == WINDOW


def test_returns_of_long_episodes_are_summed_in_double_precision() -> None:
    episodes = Episodes(Half(), 1)
    ends = np.zeros((1000, 1), dtype=np.bool_)
    for part in range(100):
        ends[-1] = part == 99
        episodes.follow(rollout_of(ends * 0.0, extrinsic=np.full((1000, 1), 0.1, dtype=np.float32), truncated=ends))
    assert episodes.figures(at_least=1)["return_mean"] == pytest.approx(10_000, abs=0.01)
