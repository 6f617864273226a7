"""The action spaces that policies support, and those that are hard to explore."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from laurel.errors import EnvError

REACH = 3.0
"""Magnitude that a continuous action rarely exceeds before anything is learned: deviations from zero of a standard
Gaussian, as which policies begin."""
LEAST_TRIED = 0.25
"""Share of an action's range that policies reach at first, below which a warning says that they hardly try the rest."""


def action_form(space: gym.Space[Any]) -> tuple[int, bool]:
    """Return the number of discrete actions, or the dimension of continuous ones, and whether they are continuous.

    >>> action_form(gym.spaces.Discrete(3)), action_form(gym.spaces.Box(-1.0, 1.0, (2,)))
    ((3, False), (2, True))

    Raises:
        EnvError: the space is neither Discrete from 0 on nor a flat Box.
    """
    match space:
        case gym.spaces.Discrete() if space.start == 0:
            return int(space.n), False
        case gym.spaces.Box() if len(space.shape) == 1:
            return space.shape[0], True
        case _:
            raise EnvError(
                f"Action space {space} is not supported: policies act in Discrete (from 0 on) and "
                "one-dimensional Box spaces. Wrap the environment so that it has one of these."
            )


def hardly_tried(space: gym.Space[Any]) -> str | None:
    """Return the bounds of a continuous action most of whose range a Gaussian policy hardly tries; None if there is
    none. Unbounded actions are skipped.

    >>> hardly_tried(gym.spaces.Box(np.float32([-1, -5]), np.float32([1, 30])))
    'from -5 to 30 (number 2 of 2)'
    >>> hardly_tried(gym.spaces.Box(-2.0, 2.0, (1,)))
    """
    if not isinstance(space, gym.spaces.Box):
        return None
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    tried = (high.clip(-REACH, REACH) - low.clip(-REACH, REACH)) < LEAST_TRIED * (high - low)
    for i in np.flatnonzero(tried & np.isfinite(high - low)).tolist():
        suffix = f" (number {i + 1} of {len(low)})" if len(low) > 1 else ""
        return f"from {low[i]:g} to {high[i]:g}{suffix}"
    return None


def discrete_actions(space: gym.Space[Any], algorithm: str) -> int:
    """Return the number of actions, for an algorithm that only supports discrete ones.

    Raises:
        EnvError: the space is not Discrete from 0 on.
    """
    n_actions, continuous = action_form(space)
    if continuous:
        raise EnvError(
            f"agent.algorithm is {algorithm}, which chooses among Discrete actions, but the environment's are {space}. "
            "Set it to ppo, a2c or reinforce."
        )
    return n_actions
