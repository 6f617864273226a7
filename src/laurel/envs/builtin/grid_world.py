"""The grid world: squares, walls, a goal, a trap and random slips; an action is a move or a list of moves.

The default is the 4 x 3 world of Russell & Norvig, "Artificial Intelligence: A Modern Approach", chapter "Making
complex decisions", whose utilities are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.envs.builtin.model import from_table
from laurel.envs.builtin.simulator import Simulator
from laurel.envs.sequences import Sequences
from laurel.errors import EnvError

FREE, WALL, START, GOAL, TRAP = ".#SGX"
RUSSELL_NORVIG = ("...G", ".#.X", "S...")
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Rows and columns by which an action moves: left, down, right, up, as on Gymnasium's frozen lake."""
ACTIONS = ("left", "down", "right", "up")
HEADED = ("forward", "left", "right")
"""Moves of a walker with a heading: a step ahead, or a turn on the spot."""
HEADINGS = ("west", "south", "east", "north")
"""In the order of MOVES."""
Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class GridWorld(gym.Env[np.int64, np.int64]):
    """Reach the goal. An observation is the index of a square, row by row; with headings, 4 times the index plus the
    heading.

    Args:
        squares: the map, one string per row: "." free, "#" wall, "S" start (one of them), "G" goal, "X" trap.
        size: rows and columns of a map without walls where every square but the goal is a start; instead of `squares`.
        goal: its row and column, from 0; only for a map that `size` makes.
        heading: whether the walker faces one of HEADINGS (random at the start) and has the moves HEADED.
        actions: "moves": an action is a move; "sequence": an action is a list of moves, executed until one ends the
            episode, and rewarded as a single action (`laurel.envs.sequences` numbers the lists).
        max_moves: maximum length of a list.
        slip: probability of going to one side of the chosen direction, half of it to each; walls stop the walker.
        step_reward: reward of every step, that is, of every action.
        goal_reward: added on reaching the goal, which ends the episode.
        trap_reward: the same for the trap.
        render_mode: "ansi" or None.

    >>> env = GridWorld(slip=0.0, render_mode="ansi")
    >>> observation, info = env.reset(seed=0)
    >>> env.step(3)[:3]
    (np.int64(4), -0.04, False)
    >>> env.render().splitlines()
    ['...G', '@#.X', 'S...']

    Raises:
        EnvError: the map or another argument is not allowed.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self,
        squares: Sequence[str] | None = None,
        *,
        size: int | None = None,
        goal: Sequence[int] = (1, 1),
        heading: bool = False,
        actions: str = "moves",
        max_moves: int = 8,
        slip: float = 0.2,
        step_reward: float = -0.04,
        goal_reward: float = 1.0,
        trap_reward: float = -1.0,
        render_mode: str | None = None,
    ) -> None:
        if squares is not None and size is not None:
            raise EnvError("GridWorld: both squares and size make the map. Leave one of them out.")
        if actions not in ("moves", "sequence"):
            raise EnvError(f'GridWorld: actions is {actions!r}, but must be "moves" or "sequence".')
        layout = _open(size, tuple(goal)) if size is not None else RUSSELL_NORVIG if squares is None else squares
        self.squares = _checked(layout)
        if not 0 <= slip <= 1:
            raise EnvError(f"GridWorld: slip is {slip}; a probability is from 0 to 1.")
        self.render_mode = render_mode
        self.headings = len(HEADINGS) if heading else 1
        self.moves = HEADED if heading else ACTIONS
        self.lists = Sequences(len(self.moves), max_moves if actions == "sequence" else 1)
        flat = "".join(self.squares)
        starts = np.array([square == START for square in flat], dtype=np.float64)
        self.initial_state_distrib = np.repeat(starts / starts.sum() / self.headings, self.headings)
        ends = {GOAL: goal_reward, TRAP: trap_reward}
        self.outcomes: Table = {
            state: {move: self._outcomes(state, move, slip, step_reward, ends) for move in range(len(self.moves))}
            for state in range(len(self.initial_state_distrib))
        }
        """The outcome of a move."""
        if actions == "moves":
            self.P = self.outcomes  # the attribute in which Gymnasium's toy environments store their model
        self.observation_space = gym.spaces.Discrete(len(self.outcomes))
        self.action_space = gym.spaces.Discrete(self.lists.count)
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Begin an episode, in `options["state"]` if given.

        Raises:
            EnvError: there is no such state, or the episode ends there.
        """
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(len(self.initial_state_distrib), p=self.initial_state_distrib))
        if options and "state" in options:
            self._state = int(_startable(self, options["state"]))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        reward, terminated = 0.0, False
        for move in self.lists.moves(int(action)):
            outcomes = self.outcomes[self._state][move]
            index = self.np_random.choice(len(outcomes), p=[outcome[0] for outcome in outcomes])
            _, self._state, reward, terminated = outcomes[index]
            if terminated:
                break
        return np.int64(self._state), reward, terminated, False, {}

    def moves_to_goal(self) -> IntArray:
        """Return the fewest moves (S,) from each state to a goal without slips; -1 if there is no path."""
        straight = np.array([[outcomes[0][1] for outcomes in moves.values()] for moves in self.outcomes.values()])
        goals = np.repeat(np.array(list("".join(self.squares))) == GOAL, self.headings)
        distance = np.where(goals, 0, -1)
        for moves in range(1, len(distance)):
            distance[(distance < 0) & (distance[straight] == moves - 1).any(axis=1)] = moves
        return distance

    def render(self) -> str | None:
        if self.render_mode is None:
            return None
        flat = list("".join(self.squares))
        flat[self._state // self.headings] = "@" if self.headings == 1 else "<v>^"[self._state % self.headings]
        width = len(self.squares[0])
        return "\n".join("".join(flat[i : i + width]) for i in range(0, len(flat), width))

    def _outcomes(
        self, state: int, action: int, slip: float, step_reward: float, ends: dict[str, float]
    ) -> list[tuple[float, int, float, bool]]:
        """Return the possible outcomes of an action, in the form of Gymnasium's tables."""
        width = len(self.squares[0])
        place, heading = divmod(state, self.headings)
        row, column = divmod(place, width)
        if self.squares[row][column] in (WALL, GOAL, TRAP):
            return [(1.0, state, 0.0, True)]  # no action is ever taken there
        if self.headings > 1 and action:  # HEADINGS are ordered by left turns
            return [(1.0, place * self.headings + (heading + (1, -1)[action - 1]) % self.headings, step_reward, False)]
        action = heading if self.headings > 1 else action
        outcomes = []
        for turn, probability in ((0, 1 - slip), (-1, slip / 2), (1, slip / 2)):
            down, right = MOVES[(action + turn) % len(MOVES)]
            target = (row + down, column + right)
            inside = 0 <= target[0] < len(self.squares) and 0 <= target[1] < width
            if not inside or self.squares[target[0]][target[1]] == WALL:
                target = (row, column)
            square = self.squares[target[0]][target[1]]
            reward = step_reward + ends.get(square, 0.0)
            after = (target[0] * width + target[1]) * self.headings + heading
            outcomes.append((probability, after, reward, square in ends))
        return outcomes


class GridWorldVector(Simulator):
    """N walkers at once; made by `gymnasium.make_vec`. Takes the arguments of `GridWorld`."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any) -> None:
        self.world = GridWorld(**options)
        model = from_table(self.world.outcomes, self.world.initial_state_distrib, "GridWorld")
        super().__init__(model, num_envs, max_episode_steps)
        self.single_action_space = self.world.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin N episodes, in the states `options["state"]` (N,) or () if given; raises the errors of
        `GridWorld.reset`.
        """
        observation, info = super().reset(seed=seed)
        if options and "state" in options:
            self._state[:] = _startable(self.world, options["state"])
            observation = self.observe()
        return observation, info

    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        if self.world.lists.longest == 1:
            return super().advance(actions, begins)
        paid, ended = np.zeros(self.num_envs), begins.copy()
        no_begins = np.zeros(self.num_envs, dtype=np.bool_)
        for moves in self.world.lists.table(actions).T:
            going = ~ended & (moves >= 0)
            if not going.any():
                break
            before = self._state.copy()
            reward, terminated = super().advance(np.maximum(moves, 0), no_begins)
            self._state = np.where(going, self._state, before)
            paid = np.where(going, reward, paid)
            ended |= going & terminated
        self.begin(begins)
        return paid, ended


def _startable(world: GridWorld, state: Any) -> IntArray:
    """Validate and return states.

    Raises:
        EnvError: a state does not exist, or ends the episode.
    """
    states = np.asarray(state, dtype=np.int64)
    flat = np.repeat(np.array(list("".join(world.squares))), world.headings)
    if (states < 0).any() or (states >= len(flat)).any() or np.isin(flat[states], (WALL, GOAL, TRAP)).any():
        raise EnvError(f"GridWorld: no episode can begin in state {state}; states are from 0 to {len(flat) - 1}.")
    return states


def _open(size: int, goal: tuple[int, ...]) -> tuple[str, ...]:
    """Return a map without walls."""
    if size < 2 or len(goal) != 2 or not all(0 <= place < size for place in goal):
        raise EnvError(f"GridWorld: size is {size} and goal {goal}; the goal is a row and column from 0 to size - 1.")
    return tuple("".join(GOAL if (row, column) == goal else START for column in range(size)) for row in range(size))


def _checked(squares: Sequence[str]) -> tuple[str, ...]:
    rows = tuple(squares)
    if not rows or len({len(row) for row in rows}) > 1 or set("".join(rows)) - {FREE, WALL, START, GOAL, TRAP}:
        raise EnvError(f'GridWorld: squares are {rows}; rows have one length and consist of ". # S G X".')
    if len("".join(rows)) < 2:
        raise EnvError(f"GridWorld: squares are {rows}; a map has at least two squares.")
    if START not in "".join(rows):
        raise EnvError('GridWorld: squares have no start. Put an "S" on one of them.')
    return rows
