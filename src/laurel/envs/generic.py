"""Any environment without a room: captions from the observation space alone.

Discrete parts are named by their value, continuous ones by a coarse level; parts beyond the first few are
left out. That is enough to run the pipeline, seldom enough for a language model to judge by: a room of
one's own says what the numbers mean.
"""

from __future__ import annotations

from typing import ClassVar

from laurel.envs.base import Room

LEVELS = ("very low", "low", "middling", "high", "very high")
MAX_PARTS = 6


class GenericRoom(Room):
    """Says the next observation part by part."""

    ids = ("*",)
    generic: ClassVar[bool] = True
    max_episode_steps = 1000
    description = "An environment of which only the observations' numbers are known."
    goal = "The episode goes well and the reward is high."
