from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.agents.tabular import QLearning
from laurel.agents.tabular.states import StateIndex
from laurel.errors import EnvError

Discrete = gym.spaces.Discrete


@pytest.mark.parametrize(
    ("space", "n_states"),
    [
        (Discrete(7), 7),
        (Discrete(7, start=3), 7),
        (gym.spaces.MultiDiscrete([3, 4], start=[1, 0]), 12),
        (gym.spaces.Tuple([Discrete(4), Discrete(3, start=-1), Discrete(2)]), 24),
    ],
)
def test_every_observation_has_its_own_number(space: gym.Space[Any], n_states: int) -> None:
    index = StateIndex(space)
    batch = gym.vector.utils.batch_space(space, 2000)
    batch.seed(0)
    observation = batch.sample()
    numbers = index(observation)
    assert index.n_states == n_states
    assert numbers.dtype == np.int64
    assert set(numbers) == set(range(n_states))
    rows = [tuple(np.atleast_1d(row)) for row in gym.vector.utils.iterate(batch, observation)]
    assert len(set(zip(rows, numbers.tolist(), strict=True))) == n_states


def test_unbounded_spaces_are_refused() -> None:
    with pytest.raises(EnvError, match="is not finite"):
        StateIndex(gym.spaces.Box(0, 1, (2,)))
    with pytest.raises(EnvError, match="is not finite"):
        StateIndex(gym.spaces.Tuple([Discrete(2), gym.spaces.Box(0, 1)]))
    with pytest.raises(EnvError, match="from 0 on"):
        QLearning(Discrete(3), Discrete(3, start=1))
