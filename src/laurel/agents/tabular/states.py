"""Indices for the observations of finite spaces, which are the rows of a table."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.actions import discrete_actions
from laurel.arrays import IntArray
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError

MAX_ENTRIES = 10_000_000
"""Largest number of entries of a table."""


class StateIndex:
    """Numbers the observations of a Discrete or MultiDiscrete space, or a Tuple of Discrete ones, from 0 on.

    >>> index = StateIndex(gym.spaces.Tuple([gym.spaces.Discrete(4), gym.spaces.Discrete(2)]))
    >>> index.n_states, index((np.array([3, 0]), np.array([1, 1])))
    (8, array([7, 1]))

    Raises:
        EnvError: the space is not one of these.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        match space:
            case gym.spaces.Discrete():
                parts = [space]
            case gym.spaces.MultiDiscrete() if space.nvec.ndim == 1:
                parts = [gym.spaces.Discrete(n, start=s) for n, s in zip(space.nvec, space.start, strict=True)]
            case gym.spaces.Tuple() if all(isinstance(part, gym.spaces.Discrete) for part in space.spaces):
                parts = [part for part in space.spaces if isinstance(part, gym.spaces.Discrete)]
            case _:
                raise EnvError(
                    f"Observation space {space} is not finite: tables need Discrete, MultiDiscrete or a Tuple of "
                    "Discrete spaces. Use a deep agent (agent.algorithm ppo or dqn), or wrap the environment."
                )
        self._single = isinstance(space, gym.spaces.Discrete)
        self._columns = isinstance(space, gym.spaces.MultiDiscrete)
        self.shape = tuple(int(part.n) for part in parts)
        """How many values each part of an observation has."""
        self._start = tuple(int(part.start) for part in parts)
        self.n_states = math.prod(self.shape)

    def __call__(self, observation: Any) -> IntArray:
        """Return the numbers (N,) of a batch of observations, as a vector environment gives them."""
        if self._single:
            return np.asarray(observation, dtype=np.int64) - self._start[0]
        parts = np.asarray(observation).T if self._columns else observation
        digits = tuple(np.asarray(part) - start for part, start in zip(parts, self._start, strict=True))
        return np.ravel_multi_index(digits, self.shape).astype(np.int64)


def table_form(adapter: EnvAdapter) -> tuple[StateIndex, int]:
    """Return the states of an environment, and how many actions each has in a table.

    Raises:
        EnvError: its observations or actions are not finite or too many, or its adapter computes its own features.
    """
    index = StateIndex(adapter.packed.space)
    n_actions = discrete_actions(adapter.action_space, "tabular")
    if index.n_states * n_actions > MAX_ENTRIES:
        raise EnvError(
            f"{adapter.env_id} has {index.n_states:,} states and {n_actions} actions, but a table may have "
            f"{MAX_ENTRIES:,} entries at most. Set agent.algorithm to ppo or dqn."
        )
    if adapter.n_features != sum(index.shape):
        raise EnvError(f"{adapter.env_id} computes its own features, which do not identify states for a table.")
    return index, n_actions
