"""The action spaces that policies support."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from laurel.errors import EnvError


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
