"""The grid world: squares, walls, a goal and a trap, and feet that slip.

The default is the 4 x 3 world of Russell & Norvig, "Artificial Intelligence: A Modern Approach", chapter "Making
complex decisions", whose utilities are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.envs.builtin.model import from_table
from laurel.envs.builtin.simulator import Simulator
from laurel.errors import EnvError

FREE, WALL, START, GOAL, TRAP = ".#SGX"
RUSSELL_NORVIG = ("...G", ".#.X", "S...")
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Rows and columns that an action goes: left, down, right, up, as on Gymnasium's frozen lake."""
ACTIONS = ("left", "down", "right", "up")
Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class GridWorld(gym.Env[np.int64, np.int64]):
    """Walk to the goal. Observations are squares, counted row by row.

    Args:
        squares: the map, a string a row: "." free, "#" wall, "S" start (one of them), "G" goal, "X" trap.
        slip: probability of going to one side of the chosen direction, half of it to each; walls stop the walker.
        step_reward: paid at every step.
        goal_reward: paid on top at the goal, which ends the episode.
        trap_reward: the same for the trap.
        render_mode: "ansi" or None.

    >>> env = GridWorld(slip=0.0, render_mode="ansi")
    >>> observation, info = env.reset(seed=0)
    >>> env.step(3)[:3]
    (np.int64(4), -0.04, False)
    >>> env.render().splitlines()
    ['...G', '@#.X', 'S...']

    Raises:
        EnvError: the map is not one.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self,
        squares: Sequence[str] = RUSSELL_NORVIG,
        *,
        slip: float = 0.2,
        step_reward: float = -0.04,
        goal_reward: float = 1.0,
        trap_reward: float = -1.0,
        render_mode: str | None = None,
    ) -> None:
        self.squares = _checked(squares)
        if not 0 <= slip <= 1:
            raise EnvError(f"GridWorld: slip is {slip}; a probability is from 0 to 1.")
        self.render_mode = render_mode
        flat = "".join(self.squares)
        self.initial_state_distrib = np.array([square == START for square in flat], dtype=np.float64)
        self.initial_state_distrib /= self.initial_state_distrib.sum()
        ends = {GOAL: goal_reward, TRAP: trap_reward}
        self.P: Table = {
            state: {action: self._outcomes(state, action, slip, step_reward, ends) for action in range(len(MOVES))}
            for state in range(len(flat))
        }
        self.observation_space = gym.spaces.Discrete(len(flat))
        self.action_space = gym.spaces.Discrete(len(MOVES))
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(len(self.initial_state_distrib), p=self.initial_state_distrib))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        outcomes = self.P[self._state][int(action)]
        which = self.np_random.choice(len(outcomes), p=[outcome[0] for outcome in outcomes])
        _, self._state, reward, terminated = outcomes[which]
        return np.int64(self._state), reward, terminated, False, {}

    def render(self) -> str | None:
        if self.render_mode is None:
            return None
        flat = list("".join(self.squares))
        flat[self._state] = "@"
        width = len(self.squares[0])
        return "\n".join("".join(flat[i : i + width]) for i in range(0, len(flat), width))

    def _outcomes(
        self, state: int, action: int, slip: float, step_reward: float, ends: dict[str, float]
    ) -> list[tuple[float, int, float, bool]]:
        """Return what an action may lead to, as in Gymnasium's tables."""
        width = len(self.squares[0])
        row, column = divmod(state, width)
        if self.squares[row][column] in (WALL, GOAL, TRAP):
            return [(1.0, state, 0.0, True)]  # no action is ever taken there
        outcomes = []
        for turn, probability in ((0, 1 - slip), (-1, slip / 2), (1, slip / 2)):
            down, right = MOVES[(action + turn) % len(MOVES)]
            to = (row + down, column + right)
            inside = 0 <= to[0] < len(self.squares) and 0 <= to[1] < width
            if not inside or self.squares[to[0]][to[1]] == WALL:
                to = (row, column)
            square = self.squares[to[0]][to[1]]
            reward = step_reward + ends.get(square, 0.0)
            outcomes.append((probability, to[0] * width + to[1], reward, square in ends))
        return outcomes


class GridWorldVector(Simulator):
    """N walkers at once; what `gymnasium.make_vec` makes. Takes the arguments of `GridWorld`."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any) -> None:
        world = GridWorld(**options)
        super().__init__(from_table(world.P, world.initial_state_distrib, "GridWorld"), num_envs, max_episode_steps)


def _checked(squares: Sequence[str]) -> tuple[str, ...]:
    rows = tuple(squares)
    if not rows or len({len(row) for row in rows}) > 1 or set("".join(rows)) - {FREE, WALL, START, GOAL, TRAP}:
        raise EnvError(f'GridWorld: squares are {rows}; rows have one length and consist of ". # S G X".')
    if START not in "".join(rows):
        raise EnvError('GridWorld: squares have no start. Put an "S" on one of them.')
    return rows
