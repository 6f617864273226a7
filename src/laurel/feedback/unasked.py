"""The pairs that have not been asked about, in either order."""

from __future__ import annotations

import numpy as np

from laurel.envs.base import IntArray

_FEW = 200_000
"""Pairs that are listed rather than drawn until enough new ones were met."""


class UnaskedPairs:
    """The unordered pairs of N captions that were not asked about.

    >>> left = UnaskedPairs(3)
    >>> left.ask(np.array([2]), np.array([0]))
    >>> [pair.tolist() for pair in left.fresh(np.array([0, 0, 1]), np.array([1, 2, 0]))]
    [[0], [1]]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._asked = np.zeros(0, dtype=np.int64)
        """Sorted."""

    def __len__(self) -> int:
        return self.size * (self.size - 1) // 2 - len(self._asked)

    def ask(self, first: IntArray, second: IntArray) -> None:
        """Count these pairs as asked about."""
        self._asked = np.union1d(self._asked, self._keys(first, second))

    def fresh(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray]:
        """Return those of the pairs that were not asked about, each once, as they come and as they are turned."""
        keys = self._keys(first, second)
        _, once = np.unique(keys, return_index=True)
        once.sort()
        kept = once[(first != second)[once] & ~self._are_asked(keys[once])]
        return first[kept], second[kept]

    def listed(self) -> tuple[IntArray, IntArray]:
        """Return all of them, the lower number first; for few captions."""
        first, second = np.triu_indices(self.size, k=1)
        left = ~self._are_asked(self._keys(first, second))
        return first[left].astype(np.int64), second[left].astype(np.int64)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw n of them uniformly, or all there are, in random order; the lower number comes first."""
        total = self.size * (self.size - 1) // 2
        if total <= _FEW or len(self) <= 4 * n or len(self) < total / 2:
            first, second = self.listed()
            chosen = rng.permutation(len(first))[:n]
            return first[chosen], second[chosen]
        first = second = np.zeros(0, dtype=np.int64)
        while len(first) < n:
            a, b = rng.integers(0, self.size, (2, 2 * n))
            first, second = np.concatenate([first, np.minimum(a, b)]), np.concatenate([second, np.maximum(a, b)])
            first, second = self.fresh(first, second)
        return first[:n], second[:n]

    def _keys(self, first: IntArray, second: IntArray) -> IntArray:
        keys: IntArray = np.minimum(first, second).astype(np.int64) * self.size + np.maximum(first, second)
        return keys

    def _are_asked(self, keys: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not len(self._asked):
            return np.zeros(len(keys), dtype=np.bool_)
        place = np.searchsorted(self._asked, keys).clip(max=len(self._asked) - 1)
        return self._asked[place] == keys
