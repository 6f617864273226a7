"""Comparisons of arms: P(a seed of one scores more than a seed of the other), with an interval and an exact test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray
from laurel.evaluation.arms import comparisons_of
from laurel.evaluation.intervals import wilson
from laurel.params.arm_infos import ArmInfo

Scores = Mapping[str, Mapping[str, DoubleArray]]
"""Measure -> arm -> the score of each of its seeds (S,), NaN where it is unknown."""


def compare_arms(scores: Scores, arms: Sequence[ArmInfo]) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Compare the main arm and those paid the same rewards with every other arm except bounds, on each measure.

    While training, an arm whose tasks a curriculum chose is compared with none: returns are then over other tasks.

    Returns:
        arm -> other arm -> measure -> result of `compare`, with `p_holm`: its p-value adjusted by Holm's method for the
        number of comparisons with a p-value.
    """
    comparisons: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    drawing_tasks = {arm.name for arm in arms if arm.draws_tasks}
    for arm, opponent in comparisons_of(arms):
        comparisons.setdefault(arm, {})[opponent] = {
            measure: compare(of_arms[arm], of_arms[opponent])
            for measure, of_arms in scores.items()
            if arm in of_arms and opponent in of_arms and not (measure == "area" and drawing_tasks & {arm, opponent})
        }
    entries = [entry for overs in comparisons.values() for measures in overs.values() for entry in measures.values()]
    for entry, adjusted in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
        entry["p_holm"] = adjusted
    return comparisons


def compare(ours: DoubleArray, theirs: DoubleArray) -> dict[str, Any]:
    """Compare the scores of two arms' seeds, (M,) and (N,).

    Returns:
        `probability` that a seed of ours scores more, with its interval `ci95`; the `difference` of the means; the
        two-sided `p` of the exact test; and how many `seeds` the arms have. The first four are None where a score is
        unknown, and interval and p-value where an arm has a single seed.
    """
    known = bool(len(ours) and len(theirs) and np.isfinite(ours).all() and np.isfinite(theirs).all())
    testable = known and min(len(ours), len(theirs)) > 1
    probability = probability_of_improvement(ours, theirs) if known else None
    return {
        "probability": probability,
        "ci95": None if not testable else list(improvement_interval(probability or 0.0, len(ours), len(theirs))),
        "difference": float(ours.mean() - theirs.mean()) if known else None,
        "p": permutation_p(ours, theirs) if testable else None,
        "seeds": [len(ours), len(theirs)],
    }


def probability_of_improvement(ours: DoubleArray, theirs: DoubleArray) -> float:
    """Return P(X > Y) over all pairs of seeds, ties counted half: the Mann-Whitney statistic, scaled.

    As `rliable.metrics.probability_of_improvement` (Agarwal et al. 2021, https://arxiv.org/abs/2108.13264), without the
    p-value, which then comes from the normal approximation.

    >>> probability_of_improvement(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.625
    """
    difference = ours.reshape(-1, 1) - theirs.reshape(1, -1)
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def improvement_interval(probability: float, m: int, n: int) -> tuple[float, float]:
    """Return the interval of P(X > Y) from m and n seeds.

    The statistic's variance is at most P (1 - P) / min(m, n) (van Dantzig 1951; Birnbaum and Klose 1957, Annals of
    Mathematical Statistics 28, 933-945), and reaches that bound if one arm sometimes fails and the other never does. So
    P is treated as a share of min(m, n) cases. Intervals that estimate the variance are narrower: with five seeds they
    cover such a truth in a third to two thirds of cases.

    The correction for continuity is meant for counts, and its interval may exclude a P within one case of 0 or 1: that
    end of the interval is then 0 or 1.

    >>> [round(bound, 3) for bound in improvement_interval(0.975, 10, 2)]
    [0.186, 1.0]
    """
    low, high = wilson(probability, min(m, n))
    return (low if low <= probability else 0.0), (high if high >= probability else 1.0)


def permutation_p(ours: DoubleArray, theirs: DoubleArray) -> float:
    """Return the two-sided p-value of the Mann-Whitney statistic over all ways to split the seeds between the arms.

    Exact even with ties, which get the mean of their ranks; `scipy.stats.mannwhitneyu` is exact only without ties.
    Twice the smaller tail, at most 1. Splits are counted by their rank sum (Streitberg and Röhmel 1986, Statistical
    Software Newsletter 12, 10-17), not listed: ten seeds against ten have 184,756.

    >>> permutation_p(np.array([4.0, 5.0, 6.0, 7.0, 8.0]), np.array([0.0, 0.0, 1.0, 2.0, 3.0])) == 2 / 252
    True
    """
    import scipy.stats

    ranks = np.rint(2 * scipy.stats.rankdata(np.concatenate([ours, theirs]))).astype(np.int64)  # doubled, so whole
    m, total = len(ours), 0
    counts = np.zeros((m + 1, int(ranks.sum()) + 1))
    counts[0, 0] = 1.0  # [k, s]: choices of k seeds whose ranks add up to s
    for done, rank in enumerate(ranks.tolist()):
        # Skip counts from which the remaining seeds cannot reach m; `high` and `total` bound counts and sums so far.
        low, high = max(m - (len(ranks) - done), 0), min(done, m - 1)
        counts[low + 1 : high + 2, rank : rank + total + 1] += counts[low : high + 1, : total + 1].copy()
        total += rank
    splits = counts[-1] / counts[-1].sum()
    observed = int(ranks[: len(ours)].sum())
    return float(min(1.0, 2 * min(splits[: observed + 1].sum(), splits[observed:].sum())))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number by Holm's method (1979, Scandinavian Journal of Statistics 6, 65-70).

    P-values of None stay None and do not count.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for done, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - done) * p))
        adjusted[place] = largest
    return adjusted
