"""random: uniform actions."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.actor import Acted, Actor, View, actor_kind
from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError


class UniformPolicy(Actor):
    """Actions with the distribution of `action_space.sample()`: uniform if there are bounds.

    Continuous actions without bounds are standard normal; with one bound, the distance from it is exponentially
    distributed (as in gymnasium.spaces.Box).

    Raises:
        EnvError: the space is neither Discrete nor a flat Box of floats.
    """

    def __init__(self, action_space: gym.Space[Any]) -> None:
        match action_space:
            case gym.spaces.Discrete():
                self._n, self._start = int(action_space.n), int(action_space.start)
            case gym.spaces.Box() if len(action_space.shape) == 1 and np.issubdtype(action_space.dtype, np.floating):
                self._n = 0
                self._low = action_space.low.astype(np.float64)
                self._high = action_space.high.astype(np.float64)
            case _:
                raise EnvError(
                    f"Action space {action_space} is not supported: policies act in Discrete and "
                    "one-dimensional Box spaces of floats."
                )

    @property
    def action_shape(self) -> tuple[int, ...]:
        return () if self._n else self._low.shape

    @property
    def action_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64 if self._n else np.float32)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        action = self.draw(len(view), rng)
        return Acted(action, self.log_prob_of(action))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Draw actions (N,) or (N, A)."""
        if self._n:
            return rng.integers(self._start, self._start + self._n, n)
        shape = (n, len(self._low))
        has_low, has_high = np.isfinite(self._low), np.isfinite(self._high)
        tail = rng.exponential(size=shape)
        inside = rng.uniform(
            np.where(has_low & has_high, self._low, 0),
            np.where(has_low & has_high, self._high, 1),
            shape,
        )
        choices = [inside, self._low + tail, self._high - tail]
        drawn = np.select([has_low & has_high, has_low, has_high], choices, rng.standard_normal(shape))
        return drawn.astype(np.float32).clip(self._low, self._high).astype(np.float32)

    def log_prob(self, view: View, action: Array) -> FloatArray:
        return self.log_prob_of(action)

    def log_prob_of(self, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of actions; minus infinity out of bounds."""
        if self._n:
            return np.full(len(action), -math.log(self._n), dtype=np.float32)
        has_low, has_high = np.isfinite(self._low), np.isfinite(self._high)
        width = np.log(np.where(has_low & has_high, self._high - self._low, 1))
        parts = np.select(
            [has_low & has_high, has_low, has_high],
            [np.broadcast_to(-width, action.shape), self._low - action, action - self._high],
            -0.5 * np.square(action) - 0.5 * math.log(2 * math.pi),
        )
        outside = (action < self._low.astype(np.float32)) | (action > self._high.astype(np.float32))
        return np.where(outside, -np.inf, parts).sum(axis=1).astype(np.float32)


@actor_kind("control")
def uniform_policy(adapter: EnvAdapter) -> UniformPolicy:
    """Make the uniform policy of an environment."""
    return UniformPolicy(adapter.action_space)


ACTOR = uniform_policy
