"""Frozen lake: captions of the agent's position, and whether it came closer to the goal.

Observations are squares counted row by row (https://gymnasium.farama.org/environments/toy_text/frozen_lake/);
only the map's size, its goals and its holes are used, so random maps fit as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

STAY, CLOSER, FARTHER, ASIDE, FALL, REACH = range(6)
ACTIONS = ("left", "down", "right", "up")
WAYS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Rows and columns by which an action moves."""

_WORDS = {
    STAY: "You stay where you are, {distance} from the goal, at {place}.",
    CLOSER: "You move closer to the goal: you are {distance} from it, at {place}.",
    FARTHER: "You move away from the goal: you are {distance} from it, at {place}.",
    ASIDE: "You move, but stay {distance} from the goal, at {place}.",
    FALL: "You fall through a hole in the ice.",
    REACH: "You reach the goal.",
}

_PROGRESS = (("reach the goal", 1.0), ("fall through", -1.0), ("closer to the goal", 0.3))


_GOALS = {
    "safe": "Stay on the ice and never fall through a hole. You do not care about the goal.",
    "explore": "Go from square to square and never stay where you are. You do not care about the goal.",
    "start": "Stay near the start, at row 1, column 1. You do not care about the goal or about holes.",
}


class FrozenLakeAdapter(EnvAdapter):
    """Any map of the frozen lake, slippery or not."""

    ids: ClassVar[tuple[str, ...]] = ("FrozenLake-v*", "FrozenLake8x8-v*")
    action_names: tuple[str, ...] = ACTIONS
    observation_features = (
        Feature("row", "from 0 at the top", whole=True),
        Feature("column", "from 0 at the left", whole=True),
        Feature("goal_distance", "rows and columns to the nearest goal, 0 at the goal", whole=True),
    )
    description = (
        "A frozen lake as a grid of squares. The agent walks left, down, right or up from its start to the goal; "
        "the ice may be slippery, and some squares are holes that end the episode."
    )
    goal = "Move closer to the goal and reach the goal."
    anti_goal = "Move away from the goal or fall through a hole in the ice."
    goals: Mapping[str, str] = _GOALS
    success_words = ("reach the goal",)
    _words: Mapping[int, str] = _WORDS
    _names: Mapping[str, str] = {"S": "ice", "F": "ice", "H": "a hole", "G": "the goal"}
    """Letter on the map -> name of such a square."""

    def __init__(
        self, env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, with_action: bool = False
    ) -> None:
        super().__init__(env_id, observation_space, action_space, with_action=with_action)
        n = int(observation_space.n)  # type: ignore[attr-defined]
        side = math.isqrt(n)
        goals = np.zeros((side, n // side), dtype=np.bool_)
        goals[-1, -1] = True
        self._squares = np.where(goals, "G", "F")
        self._set_map(goals)

    def feature_values(self, observation: Array) -> Array:
        square = observation[:, 0]
        return np.stack([*np.divmod(square, self._columns), self._distance[square]], axis=1)

    def inspect(self, env: gym.Env[Any, Any]) -> None:
        self._set_squares(env.unwrapped.desc.astype("U1"))  # type: ignore[attr-defined]

    def _set_squares(self, squares: Array) -> None:
        """Set the map (rows, columns), one letter per square."""
        self._squares = squares
        self._set_map(squares == "G")

    def _set_map(self, goals: BoolArray) -> None:
        """Set the map's goals (rows, columns)."""
        self._columns = goals.shape[1]
        self._goal = goals.reshape(-1)
        rows, columns = np.indices(goals.shape).reshape(2, -1)
        to_goals = np.abs(rows - rows[self._goal][:, None]) + np.abs(columns - columns[self._goal][:, None])
        self._distance = to_goals.min(axis=0, initial=goals.size)
        self._shape = (len(_WORDS), goals.size, len(ACTIONS) + 1)
        near, far = (int(np.flatnonzero(~self._goal)[i]) for i in (-1, 0))
        self.example = Example(
            self.describe(int(np.ravel_multi_index((CLOSER, near, 0), self._shape))),
            self.describe(int(np.ravel_multi_index((FARTHER, far, 0), self._shape))),
            "One came nearer to the goal, and the other went away from it.",
        )

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation[:, 0], transitions.next_observation[:, 0]
        nearer = self._distance[before] - self._distance[after]
        conditions = [
            transitions.terminated & self._goal[after],
            transitions.terminated,
            before == after,
            nearer > 0,
            nearer < 0,
        ]
        event = np.select(conditions, [REACH, FALL, STAY, CLOSER, FARTHER], ASIDE)
        square = np.where(transitions.terminated, 0, after)
        named_action = transitions.action + 1 if self.with_action else np.zeros_like(event)
        return np.ravel_multi_index((event, square, named_action), self._shape).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, square, action = (int(digit) for digit in np.unravel_index(event, self._shape))
        row, column = divmod(square, self._columns)
        squares = int(self._distance[square])
        distance = f"{squares} square{'s' if squares != 1 else ''}"
        text = self._words[verb].format(distance=distance, place=f"row {row + 1}, column {column + 1}")
        return f"You try to go {ACTIONS[action - 1]}. {text}" if action else text

    def events(self) -> Iterable[int]:
        return self.possible(self._events())

    def _events(self) -> Iterator[int]:
        actions = range(1, self._shape[2]) if self.with_action else (0,)
        for verb in _WORDS:
            if verb == ASIDE and self._goal.sum() == 1 and self.max_moves == 1:
                continue  # every move leads nearer to a single goal or away from it
            for square in (0,) if verb in (FALL, REACH) else np.flatnonzero(~self._goal):
                for action in actions:
                    yield int(np.ravel_multi_index((verb, square, action), self._shape))

    def describe_observation(self, observation: Any) -> str:
        row, column = divmod(int(observation), self._columns)
        squares = int(self._distance[int(observation)])
        ways = ", ".join(f"{way} {self._neighbour(row + down, column + right)}" for way, (down, right) in WAYS.items())
        return (
            f"You are at row {row + 1}, column {column + 1}, {squares} square{'s' * (squares != 1)} from the goal. "
            f"Around you: {ways}."
        )

    def _neighbour(self, row: int, column: int) -> str:
        """Say what is on a square next to the agent."""
        rows, columns = self._squares.shape
        return self._names[self._squares[row, column]] if 0 <= row < rows and 0 <= column < columns else "the edge"

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return self._goal[last.next_observation[:, 0]]  # not by the return, which costs per step can make negative

    def oracle(self, caption: str) -> float:
        """Reward the goal, and a little coming closer."""
        return next((value for words, value in _PROGRESS if words in caption), 0.0)
