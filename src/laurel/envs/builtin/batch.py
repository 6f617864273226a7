"""Base class of Laurel's vector environments: seeds, episode length limits, and resets on the next step."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.errors import EnvError


class BatchEnv(gym.vector.VectorEnv[Any, IntArray, Any]):
    """N episodes at once; the step after the end of an episode is a reset (`AutoresetMode.NEXT_STEP`).

    Args:
        num_envs: N.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        n_actions: number of actions.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self, num_envs: int, max_episode_steps: int | None, observations: gym.Space[Any], n_actions: int
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observations, gym.spaces.Discrete(n_actions)
        self.observation_space = batch_space(observations, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset all N episodes.

        Raises:
            EnvError: a list of seeds was given instead of one.
        """
        if isinstance(seed, list):
            raise EnvError(f"{type(self).__name__} takes a single seed, not one for each environment.")
        super().reset(seed=seed)
        self._steps[:], self._ended[:] = 0, False
        self.begin(np.ones(self.num_envs, dtype=np.bool_))
        return self.observe(), self.info()

    def step(self, actions: IntArray) -> tuple[Array, DoubleArray, BoolArray, BoolArray, dict[str, Any]]:
        begins = self._ended
        reward, ended = self.advance(actions, begins)
        self._steps += 1
        if begins.any():  # rare; skipped otherwise, since each operation counts when there are few environments
            self._steps[begins] = 0
            reward, ended = np.where(begins, 0.0, reward), ended & ~begins
        truncated = (self._steps >= self._limit) & ~ended
        self._ended = ended | truncated
        return self.observe(), reward, ended, truncated, self.info()

    @abstractmethod
    def begin(self, mask: BoolArray) -> None:
        """Reset some of the environments (N,)."""

    @abstractmethod
    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        """Take actions (N,), or reset where `begins` (N,); return rewards and terminations.

        Returned values are ignored where an episode begins.
        """

    @abstractmethod
    def observe(self) -> Array:
        """Return the current observations."""

    def info(self) -> dict[str, Any]:
        """Return the `info` of the last step."""
        return {}
