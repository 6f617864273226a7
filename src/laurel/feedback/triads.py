"""How often preferences are intransitive: a better than b, b than c, and c than a.

A judge with a consistent order is never intransitive; one that answers at random is intransitive in one triad of four
(Kendall and Babington Smith 1940, Biometrika 31).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.feedback.rates import Rate, rate_of_variance

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_PATHS = 100_000_000
"""Maximum number of paths of two pairs that are enumerated; in larger graphs they are sampled."""
DRAWN = 400_000
"""Paths that are drawn in larger graphs."""
BLOCK = 2_000_000
"""Paths per block, which bounds memory."""


def intransitivity(
    first: IntArray, second: IntArray, p_first: DoubleArray, seed: int, max_paths: int = MAX_PATHS
) -> Rate | None:
    """Return the share of judged triads that are intransitive.

    A triad counts if each of its three pairs has a preferred side; repeated judgements are averaged. Triads share
    pairs, so the variance is that of the network jackknife, which leaves out one segment after the other (Lin, Lunde
    and Sarkar 2020, arXiv 2004.08935), which is conservative.

    Args:
        first: (P,) segments.
        second: (P,) segments.
        p_first: (P,) NaN if there is no label, 1/2 if there is no side.
        seed: for sampling in large graphs.
        max_paths: number of paths of two pairs up to which all triads are enumerated.

    Returns:
        value, ci95 and of, the number of triads; `sampled` true if they were sampled. None if there is no triad.
    """
    better, worse = _sides(first, second, p_first)
    if not len(better):
        return None
    _, numbered = np.unique(np.concatenate([better, worse]), return_inverse=True)
    better, worse = numbered[: len(better)], numbered[len(better) :]
    degree = np.bincount(numbered).astype(np.int64)
    sampled = int(np.square(degree).sum()) > max_paths
    if sampled:
        circular, triads = _drawn(better, worse, degree, np.random.default_rng(seed))
    else:
        circular, triads = _all(better, worse, degree)
    total, circles = int(triads.sum()) // 3, int(circular.sum()) // 3
    if not total:
        return None
    met = triads > 0
    left = total - triads[met]
    shares = np.where(left > 0, (circles - circular[met]) / np.maximum(left, 1), circles / total)
    n = len(shares)
    variance = float((n - 1) / n * np.square(shares - shares.mean()).sum())
    disjoint = min(total, len(better) // 3)  # triads without a pair in common, at most
    return {**rate_of_variance(circles / total, variance, total, disjoint), "sampled": sampled}


def _sides(first: IntArray, second: IntArray, p_first: DoubleArray) -> tuple[IntArray, IntArray]:
    """Return the better and the worse segment of each pair that has a side, once."""
    known = ~np.isnan(p_first)
    low, high = np.minimum(first, second)[known], np.maximum(first, second)[known]
    p_low = np.where(first < second, p_first, 1 - p_first)[known]
    size = int(high.max(initial=0)) + 1
    pairs, place = np.unique(low * size + high, return_inverse=True)
    lean = np.bincount(place, weights=p_low - 0.5, minlength=len(pairs))
    low, high = pairs // size, pairs % size
    decided = (np.abs(lean) > 1e-12) & (low != high)
    low, high, wins = low[decided], high[decided], lean[decided] > 0
    return np.where(wins, low, high), np.where(wins, high, low)


def _all(better: IntArray, worse: IntArray, degree: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each segment (S,) the number of intransitive triads and of all triads that it is part of.

    With A[i, j] = 1 where i beats j: the cycles through i are the closed walks of three steps, (A A A)[i, i], and
    the triads half of those in A + A'.
    """
    from scipy.sparse import csr_array

    size = len(degree)
    beats = csr_array((np.ones(len(better), dtype=np.int64), (better, worse)), shape=(size, size))
    judged = beats + beats.T
    circular, triads = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    paths = np.asarray(judged @ degree).ravel().cumsum()
    edges = np.unique(np.searchsorted(paths, np.arange(0, int(paths[-1]) + BLOCK, BLOCK), side="right"))
    beaten = beats.T.tocsr()
    for begin, end in pairwise(edges.tolist()):
        circular[begin:end] = _closed(beats[begin:end], beats, beaten[begin:end])
        triads[begin:end] = _closed(judged[begin:end], judged, judged[begin:end]) // 2
    return circular, triads


def _closed(first: csr_array, second: csr_array, third: csr_array) -> IntArray:
    closed: IntArray = np.asarray((first @ second).multiply(third).sum(axis=1)).ravel()
    return closed


def _drawn(better: IntArray, worse: IntArray, degree: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw paths of two pairs uniformly, and use those that a third pair closes.

    Every triad has three such paths, so triads are drawn uniformly (Seshadhri, Pinar and Kolda 2013,
    arXiv 1202.5230).
    """
    size = len(degree)
    source, target = np.concatenate([better, worse]), np.concatenate([worse, better])
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    begins = np.concatenate([[0], degree.cumsum()])[:-1]
    keys = source * size + target
    wins = np.sort(better * size + worse)
    chances = (degree * (degree - 1)).astype(np.float64)
    middle = rng.choice(size, DRAWN, p=chances / chances.sum())
    i = rng.integers(0, degree[middle])
    j = rng.integers(0, degree[middle] - 1)
    j += j >= i
    a, c = target[begins[middle] + i], target[begins[middle] + j]
    closed = _member(keys, a * size + c)
    a, b, c = a[closed], middle[closed], c[closed]
    triples = np.unique(np.sort(np.stack([a, b, c]), axis=0), axis=1)  # each once
    a, b, c = triples
    ab, bc, ca = (_member(wins, x * size + y) for x, y in ((a, b), (b, c), (c, a)))
    circle = (ab == bc) & (bc == ca)
    triads = np.bincount(triples.ravel(), minlength=size)
    return np.bincount(triples[:, circle].ravel(), minlength=size), triads


def _member(ordered: IntArray, wanted: IntArray) -> BoolArray:
    position = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    is_member: BoolArray = ordered[position] == wanted
    return is_member
