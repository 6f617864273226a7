"""Many episodes of a finite model at once: a Gymnasium vector environment without a loop over environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.envs.builtin.batch import BatchEnv
from laurel.envs.builtin.model import Model


class Simulator(BatchEnv):
    """N episodes simulated from a model; the step after the end of an episode is a reset (`AutoresetMode.NEXT_STEP`).

    Args:
        num_envs: N.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        exploring_starts: draw the initial state uniformly from all non-terminal states instead of the model's
            distribution.
    """

    def __init__(
        self, model: Model, num_envs: int = 1, max_episode_steps: int | None = None, *, exploring_starts: bool = False
    ) -> None:
        super().__init__(num_envs, max_episode_steps, gym.spaces.Discrete(model.n_states), model.n_actions)
        self.model = model
        self._start = np.cumsum(~model.terminal / (~model.terminal).sum() if exploring_starts else model.start)
        n_next = int((model.transitions > 0).sum(axis=2).max())
        self._after = np.argsort(-model.transitions, axis=2, kind="stable")[..., :n_next]  # (S, A, n_next)
        self._cumulative = np.take_along_axis(model.transitions, self._after, axis=2).cumsum(axis=2)
        self._state = np.zeros(num_envs, dtype=np.int64)

    def begin(self, mask: BoolArray) -> None:
        draw = self.np_random.random((int(mask.sum()), 1)) * self._start[-1]
        self._state[mask] = (self._start <= draw).sum(axis=1)

    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        before = self._state
        draw = self.np_random.random((self.num_envs, 1))
        cumulative = self._cumulative[before, actions]
        index = (cumulative <= draw * cumulative[:, -1:]).sum(axis=1)
        self._state = self._after[before, actions, index]
        reward, ended = self.model.rewards[before, actions, self._state], self.model.terminal[self._state]
        self.begin(begins)
        return reward, ended

    def observe(self) -> IntArray:
        return self._state.copy()
