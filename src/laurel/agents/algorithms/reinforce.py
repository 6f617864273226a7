"""REINFORCE with a learned baseline (`laurel.agents.reinforce`)."""

from __future__ import annotations

from laurel.agents.algorithm import PlainActorCritic
from laurel.params.algorithms import ReinforceParams


class ReinforceAlgorithm(PlainActorCritic[ReinforceParams]):
    """An MLP actor-critic that learns from whole episodes."""

    Params = ReinforceParams
    learner_class = "laurel.agents.reinforce:Reinforce"


ALGORITHM = ReinforceAlgorithm
