"""The gradient bandit: preferences for arms instead of estimates of their rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from laurel.agents import choice
from laurel.agents.agent import Experience
from laurel.agents.bandits.agent import OpenBanditAgent
from laurel.arrays import DoubleArray, IntArray


@dataclass(eq=False)
class Gradient(OpenBanditAgent):
    """Stochastic gradient ascent on a softmax over arms (Sutton & Barto 2018, equations 2.11 and 2.12).

        π(a) = exp H(a) / Σ_b exp H(b)
        H(a) ← H(a) + α (r - r̄) (1[a = A] - π(a))

    The baseline r̄ is the average of the rewards before this one (0 at the first), as the derivation in the book's
    box needs it: it must not depend on the action that was taken.

    Args:
        n_arms: K.
        step_size: α.
        baseline: whether to subtract r̄; without it, offsets of the reward hurt.
    """

    knowledge: ClassVar[tuple[str, ...]] = ("preferences", "average", "pulls")

    n_arms: int
    _: KW_ONLY
    step_size: float = 0.1
    baseline: bool = True

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self.preferences: DoubleArray = np.zeros((n_envs, self.n_arms))
        self.average: DoubleArray = np.zeros(n_envs)
        self.pulls: DoubleArray = np.zeros(n_envs)

    def probabilities(self) -> DoubleArray:
        """Return π (N, K)."""
        weights = np.exp(self.preferences - self.preferences.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def expected(self) -> DoubleArray:
        """Return r̄ for every arm (N, K): a gradient bandit does not estimate the arms one by one."""
        return np.repeat(self.average[:, None], self.n_arms, axis=1)

    def merits(self) -> DoubleArray:
        return self.preferences

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return choice.sample(self.probabilities(), self.rng)

    def observe(self, experience: Experience) -> None:
        rows = np.flatnonzero(experience.valid)
        reward = experience.reward[rows]
        advantage = reward - self.average[rows] if self.baseline else reward
        direction = -self.probabilities()[rows]
        direction[np.arange(len(rows)), experience.action[rows]] += 1
        self.preferences[rows] += self.step_size * advantage[:, None] * direction
        self.pulls[rows] += 1
        self.average[rows] += (reward - self.average[rows]) / self.pulls[rows]
