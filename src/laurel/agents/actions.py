"""Which actions agents take: one of a few, or a row of numbers.

Knows Gymnasium's spaces.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from laurel.errors import EnvError


def action_form(space: gym.Space[Any]) -> tuple[int, bool]:
    """Return how many actions there are to choose from, or of how many numbers one is, and whether it is the latter.

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
    """Return how many actions there are to choose from, for an algorithm that cannot do otherwise.

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
