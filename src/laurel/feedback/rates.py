"""Proportions with 95% intervals, also for answers in dependent groups.

A rate is a plain dictionary, ready for JSON: `value`, `ci95`, and `of`, the number of cases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from laurel.arrays import BoolArray, DoubleArray

Rate = dict[str, Any]
Z = 1.959963984540054
"""Quantile of the normal distribution for an interval of 95%."""


def rate(hits: int, total: int) -> Rate | None:
    """Return the share of independent cases; None without a case."""
    return _rate(hits / total, total, total) if total else None


def grouped_rate(hit: BoolArray | DoubleArray, group: npt.NDArray[np.integer[Any]]) -> Rate | None:
    """Return the share of hits among cases (N,); cases with the same group number (N,), from 0 on, are dependent.

    Half a hit, as of a tie, is 0.5.

    The variance is that of a ratio of sums over groups, x_g hits of n_g cases (proportions in cluster sampling,
    Cochran 1977, Sampling Techniques):

        v = G / (G - 1) * sum (x_g - p n_g)^2 / (sum n_g)^2
    """
    if not len(hit):
        return None
    cases = np.bincount(group).astype(np.float64)
    hits = np.bincount(group, weights=hit)[cases > 0]
    cases = cases[cases > 0]
    p, groups = float(hits.sum() / cases.sum()), len(cases)
    spread = float(np.square(hits - p * cases).sum() / cases.sum() ** 2)
    return rate_of_variance(p, spread * groups / max(groups - 1, 1), len(hit), groups)


def rate_of_variance(p: float, variance: float, total: int, groups: int) -> Rate:
    """Return a share with a given variance.

    The interval is Wilson's with the effective number of cases p (1 - p) / v in place of their number, as Franco,
    Little, Louis and Slud (2019, J. Surv. Stat. Methodol. 7, PMC6690503) recommend for samples in groups. That
    number is at most the number of cases. If all cases or all groups are equal, the dependence of cases cannot be
    estimated, and it is the number of groups.
    """
    effective = p * (1 - p) / variance if variance > 0 and 0 < p < 1 else float(groups)
    return _rate(p, min(total, effective), total)


def _rate(p: float, n: float, total: int) -> Rate:
    """Return Wilson's (1927) interval: centre (p + z^2 / 2n) / (1 + z^2 / n), valid also for shares of 0 and 1."""
    z2 = Z**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n**2))
    low, high = max(0.0, centre - half) if p > 0 else 0.0, min(1.0, centre + half) if p < 1 else 1.0
    return {"value": p, "ci95": [low, high], "of": total}
