"""Samplers propose the pairs to ask about next; adaptive ones observe the labels.

`uniform` and `frequency` draw all pairs in advance; the others choose by the labels so far, in rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laurel.arrays import DoubleArray, IntArray
from laurel.feedback.acquisition import Strategy
from laurel.feedback.pairs import UnaskedPairs, sample_pairs
from laurel.feedback.posterior import Labels


class DrawnSampler:
    """Draws all pairs in advance, at random, independent of labels.

    Args:
        counts: (N,) how often each caption occurred.
        name: "uniform" or "frequency".
        unasked: pairs that it may propose; proposed pairs are removed from it.
        rng: the only source of randomness.
    """

    def __init__(
        self, counts: IntArray, n_pairs: int, name: str, unasked: UnaskedPairs, rng: np.random.Generator
    ) -> None:
        self._first, self._second = sample_pairs(counts, n_pairs, name, rng)
        self._unasked = unasked
        self._next = 0

    def propose(self, n: int) -> tuple[IntArray, IntArray]:
        """Return the next n pairs of the draw, fewer at its end; pairs that another sampler proposed are left out."""
        first = second = np.zeros(0, dtype=np.int64)
        while len(first) < n and self._next < len(self._first):
            part = slice(self._next, self._next + n - len(first))
            self._next = part.stop
            new = self._unasked.fresh(self._first[part], self._second[part])
            self._unasked.ask(*new)
            first, second = np.concatenate([first, new[0]]), np.concatenate([second, new[1]])
        return first, second

    def observe(self, first: IntArray, second: IntArray, p_first: Sequence[float | None] | DoubleArray) -> None:
        """Do nothing: no pair depends on a label."""


class AdaptiveSampler:
    """Chooses pairs with a strategy, by the labels so far.

    Args:
        unasked: pairs that it may propose; proposed pairs are removed from it.
        rng: the only source of randomness.
    """

    def __init__(self, strategy: Strategy, unasked: UnaskedPairs, rng: np.random.Generator) -> None:
        self._strategy = strategy
        self._unasked = unasked
        self._rng = rng
        self._labels = Labels.empty()

    def propose(self, n: int) -> tuple[IntArray, IntArray]:
        """Return n pairs, each in a random orientation; if the strategy has too few, the rest is drawn uniformly."""
        n = min(n, len(self._unasked))
        first, second = self._strategy.choose(n, self._labels, self._unasked, self._rng) if n > 0 else _NONE
        self._unasked.ask(first, second)
        if len(first) < n:
            rest = self._unasked.draw(n - len(first), self._rng)
            self._unasked.ask(*rest)
            first, second = np.concatenate([first, rest[0]]), np.concatenate([second, rest[1]])
        turned = self._rng.random(len(first)) < 0.5
        return np.where(turned, second, first), np.where(turned, first, second)

    def observe(self, first: IntArray, second: IntArray, p_first: Sequence[float | None] | DoubleArray) -> None:
        """Observe labels; None and NaN mean no label."""
        self._labels = self._labels.with_more(first, second, p_first)


Sampler = DrawnSampler | AdaptiveSampler
_NONE = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
