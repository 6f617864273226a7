"""A scripted controller that reaches a given object in MiniGrid: mapping, shortest paths, and exploration.

It sees what any agent sees, the 7 by 7 cells in front of it, and tracks its position by its own moves; positions on the
map are relative to the start of the episode. Nothing is learned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from laurel.envs import minigrid_codes as grid

Place = tuple[int, int]
Thing = tuple[int, int]
"""Object and colour, as MiniGrid numbers them."""
WAYS: tuple[Place, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Columns and rows by which a step east, south, west or north moves the agent."""
FREE = (grid.EMPTY, grid.FLOOR, grid.GOAL)


def _offset(way: Place, cell: Place) -> Place:
    """Return the columns and rows from an agent that faces a way to a cell of its view."""
    far, aside = grid.CARRIED[1] - cell[1], cell[0] - grid.CARRIED[0]
    return far * way[0] - aside * way[1], far * way[1] + aside * way[0]


_OFFSETS = [[_offset(way, (x, y)) for x in range(grid.VIEW) for y in range(grid.VIEW)] for way in WAYS]
"""Direction -> where the cells of the view are, relative to the agent."""
_OWN = grid.CARRIED[0] * grid.VIEW + grid.CARRIED[1]
"""Place of the agent's own cell in the view."""


class Navigator:
    """One agent's map of its episode, with path finding."""

    def __init__(self) -> None:
        self.cells: dict[Place, tuple[int, int, int]] = {}
        """Place -> object, colour and state, as last seen."""
        self.place: Place = (0, 0)
        self.facing = 0
        self.carried: Thing | None = None
        self.things: set[Thing] = set()
        """Doors, keys, balls, boxes and goals seen so far in the episode, wherever they are now."""
        self._front: Place = (1, 0)
        self._free_ahead = False

    def see(self, observation: Any) -> None:
        """Update the map with an observation."""
        self.facing = int(observation["direction"])
        view = [
            (thing, color, state) for thing, color, state in np.asarray(observation["image"]).reshape(-1, 3).tolist()
        ]
        held = view[_OWN]
        self.carried = held[:2] if held[0] != grid.EMPTY else None
        view[_OWN] = (0, 0, 0)  # it shows the carried object
        (column, row), cells = self.place, self.cells
        for (columns, rows), cell in zip(_OFFSETS[self.facing], view, strict=True):
            if cell[0]:
                cells[column + columns, row + rows] = cell
                if grid.DOOR <= cell[0] <= grid.GOAL:
                    self.things.add(cell[:2])
        self.cells.setdefault(self.place, (grid.EMPTY, 0, 0))
        self._front = column + WAYS[self.facing][0], row + WAYS[self.facing][1]
        self._free_ahead = self._passable(self._front)

    def took(self, action: int) -> None:
        """Update the agent's position for an action taken after the last observation."""
        if action == grid.FORWARD and self._free_ahead:
            self.place = self._front

    def door_is(self, thing: Thing) -> int | None:
        """Return the state of a door; None if it has not been seen."""
        return next((cell[2] for cell in self.cells.values() if cell[:2] == thing), None)

    def towards(self, thing: Thing, action: int | None) -> int | None:
        """Return the next action on the path to an object, and finally the action that uses it.

        Args:
            thing: the object.
            action: taken in front of it; None: step onto it.

        Returns:
            None if it has not been seen, or there is no path.
        """
        if action is None:
            return self._step(self._path(lambda place: self.cells[place][:2] == thing))
        if self.cells.get(self._front, (0, 0, 0))[:2] == thing:
            return action
        places = {place for place, cell in self.cells.items() if cell[:2] == thing}
        path = self._path(lambda place: any(neighbour in places for neighbour in _around(place)))
        if path is None:
            return None
        if len(path) == 1:
            target = next(neighbour for neighbour in _around(self.place) if neighbour in places)
            return self._turn_to(target)
        return self._step(path)

    def explore(self) -> int | None:
        """Return the next action towards a position near unseen cells; None if everything has been seen."""
        unseen = self._path(lambda place: any(neighbour not in self.cells for neighbour in _around(place)))
        if unseen is not None and len(unseen) == 1:
            return self._turn_to(next(neighbour for neighbour in _around(self.place) if neighbour not in self.cells))
        return self._step(unseen)

    def is_beside(self, thing: Thing) -> bool:
        """Whether an object is on one of the four adjacent cells."""
        return any(self.cells.get(neighbour, (0, 0, 0))[:2] == thing for neighbour in _around(self.place))

    @property
    def can_drop(self) -> bool:
        return self.cells.get(self._front, (0, 0, 0))[0] == grid.EMPTY

    def _passable(self, place: Place) -> bool:
        thing, _, state = self.cells.get(place, (grid.WALL, 0, 0))
        return thing in FREE or (thing == grid.DOOR and state == grid.OPEN)

    def _path(self, arrived: Callable[[Place], bool]) -> list[Place] | None:
        """Return the shortest path from here to a position, both included, through doors that are not locked."""
        before: dict[Place, Place | None] = {self.place: None}
        queue = deque([self.place])
        while queue:
            place = queue.popleft()
            if arrived(place):
                path = [place]
                while (last := before[path[-1]]) is not None:
                    path.append(last)
                return path[::-1]
            for neighbour in _around(place):
                thing, _, state = self.cells.get(neighbour, (grid.WALL, 0, 0))
                if neighbour not in before and (thing in FREE or (thing == grid.DOOR and state != grid.LOCKED)):
                    before[neighbour] = place
                    queue.append(neighbour)
        return None

    def _step(self, path: list[Place] | None) -> int | None:
        if path is None or len(path) < 2:
            return None
        if path[1] != self._front:
            return self._turn_to(path[1])
        return grid.FORWARD if self._passable(path[1]) else grid.TOGGLE

    def _turn_to(self, place: Place) -> int:
        way = WAYS.index((place[0] - self.place[0], place[1] - self.place[1]))
        return grid.LEFT if (self.facing - way) % 4 == 1 else grid.RIGHT


def _around(place: Place) -> Iterator[Place]:
    for column, row in WAYS:
        yield place[0] + column, place[1] + row
