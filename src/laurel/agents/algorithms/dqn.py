"""Deep Q-learning, with its double, multi-step and prioritised forms (`laurel.agents.dqn`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.actions import discrete_actions
from laurel.agents.algorithm import Algorithm, width_of
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import DQNParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner, PolicyNetwork


class DQNAlgorithm(Algorithm[DQNParams]):
    """A network of action values that learns from steps it remembers."""

    Params = DQNParams

    def check(self, settings: DQNParams, adapter: EnvAdapter) -> None:
        discrete_actions(adapter.action_space, settings.algorithm)

    def policy(self, settings: DQNParams, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.q_network import make_q_network

        shape = {"hidden": settings.hidden, "epsilon": settings.epsilon_end, "layer_norm": settings.layer_norm}
        return make_q_network(width_of(adapter), adapter.action_space, **shape)

    def learner(self, settings: DQNParams, policy: Any, rng: np.random.Generator) -> Learner:
        from laurel.agents.dqn import DQN

        return DQN(policy, settings, rng)


ALGORITHM = DQNAlgorithm
