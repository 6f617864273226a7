"""PPO that learns to reach the subgoals of a planner, in MiniGrid (`laurel.agents.subgoal_ppo`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.agents.actions import discrete_actions
from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.envs.minigrid import MiniGridAdapter
from laurel.errors import EnvError
from laurel.params.algorithms import SubgoalParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


class SubgoalAlgorithm(Algorithm[SubgoalParams]):
    """Fits MiniGrid's tasks."""

    Params = SubgoalParams
    learner_class = "laurel.agents.subgoal_ppo:SubgoalPPO"

    def check(self, adapter: EnvAdapter) -> None:
        discrete_actions(adapter.action_space, self.settings.algorithm)
        if not isinstance(adapter, MiniGridAdapter):
            raise EnvError(
                f"agent.algorithm is subgoals, but subgoals exist only in MiniGrid's tasks, and {adapter.env_id} is "
                "not one of them. Choose a MiniGrid task (env.id), or another algorithm."
            )

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.subgoal_ppo import SubgoalActorCritic
        from laurel.agents.subgoals import planned_in

        self.check(adapter)
        texts = tuple(subgoal.text for subgoal in planned_in(adapter)[1])
        n_actions = discrete_actions(adapter.action_space, self.settings.algorithm)
        shape = (adapter.n_features, n_actions)
        return SubgoalActorCritic(*shape, hidden=self.settings.hidden, subgoals=texts, options=self.settings.options)


ALGORITHM = SubgoalAlgorithm
