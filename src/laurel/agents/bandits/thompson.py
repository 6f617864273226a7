"""Thompson sampling: draw each arm's mean from its posterior, and pull the best draw.

The two agents differ in how rewards are distributed around the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from laurel.agents import choice
from laurel.agents.agent import Experience
from laurel.agents.bandits.agent import BanditAgent, OpenBanditAgent
from laurel.arrays import DoubleArray, IntArray

REACH = np.arange(-8.0, 9.0, 2.0)
"""Where a normal density is cut into pieces, in standard deviations; what lies outside is less than 1e-14."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(eq=False)
class GaussianThompson(OpenBanditAgent):
    """Normal rewards of known noise, normal prior (Russo et al. 2018, "A Tutorial on Thompson Sampling", section 4).

        precision(a) = 1/σ0² + n/σ²,    mean(a) = (μ0/σ0² + Σ r/σ²) / precision(a)
        A = argmax_a  draw from N(mean(a), 1/precision(a))

    Args:
        n_arms: K.
        prior_mean: μ0.
        prior_deviation: σ0.
        noise: σ, standard deviation of an arm's rewards.
    """

    knowledge: ClassVar[tuple[str, ...]] = ("means", "precisions")

    n_arms: int
    _: KW_ONLY
    prior_mean: float = 0.0
    prior_deviation: float = 1.0
    noise: float = 1.0

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self.means: DoubleArray = np.full((n_envs, self.n_arms), float(self.prior_mean))
        self.precisions: DoubleArray = np.full((n_envs, self.n_arms), self.prior_deviation**-2)

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        draws = self.means + self.rng.standard_normal(self.means.shape) / np.sqrt(self.precisions)
        return choice.argmax(draws, self.rng)

    def probabilities(self) -> DoubleArray:
        return np.stack([probability_of_best(*row) for row in zip(self.means, self.precisions**-0.5, strict=True)])

    def expected(self) -> DoubleArray:
        return self.means

    def observe(self, experience: Experience) -> None:
        rows = np.flatnonzero(experience.valid)
        index = rows, experience.action[rows]
        self.precisions[index] += self.noise**-2
        self.means[index] += self.noise**-2 / self.precisions[index] * (experience.reward[rows] - self.means[index])


@dataclass(eq=False)
class BernoulliThompson(BanditAgent):
    """Rewards of 0 or 1, Beta prior (Russo et al. 2018, algorithm 3.2).

        A = argmax_a  draw from Beta(α(a), β(a));    α(A) ← α(A) + r,  β(A) ← β(A) + 1 - r

    Args:
        n_arms: K.
        prior: α and β of every arm to begin with; (1, 1) is uniform.
    """

    n_arms: int
    _: KW_ONLY
    prior: tuple[float, float] = (1.0, 1.0)

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        alpha, beta = self.prior
        self.successes: DoubleArray = np.full((n_envs, self.n_arms), float(alpha))
        self.failures: DoubleArray = np.full((n_envs, self.n_arms), float(beta))

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return choice.argmax(self.rng.beta(self.successes, self.failures), self.rng)

    def observe(self, experience: Experience) -> None:
        rows = np.flatnonzero(experience.valid)
        index = rows, experience.action[rows]
        self.successes[index] += experience.reward[rows]
        self.failures[index] += 1 - experience.reward[rows]


def probability_of_best(means: DoubleArray, deviations: DoubleArray) -> DoubleArray:
    """Return the probability of each of K independent normal variables to be the largest (K,).

        P(a) = ∫ φ_a(x) Π_{b≠a} Φ_b(x) dx

    by Gauss-Legendre quadrature between cuts that are close together wherever one of the densities is.
    """
    from scipy.special import log_ndtr

    cuts = np.unique(means + REACH[:, None] * deviations)
    half = np.diff(cuts)[:, None] / 2
    x = (cuts[:-1, None] + half + half * NODES).reshape(-1, 1)
    z = (x - means) / deviations
    log_cdf = log_ndtr(z)  # in log space, since the product may underflow
    rivals = log_cdf.sum(axis=1, keepdims=True) - log_cdf
    density = np.exp(rivals - z**2 / 2) / (deviations * np.sqrt(2 * np.pi))
    chances: DoubleArray = (half * WEIGHTS).reshape(-1) @ density
    return chances / chances.sum()
