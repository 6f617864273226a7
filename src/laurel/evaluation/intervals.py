"""95% intervals that keep their coverage with as few as five seeds, and a width even if all seeds score the same.

Training runs succeed or fail: a bootstrap, and a t interval, of five successes is a point, although one run in ten may
fail. The intervals here allow for outcomes that so few seeds would miss. `tests/evaluation/test_intervals.py` measures
their coverage of a known truth.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from laurel.arrays import DoubleArray
from laurel.seeding import generator

LEVEL = 0.95
_Z = float(ndtri(0.5 + LEVEL / 2))
_TAIL = (1 - LEVEL) / 2
LEAST_LEVEL = 0.93
"""Least level of an interval between order statistics, which has only a few levels: at most 0.9375 with five seeds."""


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share of n, with the correction for continuity.

    Newcombe 1998 (Statistics in Medicine 17, 857-872), method 4, as in `scipy.stats` for counts; here the share may
    lie between two counts. Without the correction an interval of ten covers a share of 0.98 in 82% of cases.

    >>> [round(bound, 3) for bound in wilson(1.0, 10)]
    [0.655, 1.0]
    """
    z2, denominator = _Z**2, 2 * (n + _Z**2)
    low_term = z2 - 2 - 1 / n + 4 * share * (n * (1 - share) + 1)
    high_term = z2 + 2 - 1 / n + 4 * share * (n * (1 - share) - 1)
    low = (2 * n * share + z2 - 1 - _Z * math.sqrt(max(low_term, 0.0))) / denominator
    high = (2 * n * share + z2 + 1 + _Z * math.sqrt(max(high_term, 0.0))) / denominator
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))


def mean_intervals(
    scores: DoubleArray, low: float, high: float, *, draws: int, seed: int
) -> tuple[DoubleArray, DoubleArray]:
    """Return the interval of the mean of each row of scores, whose distribution lies between `low` and `high`.

    Gaffke's bounds: as a Bayesian bootstrap, but with one more, unseen seed, at the worst end for the lower
    bound and at the best end for the upper. For seeds that succeed or fail they are the exact (Clopper-Pearson)
    interval of a share; where seeds differ little they are narrower. They are conjectured to cover for every bounded
    distribution, and no exception is known. Gaffke 2005 (Mathematical Methods of Statistics 14, 451-467);
    Learned-Miller and Thomas 2019, https://arxiv.org/abs/1905.06208.

    Args:
        scores: (T, S), NaN where one is unknown.
        low: the least that a seed may score.
        draws: of the weights; they depend only on the number of seeds, so that equal scores have equal intervals.

    Returns:
        The lower and the upper bound, each (T,), NaN for rows with NaN.
    """
    rows, n = scores.shape
    weights = generator(seed, "mean_intervals", n).dirichlet(np.ones(n + 1), size=draws)
    bounds = []
    for end, tail in ((low, _TAIL), (high, 1 - _TAIL)):
        values = np.column_stack([scores, np.full(rows, end)])
        bound = np.quantile(values @ weights.T, tail, axis=1)
        bounds.append(np.clip(bound, values.min(axis=1), values.max(axis=1)))  # weights add up to 1 but for rounding
    return bounds[0], bounds[1]


def median_interval(values: DoubleArray) -> tuple[float, float] | None:
    """Return the interval of the median between two of the values (S,), which may be infinite.

    It contains the median with a probability of LEAST_LEVEL or more, whatever the distribution (Thompson 1936, Annals
    of Mathematical Statistics 7, 122-128): between the lowest and the highest of five, the second and the ninth of ten.
    None with fewer than five values, whose whole range contains it less often than that.

    >>> median_interval(np.array([3.0, 1.0, math.inf, 2.0, 5.0]))
    (1.0, inf)
    """
    import scipy.stats  # half a second, which the page of a training in progress does not need

    places = np.arange(len(values) // 2)
    held = int((2 * scipy.stats.binom.cdf(places, len(values), 0.5) <= 1 - LEAST_LEVEL).sum())
    if not held:
        return None
    ordered = np.sort(values)
    return float(ordered[held - 1]), float(ordered[-held])
