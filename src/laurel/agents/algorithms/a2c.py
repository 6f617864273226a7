"""Advantage actor-critic (`laurel.agents.a2c`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.algorithm import PlainActorCritic
from laurel.params.algorithms import A2CParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner


class A2CAlgorithm(PlainActorCritic[A2CParams]):
    """An actor-critic of plain layers that learns from each rollout once."""

    Params = A2CParams

    def learner(self, settings: A2CParams, policy: Any, rng: np.random.Generator) -> Learner:
        from laurel.agents.a2c import A2C

        return A2C(policy, settings, rng)


ALGORITHM = A2CAlgorithm
