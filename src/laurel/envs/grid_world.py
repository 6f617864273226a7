"""The grid world (`laurel.envs.builtin.grid_world`): captions and states as on the frozen lake, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from laurel.envs.builtin.grid_world import FREE, GOAL, START, TRAP, WALL, GridWorld
from laurel.envs.frozen_lake import FALL, FrozenLakeAdapter


class GridWorldAdapter(FrozenLakeAdapter):
    """Any map of the grid world; a trap is what a hole is on the lake."""

    ids: ClassVar[tuple[str, ...]] = ("laurel/GridWorld-v*",)
    description = (
        "A grid of squares. The agent walks left, down, right or up from its start to the goal; its feet may slip to "
        "one side, walls stop it, and a trap ends the episode."
    )
    anti_goal = "Move away from the goal or fall into the trap."
    goals: Mapping[str, str] = MappingProxyType({})
    _words: Mapping[int, str] = {**FrozenLakeAdapter._words, FALL: "You fall into the trap."}
    _names: Mapping[str, str] = {
        FREE: "a free square",
        START: "a free square",
        WALL: "a wall",
        TRAP: "the trap",
        GOAL: "the goal",
    }

    def inspect(self, env: Any) -> None:
        world = env.unwrapped
        assert isinstance(world, GridWorld)
        self._set_squares(np.array([list(row) for row in world.squares]))

    def oracle(self, caption: str) -> float:
        """Pay for the goal, and a little for coming closer."""
        return -1.0 if "the trap" in caption else super().oracle(caption)
