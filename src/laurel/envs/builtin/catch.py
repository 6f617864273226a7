"""Catch: a ball falls through a picture, and a paddle in its last row must be there in time.

The game is that of bsuite (Osband et al. 2020, arXiv 1908.03568), in a picture of bytes.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array

MOVES = (-1, 0, 1)
"""Columns that each action moves the paddle by: left, stay, right."""
BRIGHT = 255
SQUARE = 32
"""Side of an image cell in rendered pixels."""


class Catch(gym.Env[Array, np.int64]):
    """Catch the ball: the episode ends when it is in the last row, and is paid 1 where the paddle is there, else -1.

    Args:
        rows: height of the picture.
        columns: its width; the ball begins in any of them, the paddle in the middle.
        render_mode: "rgb_array" or None.

    >>> env = Catch(rows=3, columns=3)
    >>> env.reset(seed=0)[0][:, :, 0].tolist()
    [[0, 0, 255], [0, 0, 0], [0, 255, 0]]
    >>> observation, reward, terminated, *_ = env.step(2)
    >>> observation[:, :, 0].tolist()
    [[0, 0, 0], [0, 0, 255], [0, 0, 255]]
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, *, rows: int = 10, columns: int = 5, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, BRIGHT, (rows, columns, 1), np.uint8)
        self.action_space = gym.spaces.Discrete(len(MOVES))
        self.rows, self.columns = rows, columns
        self._row = self._column = self._paddle = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._row, self._column, self._paddle = 0, int(self.np_random.integers(self.columns)), self.columns // 2
        return self._picture(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + MOVES[int(action)], 0), self.columns - 1)
        self._row += 1
        landed = self._row == self.rows - 1
        reward = (1.0 if self._paddle == self._column else -1.0) if landed else 0.0
        return self._picture(), reward, landed, False, {}

    def render(self) -> Array | None:
        if self.render_mode is None:
            return None
        return self._picture().repeat(SQUARE, axis=0).repeat(SQUARE, axis=1).repeat(3, axis=2)

    def _picture(self) -> Array:
        picture = np.zeros((self.rows, self.columns, 1), dtype=np.uint8)
        picture[self._row, self._column] = BRIGHT
        picture[-1, self._paddle] = BRIGHT
        return picture
