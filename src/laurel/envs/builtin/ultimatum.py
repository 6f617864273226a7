"""The ultimatum game: accept a share of a pot, or reject it, so that neither player gets anything.

A user's objective determines the right answer. After Kwon et al. 2023, "Reward Design with Language Models" (arXiv
2303.00001), whose five objectives these are. Offers are whole tenths of a pot here, so that all outcomes can be
enumerated.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import IntArray
from laurel.errors import EnvError, no_such

POTS = (1, 10, 30, 50, 100, 200, 500, 1000)
"""Dollars to be shared; with small pots, objectives of a percentage and of an amount disagree."""
TENTHS = 10
REFUSE, ACCEPT = 0, 1
OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "low_percentage": "You refuse every share below 30% of the pot, and accept every other.",
        "high_percentage": "You refuse every share below 60% of the pot, and accept every other.",
        "low_payoff": "You refuse every share of less than $10, and accept every other.",
        "high_payoff": "You refuse every share of less than $100, and accept every other.",
        "inequity_aversion": "You accept a share if you and the proposer get the same, and refuse every other.",
    }
)
"""Name -> what the user wants, in words."""


def wants(objective: str, share: float, pot: float) -> bool:
    """Whether the user wants a share accepted; both in dollars."""
    match objective:
        case "low_percentage":
            return share >= 0.3 * pot - 1e-9
        case "high_percentage":
            return share >= 0.6 * pot - 1e-9
        case "low_payoff":
            return share >= 10
        case "high_payoff":
            return share >= 100
        case _:
            return abs(share - pot / 2) < 1e-9


class Ultimatum(gym.Env[IntArray, np.int64]):
    """One offer per episode: reward 1 for the answer that the user wants, else 0.

    Args:
        objective: a key of OBJECTIVES.

    Raises:
        EnvError: there is no such objective.

    >>> env = Ultimatum(objective="low_percentage")
    >>> observation, _ = env.reset(seed=0)
    >>> observation.tolist()  # index of the pot, tenths of it that are offered
    [6, 7]
    >>> env.step(ACCEPT)[1]
    1.0
    """

    def __init__(self, *, objective: str = "low_percentage") -> None:
        if objective not in OBJECTIVES:
            raise EnvError(f"Ultimatum: {no_such('objective', objective, OBJECTIVES)}.")
        self.objective = objective
        self.observation_space = gym.spaces.MultiDiscrete([len(POTS), TENTHS + 1])
        self.action_space = gym.spaces.Discrete(2)
        self._offer = np.zeros(2, dtype=np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        super().reset(seed=seed)
        self._offer = self.np_random.integers([len(POTS), TENTHS + 1])
        return self._offer.copy(), {}

    def step(self, action: np.int64) -> tuple[IntArray, float, bool, bool, dict[str, Any]]:
        pot = POTS[self._offer[0]]
        right = wants(self.objective, pot * self._offer[1] / TENTHS, pot) == (int(action) == ACCEPT)
        return self._offer.copy(), float(right), True, False, {}
