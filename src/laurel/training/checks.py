"""Which arms and algorithms can be trained in an environment, which is asked before anything is collected or paid for.

Goes by spaces alone where it can, and then imports no torch.
"""

from __future__ import annotations

from laurel.agents.actions import action_form, discrete_actions
from laurel.agents.tabular.states import table_form
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.algorithms import BanditParams, DQNParams, TabularParams
from laurel.params.training import AgentParams, PPOParams
from laurel.rewards.arms import skipped_arms, trained_arms


def check_agents(params: Params, adapter: EnvAdapter) -> None:
    """Refuse agents that training would refuse; where no arm is trained, there are none.

    Raises:
        ParamsError: no arm can be trained or evaluated, or what Stable-Baselines3 is to do cannot be.
        EnvError: an algorithm does not fit the environment's observations or actions.
        LaurelError: a method of the rewards lacks something.
    """
    skipped = skipped_arms(params, adapter)
    if len(skipped) == len(params.arms):
        raise ParamsError(f"arms: no arm is left. {' '.join(skipped.values())}")
    checked: list[AgentParams] = []
    for arm in trained_arms(params, adapter):
        own = params.for_arm(arm)
        if own.agent not in checked:
            checked.append(own.agent)
            _check_algorithm(own, adapter)


def _check_algorithm(params: Params, adapter: EnvAdapter) -> None:
    """Check the algorithm of an arm, whose parameters these are."""
    if params.agent.engine == "sb3":
        _make_policy(params, adapter)
        return
    match params.agent.settings:
        case TabularParams():
            table_form(adapter)
        case DQNParams() | BanditParams():
            discrete_actions(adapter.action_space, params.agent.algorithm)
        case PPOParams(network="cnn"):
            _make_policy(params, adapter)
        case _:
            action_form(adapter.action_space)


def _make_policy(params: Params, adapter: EnvAdapter) -> None:
    """Make what training would begin with, where only that tells whether it can be made; imports torch."""
    from laurel.training.untrained import untrained

    untrained(params, adapter, params.agent.seeds[0])
