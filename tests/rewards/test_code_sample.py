"""The collected episodes that functions are ranked by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.numbers import Numbers
from laurel.params import EnvParams
from laurel.rewards import code_search
from laurel.rewards.code import rows_of
from laurel.rewards.code_search import Candidate, Sample, examined

NUMBERS = Numbers(adapter_for(EnvParams(id="MountainCar-v0")))


def test_episodes_that_collection_cut_off_do_not_rank_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step costs 1, so an episode that was cut off has the highest return, whatever it did."""
    lengths = [3, 1, 5, 2]
    episode = np.repeat(np.arange(4), lengths)
    n = len(episode)
    position = np.linspace(-1.0, 0.4, n, dtype=np.float32)[:, None]
    seen, nothing = np.hstack([position, np.zeros_like(position)]), np.zeros(n, dtype=np.bool_)
    ends = nothing.copy()
    ends[[2, 8]] = True  # the first and the third
    reward = np.full(n, -1.0, dtype=np.float32)
    steps = Transitions(seen, np.zeros(n, np.int64), reward, seen, nothing, ends)
    monkeypatch.setattr(code_search, "read_episodes", lambda *_: (steps, episode))
    sample = Sample.read(Path("trajectories"), NUMBERS)
    assert sample.returns.tolist() == [-3.0, -5.0]
    assert len(sample.rows[0]) == n, "functions are tried on all steps"
    height = position[:, 0].astype(np.float64)
    assert sample.totals(height) == pytest.approx([height[:3].sum(), height[4:9].sum()])
    assert sample.success is not None
    assert sample.success.tolist() == [False, False]
    monkeypatch.setattr(code_search, "read_episodes", lambda *_: (steps[:2], np.array([0, 1])))
    assert Sample.read(Path("trajectories"), NUMBERS).returns.tolist() == [-1.0, -1.0], "none ended: all are kept"


def test_a_mean_counts_a_transition_as_often_as_it_occurred() -> None:
    seen, no = np.array([[-0.5, 0.0], [0.5, 0.0]], dtype=np.float32), np.zeros(2, dtype=np.bool_)
    rows = rows_of(Transitions(seen, np.zeros(2, np.int64), np.ones(2, np.float32), seen, no, no), NUMBERS)
    often = Sample(rows, np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), np.array([1.0, 2.0]), None)
    source = (
        "def reward(observation, action, next_observation):\n    return 4.0 if observation['position'] > 0 else 0.0\n"
    )
    assert examined(Candidate(1, source), often, NUMBERS).traces == [
        "reward: mean 1 a step, from 0 to 4, rank correlation with an episode's return 1.00"
    ]
