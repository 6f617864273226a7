"""Advantage actor-critic (`laurel.agents.a2c`)."""

from __future__ import annotations

from laurel.agents.algorithm import PlainActorCritic
from laurel.params.algorithms import A2CParams


class A2CAlgorithm(PlainActorCritic[A2CParams]):
    """An MLP actor-critic that learns from each rollout once."""

    Params = A2CParams
    learner_class = "laurel.agents.a2c:A2C"


ALGORITHM = A2CAlgorithm
