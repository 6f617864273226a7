"""REINFORCE with a learned baseline (`laurel.agents.reinforce`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.algorithm import Algorithm, width_of
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import ReinforceParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner, PolicyNetwork


class ReinforceAlgorithm(Algorithm[ReinforceParams]):
    """An actor-critic of plain layers that learns from whole episodes."""

    Params = ReinforceParams

    def policy(self, settings: ReinforceParams, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.policy import make_network

        return make_network(width_of(adapter), adapter.action_space, settings.hidden)

    def learner(self, settings: ReinforceParams, policy: Any, rng: np.random.Generator) -> Learner:
        from laurel.agents.reinforce import Reinforce

        return Reinforce(policy, settings, rng)


ALGORITHM = ReinforceAlgorithm
