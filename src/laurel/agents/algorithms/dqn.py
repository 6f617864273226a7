"""Deep Q-learning, with its double, multi-step and prioritised forms (`laurel.agents.dqn`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.agents.actions import discrete_actions
from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import DQNParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


class DQNAlgorithm(Algorithm[DQNParams]):
    """A Q-network with a replay memory."""

    Params = DQNParams
    learner_class = "laurel.agents.dqn:DQN"

    def check(self, adapter: EnvAdapter) -> None:
        discrete_actions(adapter.action_space, self.settings.algorithm)

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.q_network import make_q_network

        settings = self.settings
        shape = {"hidden": settings.hidden, "epsilon": settings.epsilon_end, "layer_norm": settings.layer_norm}
        return make_q_network(adapter.n_features, adapter.action_space, **shape)


ALGORITHM = DQNAlgorithm
