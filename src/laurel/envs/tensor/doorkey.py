"""Tasks of MiniGrid as tensors: initial states of DoorKey and Empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laurel.arrays import Array
from laurel.envs.tensor.grid import EMPTY, FACINGS, GOAL, KEY, LOCKED, MARGIN, WALL, TensorGrid
from laurel.envs.tensor.philox import below


class TensorDoorKey(TensorGrid):
    """A wall with a locked door divides the grid; the agent and the key are on its left, the goal on its right."""

    n_words: ClassVar[int] = 5

    def __init__(self, n_envs: int, seeds: Sequence[int], limit: int, device: torch.device, *, size: int) -> None:
        self._n_walls, self._n_doors = size - 4, size - 3
        layouts = []
        for wall in range(self._n_walls):
            for door in range(self._n_doors):
                layouts.append(_empty_room(size))
                inside = layouts[-1][MARGIN:-MARGIN, MARGIN:-MARGIN]
                inside[wall + 2] = WALL
                inside[wall + 2, door + 1] = LOCKED
        self._layouts = torch.from_numpy(np.stack(layouts)).flatten(1).to(device)
        super().__init__(n_envs, seeds, limit, device, size=size, through_walls=False)

    def _like(self, seeds: Sequence[int]) -> TensorDoorKey:
        return TensorDoorKey(self.n_envs, seeds, self.limit, self.device, size=self.size)

    def _begin(self, drawn: Tensor) -> dict[str, Tensor]:
        wall, door = below(drawn[:, 0], self._n_walls), below(drawn[:, 1], self._n_doors)
        cells = self._layouts[wall * self._n_doors + door]
        rows = self.size - 2
        free = (wall + 1) * rows
        agent, key = below(drawn[:, 2], free), below(drawn[:, 3], free - 1)
        key = key + (key >= agent)  # where the agent is not
        cells.scatter_(1, self.at(1 + key // rows, 1 + key % rows)[:, None], KEY)
        return {
            "cells": cells,
            "place": self.at(1 + agent // rows, 1 + agent % rows),
            "facing": below(drawn[:, 4], FACINGS),
            "carrying": torch.zeros_like(agent),
        }


class TensorEmpty(TensorGrid):
    """An empty grid with a goal; the agent starts in the opposite corner, or anywhere."""

    n_words: ClassVar[int] = 2

    def __init__(
        self, n_envs: int, seeds: Sequence[int], limit: int, device: torch.device, *, size: int, anywhere: bool
    ) -> None:
        self._anywhere = anywhere
        self._layout = torch.from_numpy(_empty_room(size)).flatten().to(device)
        super().__init__(n_envs, seeds, limit, device, size=size, through_walls=True)

    def _like(self, seeds: Sequence[int]) -> TensorEmpty:
        return TensorEmpty(self.n_envs, seeds, self.limit, self.device, size=self.size, anywhere=self._anywhere)

    def _begin(self, drawn: Tensor) -> dict[str, Tensor]:
        rows = self.size - 2
        agent = below(drawn[:, 0], rows * rows - 1 if self._anywhere else 1)  # the goal is last
        return {
            "cells": self._layout.expand(len(drawn), -1),
            "place": self.at(1 + agent // rows, 1 + agent % rows),
            "facing": below(drawn[:, 1], FACINGS if self._anywhere else 1),
            "carrying": torch.zeros_like(agent),
        }


def _empty_room(size: int) -> Array:
    """Return the cells of a room with walls and margin around it, and the goal in the last corner."""
    cells = np.full((size + 2 * MARGIN,) * 2, WALL, dtype=np.uint8)
    inside = cells[MARGIN + 1 : -MARGIN - 1, MARGIN + 1 : -MARGIN - 1]
    inside[:] = EMPTY
    inside[-1, -1] = GOAL
    return cells
