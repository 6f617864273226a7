"""Agents that estimate every arm's reward and pull the best arm: ε-greedy, optimistic, upper confidence bound."""

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
class RewardAveraging(OpenBanditAgent):
    """ε-greedy on averages of rewards (Sutton & Barto 2018, equations 2.1 to 2.5).

        Q(a) ← Q(a) + α (r - Q(a))

    Args:
        n_arms: K.
        epsilon: probability of pulling any arm instead of the best.
        optimism: initial estimate of every arm; high values make the agent try all arms (section 2.6).
        step_size: α, for arms that drift (section 2.5); None is 1/n, the plain average of an arm's n rewards.
    """

    knowledge: ClassVar[tuple[str, ...]] = ("estimates", "counts")

    n_arms: int
    _: KW_ONLY
    epsilon: float = 0.1
    optimism: float = 0.0
    step_size: float | None = None

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self.estimates: DoubleArray = np.full((n_envs, self.n_arms), float(self.optimism))
        self.counts: DoubleArray = np.zeros((n_envs, self.n_arms))

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        greedy = choice.argmax(self.estimates, self.rng)
        if not self.epsilon:
            return greedy
        explore = self.rng.random(self.n_envs) < self.epsilon
        return np.where(explore, self.rng.integers(0, self.n_arms, self.n_envs), greedy)

    def probabilities(self) -> DoubleArray:
        return choice.epsilon_greedy(self.estimates, self.epsilon)

    def expected(self) -> DoubleArray:
        return self.estimates

    def observe(self, experience: Experience) -> None:
        rows = np.flatnonzero(experience.valid)
        arms = experience.action[rows]
        self.counts[rows, arms] += 1
        step = 1 / self.counts[rows, arms] if self.step_size is None else self.step_size
        self.estimates[rows, arms] += step * (experience.reward[rows] - self.estimates[rows, arms])


class UCB(RewardAveraging):
    """Upper confidence bound, UCB1 (Sutton & Barto 2018, equation 2.10; Auer, Cesa-Bianchi & Fischer 2002).

        A = argmax_a  Q(a) + c √(ln t / N(a))

    Arms that were never pulled come first. Auer's UCB1, for rewards within [0, 1], has c = √2.

    Args:
        n_arms: K.
        c: weight of the confidence term.
        step_size: as in `RewardAveraging`.
    """

    def __init__(self, n_arms: int, *, c: float = 2.0, step_size: float | None = None) -> None:
        super().__init__(n_arms, epsilon=0.0, step_size=step_size)
        self.c = c

    def bounds(self) -> DoubleArray:
        """Return the upper confidence bounds (N, K)."""
        t = self.counts.sum(axis=1, keepdims=True) + 1
        doubt = np.sqrt(np.log(t) / np.maximum(self.counts, 1))
        return np.where(self.counts > 0, self.estimates + self.c * doubt, np.inf)

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return choice.argmax(self.bounds(), self.rng)

    def probabilities(self) -> DoubleArray:
        return choice.epsilon_greedy(self.bounds(), 0.0)
