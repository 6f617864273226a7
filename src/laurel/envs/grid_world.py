"""The grid world (`laurel.envs.builtin.grid_world`): captions and states as on the frozen lake, in its own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import Transitions
from laurel.envs.builtin.grid_world import FREE, GOAL, HEADINGS, START, TRAP, WALL, GridWorld
from laurel.envs.builtin.model import Table
from laurel.envs.frozen_lake import FALL, FrozenLakeAdapter
from laurel.envs.sequences import Sequences

HEADED = (
    "A grid of squares. The agent faces west, south, east or north; it walks forward, or turns left or right on the "
    "spot, until it is at the goal. The grid's edge and walls stop it."
)


class GridWorldAdapter(FrozenLakeAdapter):
    """Any map of the grid world; a trap is treated like a hole in the lake."""

    ids: ClassVar[tuple[str, ...]] = ("laurel/GridWorld-v*",)
    description = (
        "A grid of squares. The agent walks left, down, right or up from its start to the goal; its feet may slip to "
        "one side, walls stop it, and a trap ends the episode."
    )
    anti_goal = "Move away from the goal or fall into the trap."
    goals: Mapping[str, str] = MappingProxyType({})
    headings = 1
    """Number of headings; an observation is the square times that, plus the heading."""
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
        self.headings, self.max_moves = world.headings, world.lists.longest
        self.action_names = world.moves
        self.table = Table(world.outcomes, world.initial_state_distrib)
        if self.headings > 1:
            self.description = HEADED
        self._set_squares(np.array([list(row) for row in world.squares]))
        self._shape = (*self._shape[:2], world.lists.count + 1)

    @property
    def _plain(self) -> bool:
        """Whether states and actions are those of the frozen lake: no headings, one move per action."""
        return self.headings == 1 and self.max_moves == 1

    def action_name(self, action: Any) -> str:
        if self.max_moves == 1:
            return super().action_name(action)
        moves = Sequences(len(self.action_names), self.max_moves).moves(int(action))
        return ", ".join(self.action_names[move] for move in moves)

    def feature_values(self, observation: Array) -> Array:
        return super().feature_values(observation // self.headings)

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation, transitions.next_observation
        return super().encode(
            replace(transitions, observation=before // self.headings, next_observation=after // self.headings)
        )

    def describe(self, event: int) -> str:
        action = int(np.unravel_index(event, self._shape)[2])
        if self._plain or not action:
            return super().describe(event)
        return f"You try: {self.action_name(action - 1)}. {super().describe(event - action)}"

    def events(self) -> Iterable[int]:
        """List the events; none if captions name the action and actions are lists of moves, which are too many."""
        if self.with_action and self.max_moves > 1:
            return ()
        return super().events() if self.max_moves == 1 else self._events()  # the table has single moves

    def describe_observation(self, observation: Any) -> str:
        if self._plain:
            return super().describe_observation(observation)
        place, heading = divmod(int(observation), self.headings)
        facing = f", facing {HEADINGS[heading]}" if self.headings > 1 else ""
        row, column = divmod(place, self._columns)
        sentences = [f"You are at row {row + 1}, column {column + 1}{facing}."]
        for letter, name in ((GOAL, "goal"), (WALL, "wall"), (TRAP, "trap")):
            squares = [f"row {r + 1}, column {c + 1}" for r, c in np.argwhere(self._squares == letter).tolist()]
            if squares:
                sentences.append(f"{name.capitalize()}: {'; '.join(squares)}.")
        return " ".join(sentences)

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return super().succeeded(returns, replace(last, next_observation=last.next_observation // self.headings))

    def oracle(self, caption: str) -> float:
        """Reward the goal, and a little coming closer."""
        return -1.0 if "the trap" in caption else super().oracle(caption)
