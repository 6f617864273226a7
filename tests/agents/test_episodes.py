"""Returns, lengths and successes of episodes against a slow count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sayings import Sayings, rollout_of

from laurel.agents.episodes import Episodes


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 10**6))
def test_episodes_agree_with_a_slow_count(n_envs: int, lengths: list[int], seed: int) -> None:
    """Also of those that cross from one rollout into the next."""
    rng = np.random.default_rng(seed)

    class Half(Sayings):
        def succeeded(self, returns: Any, terminated: Any) -> Any:
            return terminated & (returns > 0)

    episodes = Episodes(Half(), n_envs)
    running: list[list[float]] = [[] for _ in range(n_envs)]
    for length in lengths:
        shape = (length, n_envs)
        terminated = rng.random(shape) < 0.2
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
        ended = []
        for t in range(length):
            for n in range(n_envs):
                if valid[t, n]:
                    running[n].append(float(rollout.extrinsic[t, n]))
                if terminated[t, n] or truncated[t, n]:
                    ended.append((sum(running[n]), len(running[n]), bool(terminated[t, n])))
                    running[n] = []
        found = episodes.finished(rollout)
        assert found["episodes"] == len(ended)
        if ended:
            assert found["return_mean"] == pytest.approx(np.mean([r for r, _, _ in ended]), abs=1e-5)
            assert found["length_mean"] == pytest.approx(np.mean([k for _, k, _ in ended]))
            assert found["success_rate"] == pytest.approx(np.mean([end and r > 0 for r, _, end in ended]))
        else:
            assert [found[key] for key in ("return_mean", "length_mean", "success_rate")] == [None] * 3


def test_without_a_notion_of_success_there_is_no_rate() -> None:
    found = Episodes(Sayings(), 1).finished(rollout_of([[1]], terminated=[[1]], extrinsic=[[3]]))
    assert found == {"episodes": 1, "return_mean": 3.0, "success_rate": None, "length_mean": 1.0}
