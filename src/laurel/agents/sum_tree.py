"""A sum tree: sampling in proportion to priorities that change all the time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from laurel.envs.base import IntArray

Floats = npt.NDArray[np.float64]


class SumTree:
    """Non-negative numbers at the leaves of a binary tree, whose every node is the sum of its two children.

    >>> tree = SumTree(4)
    >>> tree.set(np.array([1, 3]), np.array([1.0, 3.0]))
    >>> tree.total, np.bincount(tree.sample(8, np.random.default_rng(0))).tolist()
    (4.0, [0, 2, 0, 6])
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._first = 1 << max(0, size - 1).bit_length()
        """Node of the first leaf; 1 is the root, and 2 i and 2 i + 1 are the children of i."""
        self._nodes: Floats = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def values(self, index: IntArray) -> Floats:
        """Return the numbers at leaves (B,)."""
        return self._nodes[self._first + index]

    def set(self, index: IntArray, value: Floats) -> None:
        """Set the numbers (B,) at leaves (B,); of a leaf that is there twice the last counts."""
        self._nodes[self._first + index] = value
        nodes = np.unique(self._first + index)
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw leaves (B,) in proportion to their numbers, one from each B-th part of the total."""
        left = (np.arange(size) + rng.random(size)) / size * self.total
        node = np.ones(size, dtype=np.int64)
        while node[0] < self._first:
            node *= 2
            below = self._nodes[node]
            right = (left >= below) & (self._nodes[node + 1] > 0)  # rounding must not lead to a leaf of nothing
            left = np.where(right, left - below, left)
            node += right
        return node - self._first

    @property
    def leaves(self) -> Floats:
        """All numbers (size,)."""
        return self._nodes[self._first : self._first + self.size].copy()
