"""CartPole without its velocities: they must be inferred from earlier observations.

A task with hidden state that is well known (`PositionOnlyCartPole` of POPGym, Morad et al. 2023, arXiv 2303.01859):
the observation is half of CartPole's; everything else is Gymnasium's.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector.utils import batch_space

from laurel.arrays import Array

POSITIONS = [0, 2]
"""Of the cart and of the pole; 1 and 3 are their velocities."""


class PositionOnlyCartPole(CartPoleEnv):
    """Balance a pole; observations are the cart's position and the pole's angle.

    Args:
        options: as of Gymnasium's `CartPoleEnv`.

    >>> env = PositionOnlyCartPole()
    >>> env.reset(seed=0)[0].shape
    (2,)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.observation_space = _seen(self.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation[POSITIONS], info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        return observation[POSITIONS], reward, terminated, truncated, info


class PositionOnlyCartPoleVector(CartPoleVectorEnv):
    """N of them at once; made by `gymnasium.make_vec`. Takes the arguments of Gymnasium's `CartPoleVectorEnv`."""

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(num_envs, **options)
        self.single_observation_space = _seen(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation[:, POSITIONS], info

    def step(self, action: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation[:, POSITIONS], reward, terminated, truncated, info


def _seen(space: Any) -> gym.spaces.Box:
    return gym.spaces.Box(space.low[POSITIONS], space.high[POSITIONS], dtype=np.float32)
