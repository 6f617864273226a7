"""A sample of labelled pairs for a person to look at: some of each kind, the uncertain ones first.

Whether a pair is drawn depends only on its segments, the seed and its kind, so that the sample of all pairs is the one
that is left of samples of shares.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from laurel.data.preferences import Pairs, Preferences
from laurel.envs.base import IntArray

SIZE = 50
"""Pairs of a sample."""


def kinds(preferences: Preferences) -> list[npt.NDArray[np.bool_]]:
    """Return which pairs (P,) are of each kind, in the order of their turn; each is of one."""
    status = preferences.status
    labelled, inconsistent = preferences.usable, preferences.swap_consistent == 0
    return [
        labelled & inconsistent,
        (status == "incomplete"),
        (status == "parse_failed"),
        (status == "abstain"),
        (status == "tie") & ~inconsistent,
        (status == "ok") & ~inconsistent,
        (status == "api_failed"),
    ]


def candidates(pairs: Pairs, preferences: Preferences, seed: int, size: int = SIZE) -> list[IntArray]:
    """Return for each kind the pairs that may be in a sample of all pairs that these are a share of."""
    order = _shuffled(pairs, seed)
    return [order[kind[order]][:size] for kind in kinds(preferences)]


def draw(pairs: Pairs, preferences: Preferences, seed: int, size: int = SIZE) -> IntArray:
    """Return the numbers of the sampled pairs, kind by kind: each kind has its turn until there are enough."""
    by_kind = [found.tolist() for found in candidates(pairs, preferences, seed, size)]
    turns = [(kind, pair) for turn in zip_longest(*by_kind) for kind, pair in enumerate(turn) if pair is not None]
    return np.array([pair for _, pair in sorted(turns[:size], key=lambda one: one[0])], dtype=np.int64)


def _shuffled(pairs: Pairs, seed: int) -> IntArray:
    """Return the pairs' numbers in an order that depends only on each pair's segments (SplitMix64's mixing)."""
    x = np.uint64(seed) + (pairs.first.astype(np.uint64) << np.uint64(32) | pairs.second.astype(np.uint64))
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="stable")
