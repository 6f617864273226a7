"""Samples pairs of segments to judge: seeded, no pair twice in either order."""

from __future__ import annotations

import numpy as np

from laurel.arrays import IntArray


def sample_pairs(counts: IntArray, n_pairs: int, sampler: str, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw distinct unordered pairs of distinct segments, in random order and random orientation.

    Args:
        counts: (S,) how often each segment occurred.
        n_pairs: number of pairs; all pairs if there are fewer.
        sampler: "uniform" over pairs, or "frequency": in proportion to the product of the segments' counts (plus one
            each, so that segments with count 0 are judged, too).

    Returns:
        First and second segments, (P,) each.

    Raises:
        ValueError: another sampler, which needs labels.
    """
    if sampler not in ("uniform", "frequency"):
        raise ValueError(f"{sampler} does not draw at random.")
    size = len(counts)
    total = size * (size - 1) // 2
    if total <= 4 * n_pairs or total <= 200_000:
        first, second = np.triu_indices(size, k=1)
        if total > n_pairs:
            keep = _choose(_pair_weights(counts, first, second, sampler), n_pairs, rng)
            first, second = first[keep], second[keep]
    else:
        first, second = _draw_sparse(counts, n_pairs, sampler, rng)
    order = rng.permutation(len(first))
    first, second = first[order].astype(np.int64), second[order].astype(np.int64)
    turned = rng.random(len(first)) < 0.5
    return np.where(turned, second, first), np.where(turned, first, second)


def _pair_weights(
    counts: IntArray, first: IntArray, second: IntArray, sampler: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if sampler == "uniform":
        return np.ones(len(first))
    weights = counts.astype(np.float64) + 1
    return weights[first] * weights[second]


def _choose(weights: np.ndarray[tuple[int], np.dtype[np.float64]], n: int, rng: np.random.Generator) -> IntArray:
    """Draw n without replacement by weight: the n largest of log(u)/w (Efraimidis and Spirakis 2006)."""
    keys = np.log(rng.random(len(weights))) / weights
    return np.sort(np.argpartition(-keys, n)[:n])


def _draw_sparse(counts: IntArray, n_pairs: int, sampler: str, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw pairs by rejection sampling if they are too many to list; in order of appearance.

    Once the likely pairs are used up, the rest is drawn from a flatter distribution, so that rejection ends.
    """
    size = len(counts)
    weights = np.ones(size) if sampler == "uniform" else counts.astype(np.float64) + 1
    keys = np.zeros(0, dtype=np.int64)
    while len(keys) < n_pairs:
        chances = weights / weights.sum()
        a = rng.choice(size, 2 * n_pairs, p=chances)
        b = rng.choice(size, 2 * n_pairs, p=chances)
        a, b = np.minimum(a, b)[a != b], np.maximum(a, b)[a != b]
        merged = np.concatenate([keys, a * size + b])
        _, positions = np.unique(merged, return_index=True)
        if len(positions) - len(keys) < n_pairs / 20:
            weights = np.sqrt(weights)
        keys = merged[np.sort(positions)]
    return keys[:n_pairs] // size, keys[:n_pairs] % size


_FEW = 200_000
"""Up to this many pairs are listed; otherwise, pairs are drawn until enough new ones are found."""


class UnaskedPairs:
    """The unordered pairs of N captions that have not been asked about.

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
        """Mark pairs as asked about."""
        self._asked = np.union1d(self._asked, self._keys(first, second))

    def fresh(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray]:
        """Return those of the pairs that were not asked about, each once, in the given order and orientation."""
        keys = self._keys(first, second)
        _, first_rows = np.unique(keys, return_index=True)
        first_rows.sort()
        kept = first_rows[(first != second)[first_rows] & ~self._are_asked(keys[first_rows])]
        return first[kept], second[kept]

    def listed(self) -> tuple[IntArray, IntArray]:
        """Return all of them, the lower number first; for few captions."""
        first, second = np.triu_indices(self.size, k=1)
        left = ~self._are_asked(self._keys(first, second))
        return first[left].astype(np.int64), second[left].astype(np.int64)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw n of them uniformly, or all if there are fewer, in random order; the lower number comes first."""
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
