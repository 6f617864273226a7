"""MiniGrid's views, computed eight times as fast as by MiniGrid itself, and compared with its own now and then.

`MiniGridEnv.gen_obs` cuts the view out of the grid, turns it and finds what walls hide, cell by cell in Python: nine
tenths of a step. Here one look-up finds the cells of a view, and another which of a row are visible.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.arrays import Array
from laurel.envs.minigrid_codes import EMPTY, VIEW
from laurel.errors import EnvError

if TYPE_CHECKING:
    from minigrid.core.world_object import WorldObj
    from minigrid.minigrid_env import MiniGridEnv

SAMPLED = 256
"""One view in this many is compared with MiniGrid's own."""
SEEN_EMPTY, UNSEEN = bytes((EMPTY, 0, 0)), bytes(3)
BITS = tuple(1 << column for column in range(VIEW))
ALL = sum(BITS)


class Views:
    """Replaces an environment's `gen_obs`, and returns the same."""

    def __init__(self, env: MiniGridEnv) -> None:
        from minigrid.core.world_object import Wall

        self._env, self._step = env, env.step
        self._see: Callable[[], dict[str, Any]] = env.gen_obs
        self._wall = Wall()
        self._given = 0
        vars(env).update(gen_obs=self.gen_obs, step=self.step)

    @staticmethod
    def suit(env: MiniGridEnv) -> bool:
        """Whether this class computes an environment's views: 7x7, with none of MiniGrid's methods overridden."""
        from minigrid.minigrid_env import MiniGridEnv

        replaced = ("gen_obs", "gen_obs_grid", "get_view_exts")
        return env.agent_view_size == VIEW and all(getattr(type(env), a) is getattr(MiniGridEnv, a) for a in replaced)

    def gen_obs(self) -> dict[str, Any]:
        """Return the view of the state that the environment is in.

        Raises:
            EnvError: MiniGrid computes another one.
        """
        env = self._env
        image = self._image()
        if self._given % SAMPLED == 0 and not np.array_equal(image, self._see()["image"]):
            raise EnvError(
                f"{type(env).__name__}: MiniGrid computes another view than Laurel, whose faster views replace it. "
                "Install the version of minigrid that requirements.lock names."
            )
        self._given += 1
        return {"image": image, "direction": env.agent_dir, "mission": env.mission}

    def _image(self) -> Array:
        """Return object, colour and state (7, 7, 3) of the cells in view."""
        env, grid = self._env, self._env.grid
        x, y = env.agent_pos
        cells: tuple[WorldObj | None, ...] = _cells_in_view(grid.width, grid.height, int(x), int(y), env.agent_dir)(
            [*grid.grid, self._wall]
        )
        codes, reached = bytearray(), 1 << VIEW // 2
        for nearest in range(0, VIEW * VIEW, VIEW):
            row, visible = cells[nearest : nearest + VIEW], ALL
            if not env.see_through_walls:
                through = 0
                for bit, cell in zip(BITS, row, strict=True):
                    if cell is None or cell.see_behind():
                        through |= bit
                visible, reached = spread(reached, through)
            for bit, cell in zip(BITS, row, strict=True):
                codes += UNSEEN if not visible & bit else SEEN_EMPTY if cell is None else bytes(cell.encode())
            if not reached:
                break
        image = np.zeros((VIEW, VIEW, 3), dtype=np.uint8)  # unseen
        image.reshape(-1)[: len(codes)] = codes
        image[0, VIEW // 2] = (EMPTY, 0, 0) if env.carrying is None else env.carrying.encode()
        return image[::-1].transpose(1, 0, 2).copy()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self._step(int(action))  # NumPy's numbers take 40 times as long to compare with members of an enum


@cache
def _cells_in_view(width: int, height: int, x: int, y: int, facing: int) -> itemgetter[Any]:
    """Return a getter of the cells in view, from left to right, row by row away from the agent. It takes the cells of a
    grid followed by a wall, which is used for cells beyond the grid.
    """
    ahead_x, ahead_y = ((1, 0), (0, 1), (-1, 0), (0, -1))[facing]
    places = []
    for forward in range(VIEW):
        for aside in range(-(VIEW // 2), VIEW // 2 + 1):
            there_x, there_y = x + forward * ahead_x - aside * ahead_y, y + forward * ahead_y + aside * ahead_x
            inside = 0 <= there_x < width and 0 <= there_y < height
            places.append(there_y * width + there_x if inside else width * height)
    return itemgetter(*places)


@cache
def spread(reached: int, through: int) -> tuple[int, int]:
    """Return the visible cells of a row of the view, and those of the next row ahead, as bits by column.

    As in MiniGrid's `Grid.process_vis`, sight spreads to the right, then to the left.

    Args:
        reached: cells in sight from the row behind.
        through: cells that let sight through.
    """
    ahead = 0
    for column in range(VIEW - 1):
        if reached & through & 1 << column:
            reached |= 1 << column + 1
            ahead |= 0b11 << column
    for column in range(VIEW - 1, 0, -1):
        if reached & through & 1 << column:
            reached |= 1 << column - 1
            ahead |= 0b11 << column - 1
    return reached, ahead
