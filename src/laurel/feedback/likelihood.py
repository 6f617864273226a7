"""The observation model of labels: the distribution of answers given a difference of utilities, and their information.

    p(first) = lapse + (1 - 2 lapse) sigmoid(d),  d = utility(first) - utility(second)

(Bradley and Terry 1952, with a lapse rate: some answers are random regardless of the difference. Without lapses, an
annotator with random errors would look like one to whom all captions are similar.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laurel.arrays import DoubleArray

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The distribution of an annotator's answers given a difference of utilities.

    >>> Likelihood(0.1).p_first(np.array([0.0, 100.0])).tolist()
    [0.5, 0.9]
    """

    lapse: float
    """Probability of a wrong answer for large differences, in [0, 1/2)."""

    def p_first(self, difference: DoubleArray) -> DoubleArray:
        """Return p(first) of differences of any shape; tanh is the sigmoid without an overflow."""
        inner = (1 + np.tanh(difference / 2)) / 2
        return (self.lapse + (1 - 2 * self.lapse) * inner).clip(_CLOSE, 1 - _CLOSE)

    def log(self, difference: DoubleArray, p_first: DoubleArray) -> float:
        """Return the log-probability of labels, soft ones in proportion."""
        p = self.p_first(difference)
        return float((p_first * np.log(p) + (1 - p_first) * np.log1p(-p)).sum())

    def slope(self, difference: DoubleArray, p_first: DoubleArray) -> DoubleArray:
        """Return the derivative of each label's log-probability with respect to its difference."""
        p = self.p_first(difference)
        return (p_first - p) / (p * (1 - p)) * self._density(difference)

    def precision(self, difference: DoubleArray) -> DoubleArray:
        """Return Fisher's information of an answer about its difference, never negative."""
        p = self.p_first(difference)
        return self._density(difference) ** 2 / (p * (1 - p))

    def expected_shift(self, mean: DoubleArray, variance: DoubleArray) -> tuple[DoubleArray, DoubleArray, DoubleArray]:
        """Return the expected effect of an answer on the belief about a normally distributed difference (C,).

        Returns:
            The probability that it is "first", by how much that would raise the mean, and by how much the other answer
            would
        lower it; all (C,). The product of the two shifts is the expected reduction of the variance. (Fisher's
        information at the mean would underestimate it for uncertain differences.)
        """
        points = _spread(mean, variance)
        p = self.p_first(points)
        chance, moved = p @ _WEIGHTS, (p * (points - mean[:, None])) @ _WEIGHTS
        return chance, moved / chance, moved / (1 - chance)

    def information(self, mean: DoubleArray, variance: DoubleArray) -> DoubleArray:
        """Return the expected information in nats of an answer about a normally distributed difference (C,).

        The entropy of the answer less that which would remain if the difference were known: BALD (Houlsby et al. 2011,
        arXiv 1112.5745), by Gauss-Hermite quadrature.
        """
        p = self.p_first(_spread(mean, variance))
        return _entropy(p @ _WEIGHTS) - _entropy(p) @ _WEIGHTS

    def _density(self, difference: DoubleArray) -> DoubleArray:
        inner = (1 + np.tanh(difference / 2)) / 2
        return (1 - 2 * self.lapse) * inner * (1 - inner)


def _spread(mean: DoubleArray, variance: DoubleArray) -> DoubleArray:
    """Return the quadrature's points (C, 16) of normal distributions (C,)."""
    points: DoubleArray = mean[:, None] + np.sqrt(variance)[:, None] * _NODES
    return points


def _entropy(p: DoubleArray) -> DoubleArray:
    p = p.clip(_CLOSE, 1 - _CLOSE)
    entropy: DoubleArray = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    return entropy
