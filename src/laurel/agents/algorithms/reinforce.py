"""REINFORCE with a learned baseline (`laurel.agents.reinforce`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.algorithm import PlainActorCritic
from laurel.params.algorithms import ReinforceParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner


class ReinforceAlgorithm(PlainActorCritic[ReinforceParams]):
    """An actor-critic of plain layers that learns from whole episodes."""

    Params = ReinforceParams

    def learner(self, settings: ReinforceParams, policy: Any, rng: np.random.Generator) -> Learner:
        from laurel.agents.reinforce import Reinforce

        return Reinforce(policy, settings, rng)


ALGORITHM = ReinforceAlgorithm
