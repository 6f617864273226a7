"""Base of bandit agents: a number of arms, and, for most, estimates for each."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from laurel.agents.agent import Agent
from laurel.arrays import DoubleArray


class BanditAgent(Agent):
    """Pulls one of `n_arms` arms, which are the environment's actions."""

    n_arms: int


class OpenBanditAgent(BanditAgent):
    """A bandit agent whose state is a few arrays, and whose policy has known probabilities."""

    knowledge: ClassVar[tuple[str, ...]]
    """Names of the arrays that `reset` makes and `observe` changes, a row for each environment."""

    @abstractmethod
    def probabilities(self) -> DoubleArray:
        """Return how likely `get_action` is to pull each arm (N, K)."""

    @abstractmethod
    def expected(self) -> DoubleArray:
        """Return the estimated reward of each arm (N, K)."""

    def merits(self) -> DoubleArray:
        """Return scores (N, K), highest for the arm that is estimated to be best; here the expected rewards."""
        return self.expected()
