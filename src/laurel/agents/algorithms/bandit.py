"""Bandit methods, which ignore observations (`laurel.agents.bandit_policy`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.agents.actions import discrete_actions
from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import BanditParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


class BanditAlgorithm(Algorithm[BanditParams]):
    """Estimates the value of each action, regardless of the observation."""

    Params = BanditParams
    learner_class = "laurel.agents.bandit_policy:Bandit"

    def check(self, adapter: EnvAdapter) -> None:
        discrete_actions(adapter.action_space, self.settings.algorithm)

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.bandit_policy import make_bandit_policy

        return make_bandit_policy(adapter.n_features, adapter, self.settings)


ALGORITHM = BanditAlgorithm
