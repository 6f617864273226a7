"""Lower and upper bounds for bandit agents: random pulls, and the known best arm. Neither learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laurel.agents.agent import Agent, Experience
from laurel.agents.bandits.agent import BanditAgent
from laurel.arrays import IntArray
from laurel.errors import EnvError


@dataclass(eq=False)
class Random(BanditAgent):
    """Pulls a uniformly random arm: the lower bound."""

    n_arms: int

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return self.rng.integers(0, self.n_arms, self.n_envs)

    def observe(self, experience: Experience) -> None:
        pass


class Cheater(Agent):
    """Pulls the arm that `info["best_arm"]` names, from the first pull on: the upper bound."""

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        """Return the best arms; raises EnvError where the environment's info does not name them."""
        if info is None or "best_arm" not in info:
            raise EnvError('The cheater needs info["best_arm"], which this environment does not provide.')
        best: IntArray = info["best_arm"]
        return best

    def observe(self, experience: Experience) -> None:
        pass
