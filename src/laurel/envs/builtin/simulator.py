"""Many episodes of a finite model at once: a Gymnasium vector environment without a loop over environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from laurel.envs.builtin.model import Bools, Floats, Ints, Model
from laurel.errors import EnvError


class Simulator(gym.vector.VectorEnv[Ints, Ints, Any]):
    """N episodes that follow a model; the step after an episode's end is a reset (`AutoresetMode.NEXT_STEP`).

    Args:
        model: what happens.
        num_envs: N.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        exploring_starts: episodes start in any state that does not end them, each as likely, instead of where
            the model says.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self, model: Model, num_envs: int = 1, max_episode_steps: int | None = None, *, exploring_starts: bool = False
    ) -> None:
        self.model = model
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Discrete(model.n_states)
        self.single_action_space = gym.spaces.Discrete(model.n_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps
        self._start = np.cumsum(~model.terminal / (~model.terminal).sum() if exploring_starts else model.start)
        most = int((model.transitions > 0).sum(axis=2).max())
        self._after = np.argsort(-model.transitions, axis=2, kind="stable")[..., :most]  # (S, A, most)
        self._cumulative = np.take_along_axis(model.transitions, self._after, axis=2).cumsum(axis=2)
        self._state = np.zeros(num_envs, dtype=np.int64)
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Ints, dict[str, Any]]:
        """Begin N episodes.

        Raises:
            EnvError: a seed for each episode; one seeds all of them.
        """
        if isinstance(seed, list):
            raise EnvError("A simulator takes a single seed, not one for each environment.")
        super().reset(seed=seed)
        self._begin(np.ones(self.num_envs, dtype=np.bool_))
        return self._state.copy(), {}

    def step(self, actions: Ints) -> tuple[Ints, Floats, Bools, Bools, dict[str, Any]]:
        before, begins = self._state, self._ended
        draw = self.np_random.random((self.num_envs, 1))
        cumulative = self._cumulative[before, actions]
        which = (cumulative <= draw * cumulative[:, -1:]).sum(axis=1)
        self._state = self._after[before, actions, which]
        reward = np.where(begins, 0.0, self.model.rewards[before, actions, self._state])
        self._steps += 1
        terminated = self.model.terminal[self._state] & ~begins
        truncated = (self._steps >= self._limit) & ~terminated & ~begins
        self._begin(begins)
        self._ended = terminated | truncated
        return self._state.copy(), reward, terminated, truncated, {}

    def _begin(self, which: Bools) -> None:
        """Begin new episodes in some environments (N,)."""
        draw = self.np_random.random((int(which.sum()), 1)) * self._start[-1]
        self._state[which] = (self._start <= draw).sum(axis=1)
        self._steps[which] = 0
        self._ended[which] = False
