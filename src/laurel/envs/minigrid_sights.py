"""What came into view in a step of MiniGrid, found for many steps at once: most of the time of a caption."""

from __future__ import annotations

import numpy as np

from laurel.arrays import Array
from laurel.envs.minigrid_codes import BALL, BOX, DOOR, GOAL, IMAGE, KEY, VIEW

_TOLD = (DOOR, KEY, BALL, BOX, GOAL)
"""Objects that a caption reports when they come into view; of several, the one with the highest code, so the goal comes
first."""
_BITS = np.uint16(sum(1 << thing for thing in _TOLD))
_HIGHEST = np.array([max(bits.bit_length() - 1, 0) for bits in range(_BITS + 1)], dtype=np.uint8)
"""Objects as bits -> the one to tell, 0 for none."""


def first_sight(before: Array, after: Array) -> Array:
    """Return (N, 2) object and colour that came into view, zeros where none did, from packed observations."""
    sights = np.zeros((len(after), 2), dtype=np.uint8)
    in_view = _in_view(before)
    seen = _HIGHEST[_in_view_next(before, in_view, after) & ~in_view & _BITS]
    rows = np.flatnonzero(seen)
    thing = seen[rows]
    cells = after[rows, :IMAGE].reshape(len(rows), VIEW * VIEW, 3)
    index = (cells[..., 0] == thing[:, None]).argmax(axis=1)
    sights[rows, 0] = thing
    sights[rows, 1] = cells[np.arange(len(rows)), index, 1]
    return sights


def _in_view(observation: Array) -> Array:
    """Return the kinds of object in view as bits (N,), 1 << object."""
    objects = np.ascontiguousarray(observation[:, :IMAGE:3].T)  # a row a cell, so that the loop over cells is short
    return np.bitwise_or.reduce(np.left_shift(np.uint16(1), objects, dtype=np.uint16), axis=0)


def _in_view_next(before: Array, in_view: Array, after: Array) -> Array:
    """Return `_in_view(after)`, given `in_view`, the result for `before`.

    In a rollout both are views of one array, a step apart, so most rows of `after` are also rows of `before`.
    """
    start, next_start = (array.__array_interface__["data"][0] for array in (before, after))
    stride = before.strides[0]
    if before.strides != after.strides or not 0 < next_start - start < stride * len(before):
        return _in_view(after)
    later, rest = divmod(next_start - start, stride)
    return _in_view(after) if rest else np.concatenate([in_view[later:], _in_view(after[-later:])])
