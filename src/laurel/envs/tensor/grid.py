"""MiniGrid as tensors: movement on the grid, and the agent's view.

Cells are codes, few enough that the effect of an action is looked up in a table; the grid is padded with walls, so that
views stay within the array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from laurel.arrays import IntArray
from laurel.envs.minigrid import SCALE
from laurel.envs.minigrid_codes import ACTIONS, COLORS, DROP, FORWARD, IMAGE, LEFT, OBJECTS, PICKUP, RIGHT, TOGGLE, VIEW
from laurel.envs.minigrid_views import spread
from laurel.envs.tensor.base import TensorEnv

UNSEEN, EMPTY, WALL, KEY, OPEN, CLOSED, LOCKED, GOAL = CODES = range(8)
"""Contents of a cell; doors and keys are yellow."""
MARGIN = VIEW - 2
FACINGS = 4
"""East, south, west and north; turning right adds one."""
HERE = VIEW * (VIEW // 2) + VIEW - 1
"""The agent's own cell in its view, which shows what it carries."""


class TensorGrid(TensorEnv):
    """A square grid with at most a key and a door, partially observed.

    Its state has `cells` (R, C) with the margin, the agent's `place` (R,) in them, `facing` and `carrying` (R,).

    Args:
        size: side length, walls included.
        through_walls: whether the agent sees through walls.
    """

    def __init__(
        self, n_envs: int, seeds: Sequence[int], limit: int, device: torch.device, *, size: int, through_walls: bool
    ) -> None:
        self.size, self.side = size, size + 2 * MARGIN
        self._through_walls = through_walls

        def there(array: IntArray, kind: torch.dtype = torch.int64) -> Tensor:
            return torch.from_numpy(array).to(device, kind)

        ahead = np.array([self.side, 1, -self.side, -1])
        sideways, forward = np.mgrid[-(VIEW // 2) : VIEW // 2 + 1, VIEW - 1 : -1 : -1].reshape(2, 1, -1)
        self._ahead, self._view = there(ahead), there(ahead[:, None] * forward + np.roll(ahead, -1)[:, None] * sideways)
        self._effects, self._colours = there(_effects()), there(_palette(), torch.uint8)
        self._scale = torch.from_numpy(SCALE).to(device)
        self._lets_through = there(np.isin(CODES, (WALL, CLOSED, LOCKED), invert=True).astype(np.int64))
        self._sight = there(_sight())
        self._column = torch.arange(VIEW, device=device)[:, None]
        super().__init__(n_envs, seeds, limit, device)

    def features(self, observation: Tensor) -> Tensor:
        return observation[..., :IMAGE].float() * self._scale

    def at(self, x: Tensor, y: Tensor) -> Tensor:
        """Return where cells of the grid, counted from its corner, are in `cells`."""
        return (x + MARGIN) * self.side + y + MARGIN

    def _move(self, state: Mapping[str, Tensor], action: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        cells, place, facing, carrying = (state[name] for name in ("cells", "place", "facing", "carrying"))
        front = place + self._ahead[facing]
        thing = cells.gather(1, front[:, None])[:, 0].long()
        left, now_carrying, steps, reached = self._effects[action, thing, carrying].unbind(-1)
        cells.scatter_(1, front[:, None], left[:, None].to(torch.uint8))
        moved = {
            "cells": cells,
            "place": torch.where(steps > 0, front, place),
            "facing": facing + (action == RIGHT) - (action == LEFT).long() & FACINGS - 1,
            "carrying": now_carrying,
        }
        reward = reached * (1 - 0.9 * (state["age"].double() / self.limit))
        return moved, reward.float(), reached > 0

    def _observe(self, state: Mapping[str, Tensor]) -> Tensor:
        seen = state["cells"].gather(1, state["place"][:, None] + self._view[state["facing"]]).long()
        if not self._through_walls:
            seen = torch.where(self._visible(seen), seen, UNSEEN)
        seen[:, HERE] = EMPTY + (KEY - EMPTY) * state["carrying"]
        return torch.cat([self._colours[seen].flatten(1), state["facing"][:, None].to(torch.uint8)], dim=1)

    def _visible(self, seen: Tensor) -> Tensor:
        """Return which cells of a view (R, 49) are visible: sight spreads from row to row, away from the agent."""
        lets_through = (self._lets_through[seen].view(-1, VIEW, VIEW) << self._column).sum(1)
        reached = torch.full_like(lets_through[:, 0], 1 << VIEW // 2)
        rows = []
        for row in reversed(range(VIEW)):
            spread = self._sight[reached, lets_through[:, row]]
            rows.append(spread[:, 0])
            reached = spread[:, 1]
        return (torch.stack(rows[::-1], dim=1)[:, None] >> self._column & 1).flatten(1) > 0


def _effects() -> IntArray:
    """Return, for an action in front of a thing, without or with the key (7, 8, 2), what is left there, whether the key
    is carried then, whether the agent steps there, and whether it has reached the goal: (..., 4).
    """
    effects = np.zeros((len(ACTIONS), len(CODES), 2, 4), dtype=np.int64)
    effects[..., 0] = np.arange(len(CODES))[:, None]
    effects[..., 1] = [0, 1]
    effects[FORWARD, [EMPTY, OPEN, GOAL], :, 2] = 1
    effects[FORWARD, GOAL, :, 3] = 1
    effects[PICKUP, KEY, 0, :2] = EMPTY, 1
    effects[DROP, EMPTY, 1, :2] = KEY, 0
    effects[TOGGLE, [OPEN, CLOSED], :, 0] = [[CLOSED], [OPEN]]
    effects[TOGGLE, LOCKED, 1, 0] = OPEN
    return effects


def _palette() -> IntArray:
    """Return object, colour and state (8, 3) of each code, as MiniGrid numbers them."""
    things = {
        UNSEEN: ("unseen", "red", 0),
        EMPTY: ("empty", "red", 0),
        WALL: ("wall", "grey", 0),
        KEY: ("key", "yellow", 0),
        OPEN: ("door", "yellow", 0),
        CLOSED: ("door", "yellow", 1),
        LOCKED: ("door", "yellow", 2),
        GOAL: ("goal", "green", 0),
    }
    return np.array([(OBJECTS.index(kind), COLORS.index(color), state) for kind, color, state in things.values()])


def _sight() -> IntArray:
    """Return `spread` of all that can be in sight and let sight through: (128, 128, 2)."""
    rows = range(1 << VIEW)
    return np.array([[spread(reached, through) for through in rows] for reached in rows])
