"""NetHack on NLE's compiled game (`nle.nethack`), without the overhead of NLE's Gymnasium environments.

The game itself is in `laurel.envs.builtin.nethack_game`. Observations hold less than NLE's: the squares around the
player, the status, the message and earlier messages of the step that were dismissed, as a row of numbers. Gymnasium's
limit cuts an episode, without quitting the game. `info` has `stairs`, the distance in squares to the nearest visible
staircase or ladder down, -1 if there is none, and `target`: 0 until the task's target is reached, 1 in the step that
reaches it, 2 after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.envs.builtin.batch import BatchEnv
from laurel.envs.builtin.nethack_game import (
    CROP,
    DISMISSED,
    MAPS,
    MESSAGE,
    ON_STAIRS_DOWN,
    SAID,
    SHAPE,
    STATUS,
    TARGET,
    X,
    Y,
    actions,
    check_types,
)  # fmt: skip
from laurel.envs.builtin.nethack_glyphs import down, symbols
from laurel.envs.builtin.nethack_processes import Divided
from laurel.errors import EnvError

Row = npt.NDArray[np.int32]


class Games:
    """N games whose observations share arrays; other arguments and errors as in `Game`.

    Args:
        number: N.
        processes: number of processes that run the games, including this one; it does not change the games.
    """

    def __init__(self, number: int, processes: int = 1, **options: Any) -> None:
        _check_processes(processes)
        self._games = Divided(number, processes, options)
        self.games, self._seen = self._games.here, self._games.seen
        self._x, self._y = (self._seen["blstats"][:, place] for place in (X, Y))
        self._maps, self._internal = self._seen[MAPS], self._seen["internal"]
        self.crop: int = options.get("crop", CROP)
        self._around = _around(self.crop)
        self._number = number
        self._begins = np.arange(number)[:, None] * self._maps.shape[1]

    @property
    def size(self) -> int:
        """Length of an observation."""
        return self.crop**2 + STATUS + DISMISSED + MESSAGE

    def begin(self, mask: Sequence[bool], rng: np.random.Generator) -> None:
        """Begin new games at some indices (N,), one after another."""
        for game, begins in zip(self._games.games, mask, strict=True):
            if begins:
                game.begin(rng)

    def step(self, actions: Sequence[int | None]) -> list[tuple[float, bool]]:
        """Take actions (N,) where there are any; return the rewards, and whether the game or the task ended."""
        return self._games.step(actions)

    def observe(self) -> npt.NDArray[np.int32]:
        """Return glyphs around the players (N, crop * crop), row by row, statuses and messages, as (N, size)."""
        status = self._seen["blstats"]
        rows = np.empty((self._number, self.size), dtype=np.int32)
        around = self._around.take(self._y * SHAPE[1] + self._x, axis=0)
        rows[:, : self.crop**2] = self._maps.take(around + self._begins)  # faster than indexing, which checks more
        begin = self.crop**2 + STATUS
        rows[:, begin - STATUS : begin] = status
        rows[:, begin:] = self._seen[SAID]
        return rows

    def stairs(self) -> IntArray:
        """Return the distance to the nearest visible way down (N,), -1 if there is none.

        Counted in steps in eight directions as if there were no walls.
        """
        staircase, ladder = down()
        shown = ((self._maps == staircase) | (self._maps == ladder)).tobytes()  # searched faster than with NumPy
        distances = [0 if on_them else -1 for on_them in self._internal[:, ON_STAIRS_DOWN].tolist()]
        place = shown.find(1)
        while place >= 0:
            game, square = divmod(place, self._maps.shape[1])
            y, x = divmod(square, SHAPE[1])
            distance = max(abs(y - self._y.item(game)), abs(x - self._x.item(game)))
            distances[game] = distance if distances[game] < 0 else min(distance, distances[game])
            place = shown.find(1, place + 1)
        return np.array(distances)

    def info(self) -> dict[str, IntArray]:
        """Return the `info` of the last step, (N,) each."""
        return {"stairs": self.stairs(), "target": self._seen[TARGET][:, 0].copy()}

    def close(self) -> None:
        """End all games."""
        self._games.close()


def _check_processes(processes: int) -> None:
    check_types({"processes": processes})
    if processes < 1:
        raise EnvError(f"NetHack: processes is {processes}; it must be at least 1.")


@cache
def _around(crop: int) -> npt.NDArray[np.int16]:
    """Return for each square of a map (1659,) the squares around it (crop * crop); those outside map to the last, dark
    square.
    """
    rows, columns = SHAPE
    squares = np.pad(np.arange(rows * columns).reshape(SHAPE), crop // 2, constant_values=rows * columns)
    windows = np.lib.stride_tricks.sliding_window_view(squares, (crop, crop))
    return windows.reshape(rows * columns, crop * crop).astype(np.int16)  # small enough for a processor's cache


def _space(size: int) -> gym.Space[Row]:
    limits = np.iinfo(np.int32)
    return gym.spaces.Box(limits.min, limits.max, (size,), np.int32)


class NetHack(gym.Env[Row, np.int64]):
    """One game; arguments and errors as in `Game`.

    Args:
        status_in_words: whether captions include depth, health, gold and hunger besides the message.
        processes: as in `Games`, for vector environments; a single game runs in this process.
        render_mode: "ansi" or None.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 8}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self, *, status_in_words: bool = False, render_mode: str | None = None, processes: int = 1, **options: Any
    ) -> None:
        check_types({"status_in_words": status_in_words})
        _check_processes(processes)  # of its vector form, which is made only when a run has begun
        self.render_mode, self.status_in_words = render_mode, status_in_words
        self.games = Games(1, **options)
        self.observation_space = _space(self.games.size)
        self.action_space = gym.spaces.Discrete(len(actions()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        super().reset(seed=seed)
        self.games.games[0].begin(self.np_random)
        return self.games.observe()[0], self._info()

    def step(self, action: np.int64) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        reward, ended = self.games.games[0].step(int(action))
        return self.games.observe()[0], reward, ended, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {name: int(values[0]) for name, values in self.games.info().items()}

    def render(self) -> str | None:
        """Return the message and the squares around the player as text."""
        if self.render_mode is None:
            return None
        row, side = self.games.observe()[0], self.games.crop
        squares = symbols()[row[: side**2]].reshape(side, side)
        return "\n".join([message_of(row), *("".join(line) for line in squares)])

    def close(self) -> None:
        self.games.close()


class NetHackVector(BatchEnv):
    """N games; the step after an episode's end is a reset. Arguments as in `NetHack` and `Games`."""

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        *,
        status_in_words: bool = False,
        **options: Any,
    ) -> None:
        self.games, self.status_in_words = Games(num_envs, **options), status_in_words
        super().__init__(num_envs, max_episode_steps, _space(self.games.size), len(actions()))

    def begin(self, mask: BoolArray) -> None:
        self.games.begin(mask.tolist(), self.np_random)

    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        turns = zip(actions.tolist(), begins.tolist(), strict=True)
        rewards, ended = zip(*self.games.step([None if begin else action for action, begin in turns]), strict=True)
        if begins.any():
            self.begin(begins)
        return np.array(rewards), np.array(ended)

    def observe(self) -> npt.NDArray[np.int32]:
        return self.games.observe()

    def info(self) -> dict[str, Any]:
        return self.games.info()

    def close_extras(self, **_: Any) -> None:
        self.games.close()


def message_of(row: Row) -> str:
    """Return the message of an observation, which may be empty."""
    return _text(row[-MESSAGE:])


def said_in(row: Row) -> list[str]:
    """Return all messages of the step before an observation: the dismissed ones and the last."""
    return [*_text(row[-DISMISSED - MESSAGE : -MESSAGE]).split("\n"), message_of(row)]


def _text(letters: Row) -> str:
    return letters.astype(np.uint8).tobytes().partition(b"\0")[0].decode("latin-1").strip()
